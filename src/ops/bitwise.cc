// Logical and bitwise operators and shifts.
#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

using hlo::convert;

using Function = Value (*)(const Value&, const Value&);

Value conjunction(const Value& a, const Value& b) { return a & b; }
Value disjunction(const Value& a, const Value& b) { return a | b; }
Value exclusive(const Value& a, const Value& b) { return a ^ b; }
Value left_shift(const Value& a, const Value& b) { return hlo::binary("shift_left", a, b); }
Value right_shift(const Value& a, const Value& b) {
  return hlo::binary(hlo::is_unsigned(a.dtype()) ? "shift_right_logical" : "shift_right_arithmetic", a, b);
}

Value bitwise(const Lowering& op, const Value& a, const Value& b, Function function) {
  const auto [x, y] = promote(op, a, b);
  if (hlo::is_inexact(x.dtype())) {
    op.fail(Code::kUnimplemented,
            "bitwise operators and shifts are not implemented for floating-point tensors");
  }
  return function(x, y);
}

Value shifted_in_place(const Lowering& op, const Value& count, Function function) {
  const Value x = op.tensor(0);
  return convert(bitwise(op, x, count, function), x.dtype());
}

Value logical(const Lowering& op, Function function) {
  return function(convert(op.tensor(0), DType::kPred), convert(op.tensor(1), DType::kPred));
}

}  // namespace

#define BITWISE(name, overload, function)                                                        \
  OP("aten::" name ".Tensor") { return {bitwise(op, op.tensor(0), op.tensor(1), function)}; }    \
  OP("aten::" name "." overload) { return {bitwise(op, op.tensor(0), op.scalar(1), function)}; } \
  OP("aten::" name ".Scalar_Tensor") { return {bitwise(op, op.scalar(0), op.tensor(1), function)}; }

BITWISE("bitwise_and", "Scalar", conjunction)
BITWISE("bitwise_or", "Scalar", disjunction)
BITWISE("bitwise_xor", "Scalar", exclusive)
BITWISE("bitwise_left_shift", "Tensor_Scalar", left_shift)
BITWISE("bitwise_right_shift", "Tensor_Scalar", right_shift)

// The Python operators << and >> have schemas of their own.
OP("aten::__lshift__.Tensor") { return {bitwise(op, op.tensor(0), op.tensor(1), left_shift)}; }
OP("aten::__lshift__.Scalar") { return {bitwise(op, op.tensor(0), op.scalar(1), left_shift)}; }
OP("aten::__rshift__.Tensor") { return {bitwise(op, op.tensor(0), op.tensor(1), right_shift)}; }
OP("aten::__rshift__.Scalar") { return {bitwise(op, op.tensor(0), op.scalar(1), right_shift)}; }

// So have <<= and >>=; the result goes back into the left operand.
OP("aten::__ilshift__.Tensor") { return {shifted_in_place(op, op.tensor(1), left_shift)}; }
OP("aten::__ilshift__.Scalar") { return {shifted_in_place(op, op.scalar(1), left_shift)}; }
OP("aten::__irshift__.Tensor") { return {shifted_in_place(op, op.tensor(1), right_shift)}; }
OP("aten::__irshift__.Scalar") { return {shifted_in_place(op, op.scalar(1), right_shift)}; }

OP("aten::bitwise_not") { return {!op.tensor(0)}; }

OP("aten::logical_and") { return {logical(op, conjunction)}; }
OP("aten::logical_or") { return {logical(op, disjunction)}; }
OP("aten::logical_xor") { return {logical(op, exclusive)}; }
OP("aten::logical_not") { return {!convert(op.tensor(0), DType::kPred)}; }

}  // namespace torch_tpu::ops
