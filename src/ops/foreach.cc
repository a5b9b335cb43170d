// The operators over lists (_foreach_*): an operator of one tensor applied to each element. A whole list is
// one call, so that an optimizer's step is a handful of calls for any number of parameters.
#include <functional>

#include "ops/op.h"

namespace torch_tpu::ops {
namespace {

/// A tensor or a number (a wrapped rank-0 value), a constant, a dtype, or None.
using Operand = std::variant<std::monostate, Value, double, DType>;
using Operands = std::vector<Operand>;

/// The call of an operator with these operands, and the values that its arguments name.
struct InnerCall {
  Call call;
  Values inputs;
  RunTimeNumbers numbers;

  void add(const Operand& operand) {
    if (const auto* value = std::get_if<Value>(&operand)) {
      if (value->wrapped) {
        call.args.push_back(ScalarArg{static_cast<int>(numbers.scalars.size())});
        call.scalars.push_back({value->dtype(), true});
        numbers.scalars.push_back(*value);
      } else {
        call.args.push_back(TensorArg{static_cast<int>(inputs.size())});
        call.inputs.push_back(value->type);
        inputs.push_back(*value);
      }
    } else if (const auto* number = std::get_if<double>(&operand)) {
      call.args.push_back(*number);
    } else if (const auto* dtype = std::get_if<DType>(&operand)) {
      call.args.push_back(*dtype);
    } else {
      call.args.push_back(std::monostate());
    }
  }
};

/// The first result of the operator `name`; what it checks is checked as the outer operator's.
Value apply(Lowering& op, std::string_view name, const Operands& operands) {
  InnerCall inner;
  inner.call.op = find_op(name);
  if (inner.call.op == nullptr) op.fail(Code::kInternal, std::string(name) + " is not declared");
  inner.call.default_dtype = op.default_dtype();
  for (const Operand& operand : operands) inner.add(operand);
  Lowering lowering(op.builder(), inner.call, inner.inputs, inner.numbers);
  const Value result = inner.call.op->lower(lowering)[0];
  for (size_t i = 0; i < lowering.checks().size(); ++i) {
    const Value& offender = lowering.offenders()[i];
    const Value none = op.builder().splat(kNoOffender, offender.type);
    op.check(compare(hlo::Compare::kNe, offender, none), offender, lowering.checks()[i].code,
             lowering.checks()[i].message);
  }
  return result;
}

/// The results for the elements of the list that is argument `list`; `operands` gives those of element i.
Values each(Lowering& op, std::string_view name, int list,
            const std::function<Operands(const Value& element, size_t i)>& operands) {
  const Values elements = op.tensors(list);
  Values results;
  for (size_t i = 0; i < elements.size(); ++i) results.push_back(apply(op, name, operands(elements[i], i)));
  return results;
}

Values unary(Lowering& op, std::string_view name) {
  return each(op, name, 0, [](const Value& x, size_t) { return Operands{x}; });
}

/// A number argument: the constant where it has one of the op's special values.
Operand number(Lowering& op, int i) {
  if (const auto constant = op.number(i)) return *constant;
  return op.scalar(i);
}

Values with_list(Lowering& op, std::string_view name) {
  const Values others = op.tensors(1);
  return each(op, name, 0, [&](const Value& x, size_t i) { return Operands{x, others[i]}; });
}
Values with_number(Lowering& op, std::string_view name) {
  return each(op, name, 0, [&](const Value& x, size_t) { return Operands{x, number(op, 1)}; });
}
Values with_numbers(Lowering& op, std::string_view name) {
  const Values numbers = op.scalars(1);
  return each(op, name, 0, [&](const Value& x, size_t i) { return Operands{x, numbers[i]}; });
}
Values with_tensor(Lowering& op, std::string_view name) {
  return each(op, name, 0, [&](const Value& x, size_t) { return Operands{x, op.tensor(1)}; });
}

// add and sub, whose third argument is a factor.
Values scaled_list(Lowering& op, std::string_view name) {
  const Values others = op.tensors(1);
  return each(op, name, 0, [&](const Value& x, size_t i) { return Operands{x, others[i], number(op, 2)}; });
}
Values scaled_tensor(Lowering& op, std::string_view name) {
  return each(op, name, 0, [&](const Value& x, size_t) { return Operands{x, op.tensor(1), number(op, 2)}; });
}
Values sum_with_number(Lowering& op, std::string_view name) {
  return each(op, name, 0, [&](const Value& x, size_t) { return Operands{x, op.scalar(1), 1.0}; });
}
Values sum_with_numbers(Lowering& op, std::string_view name) {
  const Values numbers = op.scalars(1);
  return each(op, name, 0, [&](const Value& x, size_t i) { return Operands{x, numbers[i], 1.0}; });
}

// addcmul and addcdiv
Values ternary(Lowering& op, std::string_view name, const std::function<Operand(size_t)>& factor) {
  const Values first = op.tensors(1);
  const Values second = op.tensors(2);
  return each(op, name, 0,
              [&](const Value& x, size_t i) { return Operands{x, first[i], second[i], factor(i)}; });
}

Values lerp(Lowering& op, std::string_view name, const std::function<Value(size_t)>& weight) {
  const Values ends = op.tensors(1);
  return each(op, name, 0, [&](const Value& x, size_t i) { return Operands{x, ends[i], weight(i)}; });
}

}  // namespace

#define FOREACH_UNARY(name) \
  OP("aten::_foreach_" name) { return unary(op, "aten::" name); }

FOREACH_UNARY("abs")
FOREACH_UNARY("acos")
FOREACH_UNARY("asin")
FOREACH_UNARY("atan")
FOREACH_UNARY("ceil")
FOREACH_UNARY("cos")
FOREACH_UNARY("cosh")
FOREACH_UNARY("erf")
FOREACH_UNARY("erfc")
FOREACH_UNARY("exp")
FOREACH_UNARY("expm1")
FOREACH_UNARY("floor")
FOREACH_UNARY("frac")
FOREACH_UNARY("lgamma")
FOREACH_UNARY("log")
FOREACH_UNARY("log10")
FOREACH_UNARY("log1p")
FOREACH_UNARY("log2")
FOREACH_UNARY("max")
FOREACH_UNARY("neg")
FOREACH_UNARY("reciprocal")
FOREACH_UNARY("round")
FOREACH_UNARY("rsqrt")
FOREACH_UNARY("sigmoid")
FOREACH_UNARY("sign")
FOREACH_UNARY("sin")
FOREACH_UNARY("sinh")
FOREACH_UNARY("sqrt")
FOREACH_UNARY("tan")
FOREACH_UNARY("tanh")
FOREACH_UNARY("trunc")

#undef FOREACH_UNARY

OP("aten::_foreach_zero", .fills = true) { return unary(op, "aten::zero"); }

OP("aten::_foreach_copy") {
  const Values sources = op.tensors(1);
  Values results = op.tensors(0);
  for (size_t i = 0; i < results.size(); ++i) {
    results[i] = broadcast_to(hlo::convert(sources[i], results[i].dtype()), results[i].dims());
  }
  return results;
}

OP("aten::_foreach_norm.Scalar", .structural = {1}) {
  const auto dtype = op.dtype(2);
  const Operand result = dtype ? Operand(*dtype) : Operand();
  return each(op, "aten::linalg_vector_norm", 0, [&](const Value& x, size_t) {
    return Operands{x, op.constant(1), std::monostate(), std::monostate(), result};
  });
}

#define FOREACH_SUM(name, element)                                                                   \
  OP("aten::_foreach_" name ".List", .special = {1.0}) { return scaled_list(op, "aten::" element); } \
  OP("aten::_foreach_" name ".Scalar") { return sum_with_number(op, "aten::" element); }             \
  OP("aten::_foreach_" name ".ScalarList") { return sum_with_numbers(op, "aten::" element); }

FOREACH_SUM("add", "add.Tensor")
FOREACH_SUM("sub", "sub.Tensor")
OP("aten::_foreach_add.Tensor", .special = {1.0}) { return scaled_tensor(op, "aten::add.Tensor"); }

#undef FOREACH_SUM

#define FOREACH_BINARY(name, list_element, number_element)                                  \
  OP("aten::_foreach_" name ".List") { return with_list(op, "aten::" list_element); }       \
  OP("aten::_foreach_" name ".Scalar") { return with_number(op, "aten::" number_element); } \
  OP("aten::_foreach_" name ".ScalarList") { return with_numbers(op, "aten::" number_element); }

FOREACH_BINARY("mul", "mul.Tensor", "mul.Tensor")
FOREACH_BINARY("div", "div.Tensor", "div.Tensor")
FOREACH_BINARY("clamp_max", "clamp_max.Tensor", "clamp_max")
FOREACH_BINARY("clamp_min", "clamp_min.Tensor", "clamp_min")
FOREACH_BINARY("maximum", "maximum", "clamp_min")
FOREACH_BINARY("minimum", "minimum", "clamp_max")
OP("aten::_foreach_mul.Tensor") { return with_tensor(op, "aten::mul.Tensor"); }
OP("aten::_foreach_div.Tensor") { return with_tensor(op, "aten::div.Tensor"); }

#undef FOREACH_BINARY

OP("aten::_foreach_pow.List") { return with_list(op, "aten::pow.Tensor_Tensor"); }
OP("aten::_foreach_pow.Scalar", .special = {1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0}) {
  return with_number(op, "aten::pow.Tensor_Scalar");
}
OP("aten::_foreach_pow.ScalarList") { return with_numbers(op, "aten::pow.Tensor_Scalar"); }
OP("aten::_foreach_pow.ScalarAndTensor") {
  return each(op, "aten::pow.Scalar", 1, [&](const Value& x, size_t) { return Operands{op.scalar(0), x}; });
}

OP("aten::_foreach_lerp.List") {
  const Values weights = op.tensors(2);
  return lerp(op, "aten::lerp.Tensor", [&](size_t i) { return weights[i]; });
}
OP("aten::_foreach_lerp.Scalar") {
  return lerp(op, "aten::lerp.Scalar", [&](size_t) { return op.scalar(2); });
}
OP("aten::_foreach_lerp.ScalarList") {
  const Values weights = op.scalars(2);
  return lerp(op, "aten::lerp.Scalar", [&](size_t i) { return weights[i]; });
}

#define FOREACH_TERNARY(name)                                                         \
  OP("aten::_foreach_" name ".Scalar", .special = {1.0}) {                            \
    return ternary(op, "aten::" name, [&](size_t) { return number(op, 3); });         \
  }                                                                                   \
  OP("aten::_foreach_" name ".ScalarList") {                                          \
    const Values factors = op.scalars(3);                                             \
    return ternary(op, "aten::" name, [&](size_t i) { return Operand(factors[i]); }); \
  }

FOREACH_TERNARY("addcmul")
FOREACH_TERNARY("addcdiv")

#undef FOREACH_TERNARY

}  // namespace torch_tpu::ops
