// Eigenvalues and eigenvectors of general matrices: Hessenberg form, then the complex QR algorithm
// with Wilkinson shifts (Golub and Van Loan, Matrix Computations, 7.5), one matrix after the other.
#include "ops/linalg.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace linalg {

using namespace hlo;

namespace {

Value integer(Builder& builder, int64_t number) { return builder.splat(number, {DType::kS32, {}}); }

Value element(const Value& x, const Value& i, const Value& j) {
  return reshape(dynamic_slice(x, {i, j}, Dims{1, 1}), Dims{});
}

Value entry(const Value& x, const Value& i) { return reshape(dynamic_slice(x, {i}, Dims{1}), Dims{}); }

Value dot(const Value& a, const Value& b) { return dot_general(a, b, {{}, {}, {1}, {0}}, a.dtype()); }

Value masked(const Value& keep, const Value& x) { return select(keep, x, like(x, 0.0)); }

Value scaled_by(const Value& x, const Value& real_factor) {
  return complex(real(x) * real_factor, imag(x) * real_factor);
}

// H = Q^H A Q with zeros below the first subdiagonal, by reflectors. Returns {H, Q}.
Values hessenberg(const Value& a) {
  Builder& builder = *a.builder;
  const int64_t n = a.dim(0);
  const Value rows = builder.iota({DType::kS32, {n, 1}}, 0);
  return repeat(
      n - 2, {a, identity(builder, a.dtype(), n, n)}, [&](const Value& j, const Values& state) -> Values {
        const Value first = j + 1.0;
        const Value zero = like(j, 0.0);
        const Value column =
            masked(compare(Compare::kGe, rows, first), dynamic_slice(state[0], {zero, j}, Dims{n, 1}));
        const Value alpha = element(column, first, zero);
        const Value length = sqrt(reduce(squared_modulus(column), Reduction::kSum, Dims{0, 1}));
        const Value size = abs(alpha);
        const Value tiny = compare(Compare::kEq, size, 0.0);
        const Value phase =
            select(tiny, like(alpha, 1.0), scaled_by(alpha, 1.0 / select(tiny, like(size, 1.0), size)));
        // v = x + phase |x| e; H = I - 2 v v^H / |v|^2.
        const Value shift = scaled_by(phase, length);
        const Value v = column + masked(compare(Compare::kEq, rows, first), broadcast_to(shift, Dims{n, 1}));
        const Value norm = reduce(squared_modulus(v), Reduction::kSum, Dims{0, 1});
        const Value none = compare(Compare::kEq, norm, 0.0);
        const Value factor = select(none, like(norm, 0.0), 2.0 / select(none, like(norm, 1.0), norm));
        const Value vh = conjugate(transposed(v));
        const Value left = state[0] - scaled_by(v, factor) * dot(vh, state[0]);
        const Value both = left - dot(left, v) * scaled_by(vh, factor);
        return {both, state[1] - dot(state[1], v) * scaled_by(vh, factor)};
      });
}

// The eigenvalue of the trailing 2x2 block at `hi` that is closer to its last entry.
Value wilkinson_shift(const Value& h, const Value& hi) {
  const Value before = hi - 1.0;
  const Value a = element(h, before, before);
  const Value d = element(h, hi, hi);
  const Value bc = element(h, before, hi) * element(h, hi, before);
  const Value half = scaled_by(a - d, like(real(a), 0.5));
  const Value root = sqrt(half * half + bc);
  const Value plus = half + root;
  const Value minus = half - root;
  const Value larger = select(compare(Compare::kGe, abs(plus), abs(minus)), plus, minus);
  const Value zero = compare(Compare::kEq, abs(larger), 0.0);
  return d - select(zero, like(d, 0.0), bc / select(zero, like(d, 1.0), larger));
}

// One explicitly shifted QR step on rows lo .. hi: rotations from the left, then from the right.
Values qr_step(const Value& h, const Value& q, const Value& lo, const Value& hi, const Value& shift) {
  Builder& builder = *h.builder;
  const int64_t n = h.dim(0);
  const Value shifts = identity(builder, h.dtype(), n, n) * shift;
  const Value zero = like(lo, 0.0);
  const Value no_rotations = builder.splat(0.0, {h.dtype(), {n, 2, 2}});
  const auto below_hi = [](const Values& x) -> Values { return {compare(Compare::kLt, x[0], x[1])}; };
  const Values reduced =
      while_loop({lo, hi, h - shifts, no_rotations}, below_hi, [&](const Values& x) -> Values {
        const Value& k = x[0];
        const Value a = element(x[2], k, k);
        const Value b = element(x[2], k + 1.0, k);
        const Value length = sqrt(squared_modulus(a) + squared_modulus(b));
        const Value none = compare(Compare::kEq, length, 0.0);
        const Value inverse = 1.0 / select(none, like(length, 1.0), length);
        const Value c = select(none, like(a, 1.0), scaled_by(a, inverse));
        const Value s = select(none, like(a, 0.0), scaled_by(b, inverse));
        const auto row = [](const Value& left, const Value& right) {
          return concatenate({reshape(left, Dims{1, 1}), reshape(right, Dims{1, 1})}, 1);
        };
        const Value rotation = concatenate({row(conjugate(c), conjugate(s)), row(-s, c)}, 0);
        const Value rows = dot(rotation, dynamic_slice(x[2], {k, zero}, Dims{2, n}));
        return {k + 1.0, x[1], dynamic_update_slice(x[2], rows, {k, zero}),
                dynamic_update_slice(x[3], reshape(rotation, Dims{1, 2, 2}), {k, zero, zero})};
      });
  const Values product =
      while_loop({lo, hi, reduced[2], q, reduced[3]}, below_hi, [&](const Values& x) -> Values {
        const Value& k = x[0];
        const Value rotation = reshape(dynamic_slice(x[4], {k, zero, zero}, Dims{1, 2, 2}), Dims{2, 2});
        const Value inverse = conjugate(transposed(rotation));
        const auto turned = [&](const Value& matrix) {
          const Value columns = dot(dynamic_slice(matrix, {zero, k}, Dims{n, 2}), inverse);
          return dynamic_update_slice(matrix, columns, {zero, k});
        };
        return {k + 1.0, x[1], turned(x[2]), turned(x[3]), x[4]};
      });
  return {product[2] + shifts, product[3]};
}

// Upper triangular T and unitary Q with A = Q T Q^H.
Values schur(const Value& a) {
  Builder& builder = *a.builder;
  const int64_t n = a.dim(0);
  if (n == 1) return {a, identity(builder, a.dtype(), 1, 1)};
  const Values start = hessenberg(a);
  const double eps = real_type(a.dtype()) == DType::kF64 ? 2.2204460492503131e-16 : 1.1920929e-07;
  const Value places = builder.iota({DType::kS32, {n}}, 0);
  const Values state{integer(builder, n - 1), integer(builder, 0), start[0], start[1]};
  const Values result = while_loop(
      state,
      [&](const Values& x) -> Values {
        return {compare(Compare::kGt, x[0], 0.0) & compare(Compare::kLt, x[1], static_cast<double>(40 * n))};
      },
      [&](const Values& x) -> Values {
        const Value &hi = x[0], &turn = x[1], &h = x[2], &q = x[3];
        const Value sizes = abs(diagonal(h));
        // |h[i, i - 1]| against its neighbours on the diagonal, for i >= 1.
        const Value below = abs(diagonal(
            pad(slice_dim(h, 0, 1, n), builder.splat(0.0, {h.dtype(), {}}), Dims{0, 0}, Dims{1, 0})));
        const Value under =
            concatenate({builder.splat(0.0, {below.dtype(), {1}}), slice_dim(below, 0, 0, n - 1)}, 0);
        const Value previous =
            concatenate({builder.splat(0.0, {sizes.dtype(), {1}}), slice_dim(sizes, 0, 0, n - 1)}, 0);
        const Value small =
            compare(Compare::kLe, under, (sizes + previous) * eps) & compare(Compare::kLe, places, hi);
        const Value lo = reduce(select(small, places, like(places, 0.0)), Reduction::kMax, Dims{0});
        const Value done = compare(Compare::kEq, lo, hi);
        const Value exceptional = compare(Compare::kEq, remainder(turn, like(turn, 11.0)), 10.0);
        const Value odd_shift = complex(entry(sizes, hi) + entry(under, hi), like(entry(sizes, hi), 0.0));
        const Value shift = select(exceptional, odd_shift, wilkinson_shift(h, hi));
        // Where the block is a single entry the step has no rotations and changes nothing.
        const Values stepped = qr_step(h, q, lo, hi, shift);
        return {select(done, hi - 1.0, hi), turn + 1.0, select(done, h, stepped[0]), stepped[1]};
      });
  return {result[2], result[3]};
}

// Columns: unit eigenvectors of the upper triangular matrix, by back substitution for all at once.
Value triangular_vectors(const Value& t) {
  Builder& builder = *t.builder;
  const int64_t n = t.dim(0);
  const double eps = real_type(t.dtype()) == DType::kF64 ? 2.2204460492503131e-16 : 1.1920929e-07;
  const Value values = diagonal(t);
  const Value largest = reduce(abs(upper_part(t)), Reduction::kMax, Dims{0, 1});
  const Value smallest = maximum(largest * eps, like(largest, 1e-37));
  const Value columns = builder.iota({DType::kS32, {1, n}}, 1);
  const Values result =
      repeat(n, {builder.splat(0.0, t.type)}, [&](const Value& step, const Values& state) -> Values {
        const Value j = static_cast<double>(n - 1) - step;
        const Value zero = like(j, 0.0);
        const Value row = masked(compare(Compare::kGt, columns, j), dynamic_slice(t, {j, zero}, Dims{1, n}));
        const Value gap = element(t, j, j) - reshape(values, Dims{1, n});
        const Value close = compare(Compare::kLt, abs(gap), smallest);
        const Value safe = select(close, as_dtype(broadcast_to(smallest, Dims{1, n}), t.dtype()), gap);
        const Value solved = -dot(row, state[0]) / safe;
        const Value one = select(compare(Compare::kEq, columns, j), like(solved, 1.0), like(solved, 0.0));
        const Value next = select(compare(Compare::kGt, columns, j), solved, one);
        return {dynamic_update_slice(state[0], next, {j, zero})};
      });
  return result[0];
}

// Unit length and, as LAPACK's geev, a real largest component.
Value normalized(const Value& vectors) {
  const Value sizes = squared_modulus(vectors);
  const Value length = sqrt(reduce_keep(sizes, Reduction::kSum, Dims{0}));
  const Value largest = reduce_keep(sizes, Reduction::kMax, Dims{0});
  const Value rows = vectors.builder->iota({DType::kS32, vectors.dims()}, 0);
  const Value first = reduce_keep(select(compare(Compare::kEq, sizes, largest), rows, like(rows, 1e9)),
                                  Reduction::kMin, Dims{0});
  const Value pivot =
      reduce_keep(masked(compare(Compare::kEq, rows, first), vectors), Reduction::kSum, Dims{0});
  const Value phase = complex(real(pivot) / abs(pivot), -imag(pivot) / abs(pivot));
  return scaled_by(vectors * phase, 1.0 / length);
}

}  // namespace

// {eigenvalues [batch, n], eigenvectors [batch, n, n]} of a complex stack.
Values eigen(const Value& a, bool vectors) {
  Builder& builder = *a.builder;
  const int64_t batch = a.dim(0);
  const int64_t n = a.dim(1);
  const Values none{builder.splat(0.0, {a.dtype(), {batch, n}}), builder.splat(0.0, a.type)};
  if (a.type.elements() == 0) return none;
  return repeat(batch, none, [&](const Value& i, const Values& state) -> Values {
    const Value zero = like(i, 0.0);
    const Value matrix = reshape(dynamic_slice(a, {i, zero, zero}, Dims{1, n, n}), Dims{n, n});
    const Values form = schur(matrix);
    const Value values = reshape(diagonal(form[0]), Dims{1, n});
    Values next{dynamic_update_slice(state[0], values, {i, zero}), state[1]};
    if (vectors) {
      const Value basis = normalized(dot(form[1], triangular_vectors(form[0])));
      next[1] = dynamic_update_slice(state[1], reshape(basis, Dims{1, n, n}), {i, zero, zero});
    }
    return next;
  });
}

}  // namespace linalg

namespace {

hlo::Values eigen_of(Lowering& op, bool vectors) {
  const Value a = op.tensor(0);
  const Dims batch = linalg::batch_dims(a);
  const Value matrix = hlo::convert(linalg::stacked(a), hlo::complex_type(a.dtype()));
  const Values result = linalg::eigen(matrix, vectors);
  Values outputs{linalg::unstacked(result[0], batch)};
  if (vectors) outputs.push_back(linalg::unstacked(result[1], batch));
  return outputs;
}

}  // namespace

OP("aten::linalg_eig") { return eigen_of(op, true); }
OP("aten::_linalg_eigvals") { return eigen_of(op, false); }

}  // namespace torch_tpu::ops
