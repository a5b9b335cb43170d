#include "torch/unboxed.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace torch_tpu {
namespace {

using LentTensor = c10::MaybeOwnedTraits<at::Tensor>;

c10::IValue lend(const at::Tensor& tensor) { return LentTensor::createBorrow(tensor); }
c10::IValue lend(const at::Scalar& number) { return number; }
c10::IValue lend(int64_t number) { return number; }
c10::IValue lend(bool flag) { return flag; }
c10::IValue lend(at::ScalarType dtype) { return static_cast<int64_t>(dtype); }

/// The arguments of a call; the tensors stay the caller's.
template <size_t count>
class LentValues {
 public:
  template <class... Args>
  explicit LentValues(const Args&... args) : values_{lend(args)...} {}
  ~LentValues() {
    for (c10::IValue& value : values_) {
      if (!value.isTensor()) continue;
      at::Tensor tensor = std::move(value).toTensor();
      LentTensor::destroyBorrow(tensor);
    }
  }
  LentValues(const LentValues&) = delete;
  LentValues& operator=(const LentValues&) = delete;
  c10::IValue* data() { return values_.data(); }

 private:
  std::array<c10::IValue, count> values_;
};

template <class... Args>
struct FreshKernel final : c10::OperatorKernel {
  using Signature = at::Tensor(Args...);
  explicit FreshKernel(Binding binding) : binding(std::move(binding)) {}
  at::Tensor operator()(Args... args) {
    LentValues<sizeof...(Args)> values(args...);
    return run_for_tensor(binding, values.data());
  }
  const Binding binding;
};

template <class... Args>
struct InPlaceKernel final : c10::OperatorKernel {
  using Signature = at::Tensor&(at::Tensor&, Args...);
  explicit InPlaceKernel(Binding binding) : binding(std::move(binding)) {}
  at::Tensor& operator()(at::Tensor& self, Args... args) {
    LentValues<1 + sizeof...(Args)> values(self, args...);
    run_for_tensor(binding, values.data());
    return self;
  }
  const Binding binding;
};

template <class Kernel>
UnboxedKernel make(const Binding& binding) {
  return {c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::make_unique<Kernel>(binding)),
          c10::impl::CppSignature::make<typename Kernel::Signature>()};
}

/// A letter for each argument, '!' after one that is written; empty where another type is among them.
std::string letters_of(const c10::FunctionSchema& schema) {
  std::string letters;
  for (const c10::Argument& argument : schema.arguments()) {
    switch (argument.real_type()->kind()) {
      case c10::TypeKind::TensorType:
        letters += 't';
        break;
      case c10::TypeKind::NumberType:
        letters += 's';
        break;
      case c10::TypeKind::IntType:
        letters += 'i';
        break;
      case c10::TypeKind::BoolType:
        letters += 'b';
        break;
      case c10::TypeKind::ScalarTypeType:
        letters += 'd';
        break;
      default:
        return "";
    }
    if (argument.is_out()) return "";
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) letters += '!';
  }
  return letters;
}

struct Form {
  std::string_view letters;
  UnboxedKernel (*make)(const Binding&);
};

using T = const at::Tensor&;
using S = const at::Scalar&;

constexpr Form kForms[] = {
    {"t", make<FreshKernel<T>>},
    {"tt", make<FreshKernel<T, T>>},
    {"ttt", make<FreshKernel<T, T, T>>},
    {"ts", make<FreshKernel<T, S>>},
    {"st", make<FreshKernel<S, T>>},
    {"tss", make<FreshKernel<T, S, S>>},
    {"tts", make<FreshKernel<T, T, S>>},
    {"tttss", make<FreshKernel<T, T, T, S, S>>},
    {"tib", make<FreshKernel<T, int64_t, bool>>},
    {"ttid", make<FreshKernel<T, T, int64_t, at::ScalarType>>},
    {"t!", make<InPlaceKernel<>>},
    {"t!t", make<InPlaceKernel<T>>},
    {"t!tt", make<InPlaceKernel<T, T>>},
    {"t!s", make<InPlaceKernel<S>>},
    {"t!ss", make<InPlaceKernel<S, S>>},
    {"t!ts", make<InPlaceKernel<T, S>>},
    {"t!tts", make<InPlaceKernel<T, T, S>>},
    {"t!ttss", make<InPlaceKernel<T, T, S, S>>},
};

}  // namespace

std::optional<UnboxedKernel> unboxed_kernel(const Binding& binding) {
  const auto& returns = binding.handle.schema().returns();
  const bool gives_tensor = returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::TensorType;
  if (!gives_tensor) return std::nullopt;
  const std::string letters = letters_of(binding.handle.schema());
  const bool is_in_place = letters.find('!') != std::string::npos;
  if (is_in_place != (binding.returns[0] == 0)) return std::nullopt;
  for (const Form& form : kForms) {
    if (form.letters == letters) return form.make(binding);
  }
  return std::nullopt;
}

}  // namespace torch_tpu
