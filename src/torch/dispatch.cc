// The boxed kernel of every operator: arguments become a call, the call is recorded, results become
// tensors or are written where the schema says.
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <shared_mutex>
#include <unordered_map>

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

uint64_t tag(ArgKind kind, uint64_t detail) { return (static_cast<uint64_t>(kind) + 1) << 56 ^ detail; }

ops::ScalarSlot slot_of(const c10::IValue& number) {
  if (number.isDouble()) return {hlo::DType::kF64, true};
  if (number.isInt()) return {hlo::DType::kS64, true};
  if (number.isBool()) return {hlo::DType::kPred, true};
  return {hlo::DType::kC128, true};
}

double as_double(const c10::IValue& number) {
  if (number.isDouble()) return number.toDouble();
  if (number.isInt()) return static_cast<double>(number.toInt());
  return number.toBool() ? 1.0 : 0.0;
}

/// Walks the arguments of one call: gathers run-time inputs and the hash of everything else.
class Arguments {
 public:
  Arguments(const Binding& binding, const c10::IValue* values) : binding_(binding), values_(values) {
    for (size_t i = 0; i < binding.arguments.size(); ++i) gather(static_cast<int>(i));
    hash_.append(tag(ArgKind::kIgnored, static_cast<uint64_t>(c10::get_default_dtype_as_scalartype())));
  }

  const Hash128& hash() const { return hash_; }
  const std::vector<engine::TensorPtr>& inputs() const { return inputs_; }
  std::vector<uint64_t>& words() { return words_; }
  const std::optional<at::Generator>& generator() const { return generator_; }
  int device_index() const { return device_index_ >= 0 ? device_index_ : current_device(); }

  /// The full description; only for signatures seen for the first time.
  ops::Call describe() const;

 private:
  void gather(int i);
  void gather_tensor(int i, const at::Tensor& tensor);
  void gather_number(const Argument& argument, const c10::IValue& number);
  void append_number(const c10::IValue& number);
  void use_device(const at::Tensor& tensor);
  bool is_constant(const Argument& argument, const c10::IValue& number) const;
  ops::Arg describe(int i, int& input, int& slot) const;

  const Binding& binding_;
  const c10::IValue* values_;
  Hash128 hash_;
  std::vector<engine::TensorPtr> inputs_;
  std::vector<uint64_t> words_;
  std::vector<ops::ScalarSlot> slots_;
  std::optional<at::Generator> generator_;
  int device_index_ = -1;
};

bool Arguments::is_constant(const Argument& argument, const c10::IValue& number) const {
  if (argument.structural) return true;
  if (!argument.special || number.isComplexDouble()) return false;
  const auto& special = binding_.op->traits.special;
  return std::find(special.begin(), special.end(), as_double(number)) != special.end();
}

void Arguments::use_device(const at::Tensor& tensor) {
  const int index = tensor.device().index();
  TORCH_CHECK(device_index_ < 0 || device_index_ == index,
              "Expected all tensors to be on the same device, but found at least two devices, tpu:",
              device_index_, " and tpu:", index, "!");
  device_index_ = index;
}

void Arguments::append_number(const c10::IValue& number) {
  if (number.isComplexDouble()) {
    const c10::complex<double> value = number.toComplexDouble();
    words_.push_back(std::bit_cast<uint64_t>(value.real()));
    words_.push_back(std::bit_cast<uint64_t>(value.imag()));
  } else if (number.isDouble()) {
    words_.push_back(std::bit_cast<uint64_t>(number.toDouble()));
  } else {
    words_.push_back(static_cast<uint64_t>(number.isInt() ? number.toInt() : int64_t{number.toBool()}));
  }
}

void Arguments::gather_number(const Argument& argument, const c10::IValue& number) {
  const ops::ScalarSlot slot = slot_of(number);
  const bool constant = is_constant(argument, number);
  hash_.append(tag(argument.kind, static_cast<uint64_t>(slot.dtype) << 1 | uint64_t{constant}));
  if (constant) {
    if (number.isInt()) {
      hash_.append(static_cast<uint64_t>(number.toInt()));
    } else {
      hash_.append(as_double(number));
    }
    return;
  }
  slots_.push_back(slot);
  append_number(number);
}

void Arguments::gather_tensor(int i, const at::Tensor& tensor) {
  const Argument& argument = binding_.arguments[i];
  if (!tensor.defined()) {
    hash_.append(tag(argument.kind, 0xffff));
    return;
  }
  if (is_tpu(tensor)) {
    use_device(tensor);
    if (argument.is_out) {
      hash_.append(tag(argument.kind, 0x10000 | static_cast<uint64_t>(tensor.scalar_type())));
      return;
    }
    const auto sizes = tensor.sizes();
    hash_.append(tag(argument.kind, static_cast<uint64_t>(tensor.scalar_type()) << 8 | sizes.size()));
    for (const int64_t size : sizes) hash_.append(static_cast<uint64_t>(size));
    if (!tensor.is_contiguous()) {
      for (const int64_t stride : tensor.strides())
        hash_.append(static_cast<uint64_t>(stride) ^ uint64_t{1} << 63);
    }
    inputs_.push_back(read(tensor));
    return;
  }
  TORCH_CHECK(tensor.is_cpu() && tensor.dim() == 0 && !argument.is_out,
              "Expected all tensors to be on the same device, but found at least two devices, tpu:",
              device_index(), " and ", tensor.device(), "!");
  const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  ops::ScalarSlot slot{to_hlo(tensor.scalar_type()), wrapped};
  hash_.append(tag(argument.kind, 0x20000 | static_cast<uint64_t>(slot.dtype) << 1 | uint64_t{wrapped}));
  slots_.push_back(slot);
  const c10::Scalar number = tensor.item();
  append_number(c10::IValue(number));
}

void Arguments::gather(int i) {
  const Argument& argument = binding_.arguments[i];
  const c10::IValue& value = values_[i];
  if (value.isNone()) {
    if (argument.kind != ArgKind::kGenerator) hash_.append(tag(argument.kind, 0xffff));
    return;
  }
  switch (argument.kind) {
    case ArgKind::kTensor:
      gather_tensor(i, value.toTensor());
      return;
    case ArgKind::kTensorList: {
      const auto list = value.toListRef();
      hash_.append(tag(argument.kind, list.size()));
      for (const c10::IValue& element : list) {
        gather_tensor(i, element.isNone() ? at::Tensor() : element.toTensor());
      }
      return;
    }
    case ArgKind::kScalar:
      gather_number(argument, value);
      return;
    case ArgKind::kScalars: {
      const auto list = value.toListRef();
      hash_.append(tag(argument.kind, list.size()));
      for (const c10::IValue& element : list) gather_number(argument, element);
      return;
    }
    case ArgKind::kInteger:
    case ArgKind::kDType:
      hash_.append(tag(argument.kind, 0));
      hash_.append(static_cast<uint64_t>(value.toInt()));
      return;
    case ArgKind::kFlag:
      hash_.append(tag(argument.kind, uint64_t{value.toBool()}));
      return;
    case ArgKind::kIntegers: {
      const std::vector<int64_t> list =
          value.isInt() ? std::vector<int64_t>{value.toInt()} : value.toIntVector();
      hash_.append(tag(argument.kind, list.size()));
      for (const int64_t number : list) hash_.append(static_cast<uint64_t>(number));
      return;
    }
    case ArgKind::kNumbers: {
      const std::vector<double> list = value.toDoubleVector();
      hash_.append(tag(argument.kind, list.size()));
      for (const double number : list) hash_.append(number);
      return;
    }
    case ArgKind::kFlags: {
      const c10::List<bool> list = value.toBoolList();
      uint64_t bits = 1;
      for (const bool flag : list) bits = bits << 1 | uint64_t{flag};
      hash_.append(tag(argument.kind, bits));
      return;
    }
    case ArgKind::kText:
      hash_.append(value.toStringRef());
      return;
    case ArgKind::kGenerator:
      generator_ = value.toGenerator();
      return;
    case ArgKind::kIgnored:
      // Factories name their device; nothing else about these shapes the program.
      if (value.isDevice() && value.toDevice().type() == c10::kPrivateUse1 && device_index_ < 0) {
        device_index_ = value.toDevice().index();
      }
      return;
  }
}

ops::Arg Arguments::describe(int i, int& input, int& slot) const {
  const Argument& argument = binding_.arguments[i];
  const c10::IValue& value = values_[i];
  if (value.isNone()) return std::monostate();
  const auto describe_tensor = [&](const at::Tensor& tensor) -> ops::Arg {
    if (!tensor.defined()) return std::monostate();
    if (argument.is_out) return to_hlo(tensor.scalar_type());
    if (is_tpu(tensor)) return ops::TensorArg{input++};
    return ops::ScalarArg{slot++};
  };
  switch (argument.kind) {
    case ArgKind::kTensor:
      return describe_tensor(value.toTensor());
    case ArgKind::kTensorList: {
      ops::TensorListArg list;
      for (const c10::IValue& element : value.toListRef()) {
        const bool present = !element.isNone() && element.toTensor().defined();
        TORCH_CHECK(!present || is_tpu(element.toTensor()),
                    "Expected all tensors to be on the same device, but found at least two devices, tpu:",
                    device_index(), " and cpu!");
        list.inputs.push_back(present ? input++ : -1);
      }
      return list;
    }
    case ArgKind::kScalar:
      if (!is_constant(argument, value)) return ops::ScalarArg{slot++};
      if (value.isInt()) return value.toInt();
      if (value.isBool()) return value.toBool();
      return value.toDouble();
    case ArgKind::kScalars: {
      ops::ScalarListArg list;
      for (size_t k = 0; k < value.toListRef().size(); ++k) list.slots.push_back(slot++);
      return list;
    }
    case ArgKind::kInteger:
      return value.toInt();
    case ArgKind::kFlag:
      return value.toBool();
    case ArgKind::kIntegers:
      return value.isInt() ? std::vector<int64_t>{value.toInt()} : value.toIntVector();
    case ArgKind::kNumbers:
      return value.toDoubleVector();
    case ArgKind::kFlags: {
      const c10::List<bool> list = value.toBoolList();
      return std::vector<bool>(list.begin(), list.end());
    }
    case ArgKind::kDType:
      return to_hlo(static_cast<c10::ScalarType>(value.toInt()));
    case ArgKind::kText:
      return value.toStringRef();
    case ArgKind::kGenerator:
    case ArgKind::kIgnored:
      return std::monostate();
  }
  return std::monostate();
}

ops::Call Arguments::describe() const {
  ops::Call call;
  call.op = binding_.op;
  call.hash = hash_;
  call.hash.append(binding_.op->identity);
  int input = 0;
  int slot = 0;
  for (int i = 0; i < binding_.op_arguments; ++i) call.args.push_back(describe(i, input, slot));
  for (const engine::TensorPtr& tensor : inputs_) call.inputs.push_back(tensor->type);
  call.scalars = slots_;
  call.default_dtype = to_hlo(c10::get_default_dtype_as_scalartype());
  return call;
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

const Plan& plan_for(const Binding& binding, const Arguments& arguments, const c10::IValue* values) {
  Hash128 key = arguments.hash();
  key.append(binding.identity);
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

}  // namespace

void run_binding(const Binding& binding, torch::jit::Stack& stack) {
  const size_t count = binding.arguments.size();
  c10::IValue* values = stack.data() + stack.size() - count;
  if (binding.is_gradient && values[0].isTensor() && !values[0].toTensor().defined()) {
    // Nobody gave a gradient: nor do we.
    torch::jit::drop(stack, count);
    for (size_t i = 0; i < binding.returns.size(); ++i) stack.emplace_back(at::Tensor());
    return;
  }
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
  std::vector<c10::IValue> fresh;
  if (binding.returns_list && binding.returns[0] < 0) {
    c10::List<at::Tensor> list;
    while (!results.at_end()) list.push_back(results.next_tensor());
    fresh.emplace_back(std::move(list));
  } else {
    for (const int position : binding.returns) {
      fresh.push_back(position >= 0 ? values[position] : c10::IValue(results.next_tensor()));
    }
  }
  assign_all(binding, binding.writes_after, values, results);
  torch::jit::drop(stack, count);
  for (c10::IValue& value : fresh) stack.push_back(std::move(value));
}

}  // namespace torch_tpu
