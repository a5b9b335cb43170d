#include "torch/arguments.h"

#include <ATen/core/Tensor.h>

#include "torch/device.h"
#include "torch/dtype.h"
#include "torch/record.h"

namespace torch_tpu {
namespace {

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

/// The element of a 0-dim CPU tensor; without a dispatch for those that Python numbers become.
c10::IValue number_in(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return *tensor.const_data_ptr<double>();
    case at::kLong:
      return *tensor.const_data_ptr<int64_t>();
    case at::kBool:
      return *tensor.const_data_ptr<bool>();
    default:
      return tensor.item();
  }
}

}  // namespace

Arguments::Arguments(const Binding& binding, const c10::IValue* values) : binding_(binding), values_(values) {
  for (size_t i = 0; i < binding.arguments.size(); ++i) gather(static_cast<int>(i));
  hash_.append(tag(ArgKind::kIgnored, static_cast<uint64_t>(c10::get_default_dtype_as_scalartype())));
}

int Arguments::device_index() const { return device_index_ >= 0 ? device_index_ : current_device(); }

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
  append_number(number_in(tensor));
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
  call.scalars.assign(slots_.begin(), slots_.end());
  call.default_dtype = to_hlo(c10::get_default_dtype_as_scalartype());
  return call;
}

}  // namespace torch_tpu
