#include "ops/call.h"

namespace torch_tpu::ops {
namespace {

/// Appends what an argument holds, but for the values of integers.
struct Appender {
  Hash128& hash;

  void operator()(std::monostate) const {}
  void operator()(const TensorArg& tensor) const { hash.append(static_cast<uint64_t>(tensor.input)); }
  void operator()(const TensorListArg& list) const { append_slots(list.inputs); }
  void operator()(const ScalarArg& scalar) const { hash.append(static_cast<uint64_t>(scalar.slot)); }
  void operator()(const ScalarListArg& list) const { append_slots(list.slots); }
  void operator()(int64_t) const {}
  void operator()(double number) const { hash.append(number); }
  void operator()(bool flag) const { hash.append(uint64_t{flag}); }
  void operator()(const std::vector<int64_t>& list) const { hash.append(uint64_t{list.size()}); }
  void operator()(const std::vector<double>& list) const {
    hash.append(uint64_t{list.size()});
    for (const double number : list) hash.append(number);
  }
  void operator()(const std::vector<bool>& list) const {
    hash.append(uint64_t{list.size()});
    for (const bool flag : list) hash.append(uint64_t{flag});
  }
  void operator()(hlo::DType dtype) const { hash.append(static_cast<uint64_t>(dtype)); }
  void operator()(const std::string& text) const { hash.append(std::string_view(text)); }

 private:
  void append_slots(const std::vector<int>& slots) const {
    hash.append(uint64_t{slots.size()});
    for (const int slot : slots) hash.append(static_cast<uint64_t>(slot));
  }
};

}  // namespace

void append_without_integers(Hash128& hash, const Arg& arg) {
  hash.append(static_cast<uint64_t>(arg.index()));
  std::visit(Appender{hash}, arg);
}

void append(Hash128& hash, const Arg& arg) {
  append_without_integers(hash, arg);
  const auto add = [&hash](int64_t number) { hash.append(static_cast<uint64_t>(number)); };
  visit_integers(arg, add);
}

}  // namespace torch_tpu::ops
