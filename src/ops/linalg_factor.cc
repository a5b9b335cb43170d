// The factorisations: Cholesky, LU with partial pivoting, Householder QR. Column by column, as the
// unblocked LAPACK routines named at each.
#include "ops/linalg.h"
#include "ops/promotion.h"

namespace torch_tpu::ops::linalg {

using namespace hlo;

// potf2, left-looking.
Cholesky cholesky(const Value& a) {
  Builder& builder = *a.builder;
  const int64_t batch = a.dim(0);
  const int64_t n = a.dim(1);
  const Value zeros = builder.splat(0.0, a.type);
  const Value info = builder.splat(int64_t{0}, {DType::kS32, {batch}});
  if (a.type.elements() == 0) return {zeros, info};
  const Value rows = builder.iota({DType::kS32, {batch, n, 1}}, 1);
  const Values result = repeat(n, {a, zeros, info}, [&](const Value& j, const Values& state) -> Values {
    const Value row = conjugate(row_of(state[1], j));
    const Value column = column_of(state[0], j) - dot_general(state[1], row, {{0}, {0}, {2}, {2}}, a.dtype());
    const Value pivot = real(row_of(column, j));  // [batch, 1, 1]
    const Value bad = reshape(!compare(Compare::kGt, pivot, 0.0), Dims{batch});
    const Value fresh = bad & compare(Compare::kEq, state[2], 0.0);
    const Value scaled = column / broadcast_to(as_dtype(sqrt(pivot), a.dtype()), column.dims());
    const Value kept = select(compare(Compare::kGe, rows, j), scaled, like(scaled, 0.0));
    return {state[0], with_column(state[1], kept, j), select(fresh, j + 1.0, state[2])};
  });
  return {result[1], result[2]};
}

namespace {

// The element of x[batch, rows, ...] at row p[batch, 1, 1].
Value selected_row(const Value& x, const Value& rows, const Value& p) {
  const Value here = compare(Compare::kEq, rows, broadcast_to(p, rows.dims()));
  return reduce_keep(select(broadcast_to(here, x.dims()), x, like(x, 0.0)), Reduction::kSum, Dims{1});
}

}  // namespace

// getf2: the row swap and the rank-one update of a step are one pass over the matrix.
Lu lu_factor(const Value& a, bool pivot) {
  Builder& builder = *a.builder;
  const int64_t batch = a.dim(0);
  const int64_t m = a.dim(1);
  const int64_t n = a.dim(2);
  const int64_t k = std::min(m, n);
  const Value info = builder.splat(int64_t{0}, {DType::kS32, {batch}});
  const Value no_pivots = builder.splat(int64_t{0}, {DType::kS32, {batch, k}});
  if (a.type.elements() == 0) return {a, no_pivots, info};
  const Value rows = builder.iota({DType::kS32, {batch, m, 1}}, 1);
  const Value columns = builder.iota({DType::kS32, {batch, 1, n}}, 2);
  const Values result = repeat(k, {a, no_pivots, info}, [&](const Value& j, const Values& state) -> Values {
    const Value& matrix = state[0];
    Value p = broadcast_to(j, Dims{batch, 1, 1});
    if (pivot) {
      const Value size = one_norm(column_of(matrix, j));
      const Value candidate = select(compare(Compare::kGe, rows, j), size, like(size, -1.0));
      const Value largest = reduce_keep(candidate, Reduction::kMax, Dims{1});
      const Value at = compare(Compare::kEq, candidate, largest) | (is_nan(candidate) & is_nan(largest));
      p = reduce_keep(select(at, rows, like(rows, static_cast<double>(m))), Reduction::kMin, Dims{1});
    }
    const Value row_j = row_of(matrix, j);
    const Value row_p = pivot ? selected_row(matrix, rows, p) : row_j;
    const Value is_j = broadcast_to(compare(Compare::kEq, rows, j), matrix.dims());
    const Value is_p = broadcast_to(compare(Compare::kEq, rows, broadcast_to(p, rows.dims())), matrix.dims());
    const Value swapped = select(is_j, broadcast_to(row_p, matrix.dims()),
                                 select(is_p, broadcast_to(row_j, matrix.dims()), matrix));
    const Value head = column_of(row_p, j);  // [batch, 1, 1]
    const Value singular = compare(Compare::kEq, head, 0.0);
    const Value column = column_of(swapped, j);
    const Value safe = select(singular, like(head, 1.0), head);
    const Value below = compare(Compare::kGt, rows, j);
    const Value factor = select(below, column / broadcast_to(safe, column.dims()), like(column, 0.0));
    const Value right = select(compare(Compare::kGt, columns, j), row_p, like(row_p, 0.0));
    const Value updated = with_column(swapped - factor * right, select(below, factor, column), j);
    const Value pivots = dynamic_update_slice(state[1], reshape(p + 1.0, Dims{batch, 1}), {like(j, 0.0), j});
    const Value fresh = reshape(singular, Dims{batch}) & compare(Compare::kEq, state[2], 0.0);
    return {updated, pivots, select(fresh, j + 1.0, state[2])};
  });
  return {result[0], result[1], result[2]};
}

Value permutation_of(const Value& pivots, int64_t rows) {
  Builder& builder = *pivots.builder;
  const int64_t batch = pivots.dim(0);
  const Value numbers = builder.iota({DType::kS32, {batch, rows}}, 1);
  if (numbers.type.elements() == 0) return numbers;
  const Values result =
      repeat(pivots.dim(1), {numbers, pivots}, [&](const Value& j, const Values& state) -> Values {
        const Value& order = state[0];
        const Value zero = like(j, 0.0);
        const Value p = dynamic_slice(state[1], {zero, j}, Dims{batch, 1}) - 1.0;
        const Value at_j = dynamic_slice(order, {zero, j}, Dims{batch, 1});
        const Value is_p = compare(Compare::kEq, numbers, p);
        const Value at_p = reduce_keep(select(is_p, order, like(order, 0.0)), Reduction::kSum, Dims{1});
        const Value is_j = compare(Compare::kEq, numbers, j);
        return {select(is_j, at_p, select(is_p, at_j, order)), state[1]};
      });
  return result[0];
}

namespace {

// Rows of b[batch, rows, columns] in the order of `indices`[batch, rows].
Value permuted_rows(const Value& b, const Value& indices) {
  const int64_t rows = b.dim(1);
  const Dims count{b.dim(0), rows, 1};
  const Value pairs = concatenate({b.builder->iota({DType::kS32, count}, 0), reshape(indices, count)}, 2);
  return gather(b, pairs, {{2}, {0, 1}, {0, 1}, {1, 1, b.dim(2)}, 2});
}

Value inverse_permutation(const Value& order) {
  const Value positions = order.builder->iota(order.type, 1);
  return sort({order, positions}, 1, false,
              [](const Values& x) -> Values { return {compare(Compare::kLt, x[0], x[1])}; })[1];
}

}  // namespace

Value lu_solve(const Value& lu, const Value& pivots, const Value& b, bool adjoint_of_a) {
  if (b.type.elements() == 0) return b;
  const Value order = permutation_of(pivots, b.dim(1));
  if (!adjoint_of_a) {
    const Value y = triangular_solve(lu, permuted_rows(b, order), true, true, true, "NO_TRANSPOSE");
    return triangular_solve(lu, y, true, false, false, "NO_TRANSPOSE");
  }
  const Value y = triangular_solve(lu, b, true, false, false, "ADJOINT");
  return permuted_rows(triangular_solve(lu, y, true, true, true, "ADJOINT"), inverse_permutation(order));
}

// geqr2 with larfg: H = I - tau v v^H, v[j] = 1, and the diagonal of R is real.
Qr qr_factor(const Value& a) {
  Builder& builder = *a.builder;
  const int64_t batch = a.dim(0);
  const int64_t m = a.dim(1);
  const int64_t n = a.dim(2);
  const int64_t k = std::min(m, n);
  const Value no_tau = builder.splat(0.0, {a.dtype(), {batch, k}});
  if (a.type.elements() == 0) return {a, no_tau};
  const Value rows = builder.iota({DType::kS32, {batch, m, 1}}, 1);
  const Value columns = builder.iota({DType::kS32, {batch, 1, n}}, 2);
  const Values result = repeat(k, {a, no_tau}, [&](const Value& j, const Values& state) -> Values {
    const Value column = column_of(state[0], j);
    const Value below = compare(Compare::kGt, rows, j);
    const Value is_j = compare(Compare::kEq, rows, j);
    const Value alpha = row_of(column, j);
    const Value tail = select(below, column, like(column, 0.0));
    const Value rest = reduce_keep(squared_modulus(tail), Reduction::kSum, Dims{1});
    const Value length = sqrt(squared_modulus(alpha) + rest);
    Value trivial = compare(Compare::kEq, rest, 0.0);
    if (is_complex(a.dtype())) trivial = trivial & compare(Compare::kEq, imag(alpha), 0.0);
    const Value beta = as_dtype(select(compare(Compare::kGe, real(alpha), 0.0), -length, length), a.dtype());
    const Value one = like(alpha, 1.0);
    const Value tau = select(trivial, like(alpha, 0.0), (beta - alpha) / select(trivial, one, beta));
    const Value scale = select(trivial, one, alpha - beta);
    const Value v = select(is_j, like(tail, 1.0), tail / broadcast_to(scale, tail.dims()));
    const Value w = dot_general(conjugate(v), state[0], {{0}, {0}, {1}, {1}}, a.dtype());  // [batch, 1, n]
    const Value right = select(compare(Compare::kGt, columns, j), w, like(w, 0.0));
    const Value updated = state[0] - (v * conjugate(tau)) * right;
    const Value head = select(trivial, alpha, beta);
    const Value stored = select(is_j, broadcast_to(head, column.dims()), select(below, v, column));
    return {with_column(updated, stored, j),
            dynamic_update_slice(state[1], reshape(tau, Dims{batch, 1}), {like(j, 0.0), j})};
  });
  return {result[0], result[1]};
}

Value qr_apply(const Value& reflectors, const Value& tau, Value c, bool left, bool adjoint_of_q) {
  Builder& builder = *c.builder;
  if (c.type.elements() == 0 || tau.type.elements() == 0) return c;
  const int64_t batch = c.dim(0);
  const int64_t m = reflectors.dim(1);
  const int64_t k = tau.dim(1);
  const Value rows = builder.iota({DType::kS32, {batch, m, 1}}, 1);
  const bool ascending = left == adjoint_of_q;
  const Values result =
      repeat(k, {c, reflectors, tau}, [&](const Value& step, const Values& state) -> Values {
        const Value j = ascending ? step : static_cast<double>(k - 1) - step;
        const Value column = column_of(state[1], j);
        const Value tail = select(compare(Compare::kGt, rows, j), column, like(column, 0.0));
        const Value v = select(compare(Compare::kEq, rows, j), like(tail, 1.0), tail);
        Value t = reshape(dynamic_slice(state[2], {like(j, 0.0), j}, Dims{batch, 1}), Dims{batch, 1, 1});
        if (adjoint_of_q) t = conjugate(t);
        if (left) {
          const Value w = dot_general(conjugate(v), state[0], {{0}, {0}, {1}, {1}}, c.dtype());
          return {state[0] - (v * t) * w, state[1], state[2]};
        }
        const Value w = product(state[0], v);  // [batch, rows of c, 1]
        return {state[0] - (w * t) * adjoint(v), state[1], state[2]};
      });
  return result[0];
}

Value qr_basis(const Value& reflectors, const Value& tau, int64_t columns) {
  const Value start = identity(*reflectors.builder, reflectors.dtype(), reflectors.dim(1), columns);
  const Value stack = broadcast_to(start, Dims{reflectors.dim(0), reflectors.dim(1), columns});
  return qr_apply(reflectors, tau, stack, true, false);
}

}  // namespace torch_tpu::ops::linalg
