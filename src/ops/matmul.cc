// Matrix products: mm, bmm, mv, dot and the forms that add a scaled product to a tensor.
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

// Products of reduced precision are accumulated, scaled and added in f32 and rounded once.
Value product(const Value& a, const Value& b, const DotDims& dims) {
  return hlo::product(a, b, dims, compute_dtype(a.dtype()));
}

Value matrix_product(const Value& a, const Value& b) { return product(a, b, {{}, {}, {1}, {0}}); }
Value batch_product(const Value& a, const Value& b) { return product(a, b, {{0}, {0}, {2}, {1}}); }
Value vector_product(const Value& a, const Value& b) { return product(a, b, {{}, {}, {0}, {0}}); }
Value matrix_vector_product(const Value& a, const Value& b) { return product(a, b, {{}, {}, {1}, {0}}); }

// beta * self + alpha * product in `dtype`; beta == 0 ignores self, NaN included.
Value scaled_sum(Lowering& op, const Value& self, const Value& product, int beta, int alpha, DType dtype) {
  Value result = product;
  if (op.number(alpha) != 1.0) result = result * op.scalar(alpha, result.dtype());
  if (op.number(beta) != 0.0) {
    Value addend = convert(self, result.dtype());
    if (op.number(beta) != 1.0) addend = addend * op.scalar(beta, result.dtype());
    result = broadcast_to(addend, result.dims()) + result;
  }
  return convert(result, dtype);
}

Value sum_of_batches(const Value& a, const Value& b) { return product(a, b, {{}, {}, {0, 2}, {0, 1}}); }

Value conjugate(const Value& x) { return is_complex(x.dtype()) ? complex(real(x), -imag(x)) : x; }

}  // namespace

OP("aten::mm") { return {convert(matrix_product(op.tensor(0), op.tensor(1)), op.tensor(0).dtype())}; }
OP("aten::bmm") { return {convert(batch_product(op.tensor(0), op.tensor(1)), op.tensor(0).dtype())}; }
OP("aten::mv") { return {convert(matrix_vector_product(op.tensor(0), op.tensor(1)), op.tensor(0).dtype())}; }

OP("aten::dot") {
  const Value a = op.tensor(0);
  const Value b = op.tensor(1);
  if (a.rank() != 1 || b.rank() != 1) {
    op.fail("1D tensors expected, but got " + std::to_string(a.rank()) + "D and " + std::to_string(b.rank()) +
            "D tensors");
  }
  return {convert(vector_product(a, b), a.dtype())};
}

OP("aten::vdot") {
  const Value a = op.tensor(0);
  return {convert(vector_product(conjugate(a), op.tensor(1)), a.dtype())};
}

OP("aten::addmm", .special = {0.0, 1.0}) {
  return {
      scaled_sum(op, op.tensor(0), matrix_product(op.tensor(1), op.tensor(2)), 3, 4, op.tensor(1).dtype())};
}

OP("aten::_addmm_activation", .special = {0.0, 1.0}) {
  const DType dtype = op.tensor(1).dtype();
  const Value x =
      scaled_sum(op, op.tensor(0), matrix_product(op.tensor(1), op.tensor(2)), 3, 4, compute_dtype(dtype));
  if (!op.flag(5)) return {convert(select(compare(Compare::kLt, x, 0.0), like(x, 0.0), x), dtype)};
  // The exact gelu, as the CPU kernel: torch asks for tanh only where a vendor library fuses it.
  return {convert(x * 0.5 * (1.0 + erf(x * 0.70710678118654752)), dtype)};
}

OP("aten::baddbmm", .special = {0.0, 1.0}) {
  return {
      scaled_sum(op, op.tensor(0), batch_product(op.tensor(1), op.tensor(2)), 3, 4, op.tensor(1).dtype())};
}

OP("aten::addbmm", .special = {0.0, 1.0}, .resizes_self = true) {
  return {
      scaled_sum(op, op.tensor(0), sum_of_batches(op.tensor(1), op.tensor(2)), 3, 4, op.tensor(1).dtype())};
}

OP("aten::addmv", .special = {0.0, 1.0}) {
  return {scaled_sum(op, op.tensor(0), matrix_vector_product(op.tensor(1), op.tensor(2)), 3, 4,
                     op.tensor(1).dtype())};
}

OP("aten::addr", .special = {0.0, 1.0}) {
  const DType dtype = result_type(op, {op.tensor(0), op.tensor(1), op.tensor(2)});
  const DType compute = compute_dtype(dtype);
  const Value row = convert(op.tensor(2), compute);
  const Value column = reshape(convert(op.tensor(1), compute), Dims{op.tensor(1).dim(0), 1});
  return {scaled_sum(op, op.tensor(0), column * row, 3, 4, dtype)};
}

// The forms with an output type of their own.
OP("aten::mm.dtype") { return {dot_general(op.tensor(0), op.tensor(1), {{}, {}, {1}, {0}}, *op.dtype(2))}; }
OP("aten::bmm.dtype") {
  return {dot_general(op.tensor(0), op.tensor(1), {{0}, {0}, {2}, {1}}, *op.dtype(2))};
}
OP("aten::addmm.dtype", .special = {0.0, 1.0}) {
  return {scaled_sum(op, op.tensor(0), matrix_product(op.tensor(1), op.tensor(2)), 4, 5, *op.dtype(3))};
}
OP("aten::baddbmm.dtype", .special = {0.0, 1.0}) {
  return {scaled_sum(op, op.tensor(0), batch_product(op.tensor(1), op.tensor(2)), 4, 5, *op.dtype(3))};
}

OP("aten::_int_mm") { return {dot_general(op.tensor(0), op.tensor(1), {{}, {}, {1}, {0}}, DType::kS32)}; }

OP("aten::_weight_int8pack_mm") {
  const Value x = op.tensor(0);
  const Value weight = convert(op.tensor(1), x.dtype());
  const Value product = dot_general(x, weight, {{}, {}, {1}, {1}}, compute_dtype(x.dtype()));
  return {convert(product * to_compute(op.tensor(2)), x.dtype())};
}

}  // namespace torch_tpu::ops
