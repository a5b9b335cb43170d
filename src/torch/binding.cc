#include "torch/binding.h"

#include <algorithm>

namespace torch_tpu {
namespace {

using c10::TypeKind;

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

ArgKind kind_of_list(const c10::Type& element) {
  switch (element.kind()) {
    case TypeKind::TensorType:
    case TypeKind::OptionalType:
      return ArgKind::kTensorList;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return ArgKind::kIntegers;
    case TypeKind::FloatType:
      return ArgKind::kNumbers;
    case TypeKind::BoolType:
      return ArgKind::kFlags;
    case TypeKind::NumberType:
      return ArgKind::kScalars;
    default:
      return ArgKind::kIgnored;
  }
}

ArgKind kind_of(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (type->kind() == TypeKind::OptionalType) type = type->expectRef<c10::OptionalType>().getElementType();
  switch (type->kind()) {
    case TypeKind::TensorType:
      return ArgKind::kTensor;
    case TypeKind::ListType:
      return kind_of_list(*type->expectRef<c10::ListType>().getElementType());
    case TypeKind::NumberType:
    case TypeKind::FloatType:
      return ArgKind::kScalar;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return ArgKind::kInteger;
    case TypeKind::BoolType:
      return argument.name() == "pin_memory" ? ArgKind::kIgnored : ArgKind::kFlag;
    case TypeKind::ScalarTypeType:
      return ArgKind::kDType;
    case TypeKind::StringType:
      return ArgKind::kText;
    case TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    default:
      return ArgKind::kIgnored;
  }
}

bool is_list_of_optionals(const c10::Argument& argument) {
  const c10::TypePtr type = argument.real_type();
  return type->kind() == TypeKind::ListType &&
         type->expectRef<c10::ListType>().getElementType()->kind() == TypeKind::OptionalType;
}

bool contains(const std::vector<int>& positions, int position) {
  return std::find(positions.begin(), positions.end(), position) != positions.end();
}

}  // namespace

std::optional<c10::OperatorHandle> own_operator(const ops::Op& op) {
  const size_t dot = op.name.find('.');
  const std::string overload = dot == std::string::npos ? "" : op.name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchema({op.name.substr(0, dot), overload});
}

bool is_variant(const c10::FunctionSchema& functional, const c10::FunctionSchema& variant) {
  const auto& expected = functional.arguments();
  size_t position = 0;
  for (const c10::Argument& argument : variant.arguments()) {
    if (argument.is_out()) continue;
    if (position == expected.size()) return false;
    const c10::Argument& other = expected[position++];
    if (argument.name() != other.name() || *argument.real_type() != *other.real_type()) return false;
  }
  return position == expected.size();
}

Binding make_binding(const c10::OperatorHandle& handle, const ops::Op& op) {
  Binding binding(handle);
  binding.op = &op;
  const c10::FunctionSchema& schema = handle.schema();
  const bool own_schema =
      op.name == schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  std::vector<int> written;
  const auto& arguments = schema.arguments();
  for (int i = 0; i < static_cast<int>(arguments.size()); ++i) {
    Argument argument;
    argument.kind = kind_of(arguments[i]);
    if (contains(op.traits.runtime, i)) {
      argument.kind = argument.kind == ArgKind::kIntegers ? ArgKind::kScalars : ArgKind::kScalar;
    }
    argument.structural = contains(op.traits.structural, i);
    argument.special = argument.kind == ArgKind::kScalar && !op.traits.special.empty();
    argument.is_out = arguments[i].is_out();
    binding.arguments.push_back(argument);
    // What the op writes beside its results comes after them in every form.
    if (is_written(arguments[i]) && (own_schema || !contains(op.traits.writes, i))) written.push_back(i);
    if (argument.kind == ArgKind::kTensorList && is_list_of_optionals(arguments[i]))
      binding.expands_masks = true;
  }
  const auto outs =
      std::count_if(arguments.begin(), arguments.end(), [](const auto& a) { return a.is_out(); });
  if (!own_schema) binding.functional = own_operator(op);
  binding.op_arguments = static_cast<int>(own_schema ? arguments.size() : arguments.size() - outs);
  size_t next_written = 0;
  for (const c10::Argument& result : schema.returns()) {
    const bool aliases = result.alias_info() != nullptr && next_written < written.size();
    binding.returns.push_back(aliases ? written[next_written++] : -1);
  }
  binding.is_foreach = schema.name().starts_with("aten::_foreach_");
  binding.returns_list =
      schema.returns().size() == 1 && schema.returns()[0].type()->kind() == TypeKind::ListType;
  binding.is_gradient = op.name.ends_with("_backward") && written.empty() && !binding.returns_list &&
                        !arguments.empty() && arguments[0].name().starts_with("grad");
  if (own_schema && !op.traits.writes.empty()) {
    binding.writes_after = op.traits.writes;
  } else {
    binding.writes_before = written;
    binding.writes_after = op.traits.writes;
  }
  binding.identity.append(schema.name());
  binding.identity.append(schema.overload_name());
  binding.has_meta = op.traits.meta_results != 0 &&
                     (handle.hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
                      handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd));
  return binding;
}

}  // namespace torch_tpu
