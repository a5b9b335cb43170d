// The boxed kernel of every operator: arguments become a call, the call is recorded, results become
// tensors or are written where the schema says.
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <array>
#include <shared_mutex>
#include <unordered_map>

#include "torch/arguments.h"
#include "torch/binding.h"
#include "torch/device.h"
#include "torch/dtype.h"
#include "torch/dynamic_shape.h"
#include "torch/error.h"
#include "torch/generator.h"
#include "torch/meta.h"
#include "torch/overlap.h"
#include "torch/record.h"
#include "torch/resize.h"

namespace torch_tpu {
namespace {

/// A signature that was seen: the call, and the strides that ATen gives fresh results.
struct Plan {
  ops::CallPtr call;
  std::vector<std::vector<int64_t>> strides;
};

struct PlanTable {
  std::shared_mutex mutex;
  std::unordered_map<Hash128, std::unique_ptr<Plan>> plans;
};

PlanTable& plan_table() {
  static PlanTable& instance = *new PlanTable;
  return instance;
}

std::unique_ptr<Plan> make_plan(const Binding& binding, const Arguments& arguments,
                                const c10::IValue* values) {
  auto plan = std::make_unique<Plan>();
  // ATen first: its exceptions are the ones that users know.
  const std::optional<std::vector<MetaResult>> meta = run_meta(binding, values);
  ops::Call call = arguments.describe();
  plan->call = find_call(call.hash);
  if (plan->call == nullptr) plan->call = intern_call(std::move(call));
  check_written_dtypes(binding, values, *plan->call);

  size_t output = 0;
  for (size_t i = 0; i < plan->call->returned.size(); ++i) {
    if (!plan->call->returned[i]) continue;
    const hlo::Type& type = plan->call->outputs[output++];
    const hlo::Dims contiguous = hlo::contiguous_strides(type.dims);
    plan->strides.emplace_back(contiguous.begin(), contiguous.end());
    const bool fresh = binding.writes_before.empty() || binding.has_out();
    if (!meta.has_value() || !fresh || i >= meta->size() || !(*meta)[i].defined) continue;
    const MetaResult& expected = (*meta)[i];
    const hlo::Dims sizes(expected.sizes.begin(), expected.sizes.end());
    const bool same_dtype = binding.has_out() || type.dtype == to_hlo(expected.dtype);
    TORCH_CHECK(type.dims == sizes && same_dtype, "the lowering of ", binding.op->name, " gives ",
                type.text(), " where ATen gives ", hlo::Type{to_hlo(expected.dtype), sizes}.text());
    const hlo::Layout layout{sizes, hlo::Dims(expected.strides.begin(), expected.strides.end()), 0};
    if (hlo::is_dense(layout)) plan->strides.back() = expected.strides;
  }
  return plan;
}

const Plan& known_plan(const Hash128& key, const Binding& binding, const Arguments& arguments,
                       const c10::IValue* values) {
  PlanTable& table = plan_table();
  {
    const std::shared_lock lock(table.mutex);
    if (const auto found = table.plans.find(key); found != table.plans.end()) return *found->second;
  }
  std::unique_ptr<Plan> plan;
  try {
    plan = make_plan(binding, arguments, values);
  } catch (...) {
    // What the Meta kernel or the lowering says of a wrong call is not always what the CPU says.
    raise_cpu_refusal(binding, values);
    throw;
  }
  const std::unique_lock lock(table.mutex);
  return *table.plans.emplace(key, std::move(plan)).first->second;
}

const Plan& plan_for(const Binding& binding, const Arguments& arguments, const c10::IValue* values) {
  struct Recent {
    Hash128 key;
    const Plan* plan = nullptr;
  };
  thread_local std::array<Recent, 256> recents;  // found without a lock
  Hash128 key = arguments.hash();
  key.append(binding.identity);
  Recent& recent = recents[key.low % recents.size()];
  if (recent.plan == nullptr || !(recent.key == key))
    recent = {key, &known_plan(key, binding, arguments, values)};
  return *recent.plan;
}

/// Gives `value` to a tensor that exists. One that may be resized, as an out= argument, takes `strides` if it
/// has another shape than the result.
void assign(const at::Tensor& target, engine::TensorPtr value, bool may_resize, c10::IntArrayRef strides) {
  const c10::IntArrayRef sizes(value->type.dims.data(), value->type.dims.size());
  if (may_resize && at::native::resize_output(target, sizes)) {
    target.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  }
  value = record_convert(value, to_hlo(target.scalar_type()));
  const auto target_sizes = target.sizes();
  write(target, record_broadcast(value, {target_sizes.data(), target_sizes.size()}));
}

/// Hands out the results of a call in order; a None result yields null.
class Results {
 public:
  Results(const Plan& plan, std::vector<engine::TensorPtr> tensors)
      : plan_(plan), tensors_(std::move(tensors)) {}

  bool at_end() const { return position_ >= plan_.call->returned.size(); }
  engine::TensorPtr next() {
    if (at_end() || !plan_.call->returned[position_++]) return nullptr;
    return std::move(tensors_[output_++]);
  }
  /// The strides that ATen gives what next() returned last.
  const std::vector<int64_t>& strides() const { return plan_.strides[output_ - 1]; }
  at::Tensor next_tensor() {
    engine::TensorPtr value = next();
    return value == nullptr ? at::Tensor() : make_tensor(std::move(value), strides());
  }

 private:
  const Plan& plan_;
  std::vector<engine::TensorPtr> tensors_;
  size_t position_ = 0;
  size_t output_ = 0;
};

void assign_all(const Binding& binding, const std::vector<int>& positions, const c10::IValue* values,
                Results& results) {
  for (const int position : positions) {
    const bool is_out = binding.arguments[position].is_out;
    const bool may_resize = is_out || binding.op->traits.resizes_self;
    const c10::IValue& target = values[position];
    if (target.isList()) {
      for (const c10::IValue& element : target.toListRef()) {
        if (auto value = results.next())
          assign(element.toTensor(), std::move(value), may_resize, results.strides());
      }
    } else if (auto value = results.next();
               value != nullptr && target.isTensor() && target.toTensor().defined()) {
      const at::Tensor& tensor = target.toTensor();
      if (binding.op->traits.keeps_out_shape && is_out && tensor.numel() == value->type.elements()) {
        tensor.copy_(make_tensor(std::move(value)).view(tensor.sizes()));
        continue;
      }
      assign(tensor, std::move(value), may_resize, results.strides());
    }
  }
}

ops::Number number_of(const c10::IValue& value) {
  if (value.isInt()) return value.toInt();
  if (value.isBool()) return int64_t{value.toBool()};
  if (value.isDouble()) return value.toDouble();
  if (value.isComplexDouble()) return std::complex<double>(value.toComplexDouble());
  return {};
}

/// Raises what the op has against the numbers of the call.
void check_numbers(const Binding& binding, const c10::IValue* values) {
  ops::Numbers numbers;
  for (size_t i = binding.arguments.size(); i-- > 0;) {
    if (binding.arguments[i].kind == ArgKind::kTensor && values[i].isTensor() &&
        values[i].toTensor().defined())
      numbers.dtype = to_hlo(values[i].toTensor().scalar_type());
  }
  for (int i = 0; i < binding.op_arguments; ++i) {
    const bool is_number = binding.arguments[i].kind == ArgKind::kScalar;
    numbers.values.push_back(is_number ? number_of(values[i]) : ops::Number());
  }
  raise_if_error(binding.op->traits.accept(numbers));
}

/// Whether a gradient is asked for where nobody gave one: there is none then.
bool lacks_gradient(const Binding& binding, const c10::IValue* values) {
  return binding.is_gradient && values[0].isTensor() && !values[0].toTensor().defined();
}

/// Calls `take` with the results of the recorded call that are fresh; the others are assigned.
template <class Take>
void run(const Binding& binding, c10::IValue* values, Take take) {
  if (binding.op->traits.accept != nullptr) check_numbers(binding, values);
  if (!binding.writes_before.empty() || !binding.writes_after.empty()) check_overlap(binding, values);
  if (const int i = binding.op->traits.out_dtype; i >= 0 && binding.has_out() && values[i].isNone()) {
    const c10::ScalarType dtype = values[binding.writes_before[0]].toTensor().scalar_type();
    values[i] = static_cast<int64_t>(dtype);
  }
  if (binding.expands_masks) expand_index_masks(binding, values);
  Arguments arguments(binding, values);
  const Plan& plan = plan_for(binding, arguments, values);
  const int device_index = arguments.device_index();
  if (binding.op->traits.random) {
    const auto [seed, offset] = draw_random(arguments.generator(), device_index, plan.call->random_blocks);
    arguments.words().push_back(seed);
    arguments.words().push_back(offset);
  }
  Results results(
      plan, value_or_raise(queue_of(device_index).record(plan.call, arguments.inputs(), arguments.words())));

  assign_all(binding, binding.writes_before, values, results);
  take(results);
  assign_all(binding, binding.writes_after, values, results);
}

}  // namespace

void run_binding(const Binding& binding, torch::jit::Stack& stack) {
  const size_t count = binding.arguments.size();
  c10::IValue* values = stack.data() + stack.size() - count;
  c10::SmallVector<c10::IValue, 4> returned;
  if (lacks_gradient(binding, values)) {
    returned.resize(binding.returns.size(), at::Tensor());
  } else {
    run(binding, values, [&](Results& results) {
      if (binding.returns_list && binding.returns[0] < 0) {
        c10::List<at::Tensor> list;
        while (!results.at_end()) list.push_back(results.next_tensor());
        returned.emplace_back(std::move(list));
        return;
      }
      for (const int position : binding.returns)
        returned.push_back(position >= 0 ? values[position] : c10::IValue(results.next_tensor()));
    });
  }
  torch::jit::drop(stack, count);
  for (c10::IValue& value : returned) stack.push_back(std::move(value));
}

at::Tensor run_for_tensor(const Binding& binding, c10::IValue* values) {
  at::Tensor fresh;
  if (lacks_gradient(binding, values)) return fresh;
  run(binding, values, [&](Results& results) {
    if (binding.returns[0] < 0) fresh = results.next_tensor();
  });
  return fresh;
}

}  // namespace torch_tpu
