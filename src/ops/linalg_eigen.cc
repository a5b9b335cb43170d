// Eigenvalues and eigenvectors of general matrices, one matrix after the other.
#include "ops/linalg_eigen.h"

#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace linalg {

using namespace hlo;

namespace {

// Columns: eigenvectors of the upper triangular matrix, by back substitution for all at once; as LAPACK's
// trevc with a gap of at least the rounding error between eigenvalues.
Value triangular_vectors(const Value& t) {
  Builder& builder = *t.builder;
  const int64_t n = t.dim(0);
  const Value values = reshape(diagonal(t), Dims{1, n});
  const Value least = maximum(abs(values) * epsilon(t.dtype()), like(real(values), 1e-30));
  const Value columns = builder.iota({DType::kS32, {1, n}}, 1);
  const Values result =
      repeat(n, {builder.splat(0.0, t.type)}, [&](const Value& step, const Values& state) -> Values {
        const Value j = static_cast<double>(n - 1) - step;
        const Value zero = like(j, 0.0);
        const Value row = masked(compare(Compare::kGt, columns, j), dynamic_slice(t, {j, zero}, Dims{1, n}));
        const Value gap = element(t, j, j) - values;
        const Value safe = select(compare(Compare::kLt, abs(gap), least), as_dtype(least, t.dtype()), gap);
        const Value solved = -dot(row, state[0]) / safe;
        const Value one = select(compare(Compare::kEq, columns, j), like(solved, 1.0), like(solved, 0.0));
        const Value next = select(compare(Compare::kGt, columns, j), solved, one);
        // Close eigenvalues would overflow the column.
        const Value scale = as_dtype(1.0 / maximum(abs(next), like(real(next), 1.0)), t.dtype());
        return {dynamic_update_slice(state[0] * scale, next * scale, {j, zero})};
      });
  return result[0];
}

// Unit length and, as LAPACK's geev, a real largest component. Real eigenvalues of a real matrix keep their
// signs.
Value normalized(const Value& given, const Value& values, bool is_real) {
  const DType dtype = given.dtype();
  const Value most = reduce_keep(abs(given), Reduction::kMax, Dims{0});
  const Value vectors = given / as_dtype(most, dtype);
  const Value sizes = squared_modulus(vectors);
  const Value length = sqrt(reduce_keep(sizes, Reduction::kSum, Dims{0}));
  const Value largest = reduce_keep(sizes, Reduction::kMax, Dims{0});
  const Value rows = vectors.builder->iota({DType::kS32, vectors.dims()}, 0);
  const Value first = reduce_keep(select(compare(Compare::kEq, sizes, largest), rows, like(rows, 1e9)),
                                  Reduction::kMin, Dims{0});
  const Value is_pivot = compare(Compare::kEq, rows, first);
  const Value pivot = reduce_keep(masked(is_pivot, vectors), Reduction::kSum, Dims{0});
  const Value size = abs(pivot);
  // lartg, which makes it real for a real matrix, keeps the sign of a real part that is larger than the
  // imaginary one.
  const Value keeps =
      compare(Compare::kLt, real(pivot), 0.0) & compare(Compare::kGt, abs(real(pivot)), abs(imag(pivot)));
  const Value signed_size = is_real ? select(keeps, -size, size) : size;
  const Value turned = vectors * (conjugate(pivot) / as_dtype(signed_size, dtype));
  const Value unit = turned / as_dtype(length, dtype);
  const Value exact = select(is_pivot, as_dtype(real(unit), dtype), unit);
  if (!is_real) return exact;
  const auto where = [&](Compare direction) {
    return broadcast_to(compare(direction, imag(values), 0.0), vectors.dims());
  };
  // The second of a pair is the conjugate of the first.
  const Value none = vectors.builder->splat(0.0, {dtype, {}});
  const Value before = slice_dim(pad(exact, none, Dims{0, 1}, Dims{0, 0}), 1, 0, vectors.dim(1));
  const Value paired = select(where(Compare::kLt), conjugate(before), exact);
  return select(where(Compare::kEq), as_dtype(real(vectors) / length, dtype), paired);
}

}  // namespace

// {eigenvalues [batch, n], eigenvectors [batch, n, n]} of a stack, complex.
Values eigen(const Value& a, bool vectors) {
  Builder& builder = *a.builder;
  const int64_t batch = a.dim(0);
  const int64_t n = a.dim(1);
  const DType dtype = complex_type(a.dtype());
  const Values none{builder.splat(0.0, {dtype, {batch, n}}), builder.splat(0.0, {dtype, a.dims()})};
  if (a.type.elements() == 0) return none;
  return repeat(batch, none, [&](const Value& i, const Values& state) -> Values {
    const Value zero = like(i, 0.0);
    const Balanced start = balanced(reshape(dynamic_slice(a, {i, zero, zero}, Dims{1, n, n}), Dims{n, n}));
    const Decomposed form = schur(start.matrix);
    const Value values = reshape(diagonal(form.form), Dims{1, n});
    Values next{dynamic_update_slice(state[0], values, {i, zero}), state[1]};
    if (vectors) {
      const Value basis = dot(convert(start.back, dtype), dot(form.q, triangular_vectors(form.form)));
      const Value unit = normalized(basis, values, !is_complex(a.dtype()));
      next[1] = dynamic_update_slice(state[1], reshape(unit, Dims{1, n, n}), {i, zero, zero});
    }
    return next;
  });
}

}  // namespace linalg

namespace {

hlo::Values eigen_of(Lowering& op, bool vectors) {
  const Value a = op.tensor(0);
  op.check(!hlo::is_finite(is_complex(a.dtype()) ? hlo::abs(a) : a), Code::kInvalidArgument,
           std::string("torch.linalg.eig") + (vectors ? "" : "vals") +
               ": input tensor should not contain infs or NaNs.");
  const Dims batch = linalg::batch_dims(a);
  const Values result = linalg::eigen(linalg::stacked(a), vectors);
  Values outputs{linalg::unstacked(result[0], batch)};
  if (vectors) outputs.push_back(linalg::unstacked(result[1], batch));
  return outputs;
}

}  // namespace

OP("aten::linalg_eig") { return eigen_of(op, true); }
OP("aten::_linalg_eigvals") { return eigen_of(op, false); }

}  // namespace torch_tpu::ops
