// Balancing (LAPACK's gebal) and the reduction to Hessenberg form (gehd2).
#include "ops/linalg_eigen.h"

namespace torch_tpu::ops::linalg {

using namespace hlo;

Value element(const Value& x, const Value& i, const Value& j) {
  return reshape(dynamic_slice(x, {i, j}, Dims{1, 1}), Dims{});
}

Value entry(const Value& x, const Value& i) { return reshape(dynamic_slice(x, {i}, Dims{1}), Dims{}); }

Value dot(const Value& a, const Value& b) { return dot_general(a, b, {{}, {}, {1}, {0}}, a.dtype()); }

Value masked(const Value& keep, const Value& x) { return select(keep, x, like(x, 0.0)); }

double epsilon(DType dtype) {
  return real_type(dtype) == DType::kF64 ? 2.2204460492503131e-16 : 1.1920929e-07;
}

namespace {

Value any(const Value& mask) { return reduce(mask, Reduction::kOr, Dims{0}); }

// x with columns i and j exchanged, and with `rows` the rows too.
Value exchanged(const Value& x, const Value& i, const Value& j, bool rows) {
  const int64_t n = x.dim(0);
  const Value zero = like(i, 0.0);
  const auto swapped = [&](const Value& y, int64_t dim) {
    const auto at = [&](const Value& k) { return dim == 0 ? Values{k, zero} : Values{zero, k}; };
    const Dims sizes = dim == 0 ? Dims{1, n} : Dims{n, 1};
    const Value at_i = dynamic_slice(y, at(i), sizes);
    const Value at_j = dynamic_slice(y, at(j), sizes);
    return dynamic_update_slice(dynamic_update_slice(y, at_j, at(i)), at_i, at(j));
  };
  const Value columns = swapped(x, 1);
  return rows ? swapped(columns, 0) : columns;
}

// State of balancing: matrix, back, and the window [low, high] that is not isolated yet.
struct Window {
  Value matrix, back, low, high;
  Values state() const { return {matrix, back, low, high}; }
};

// Moves rows (columns) of the window with zeros beside the diagonal to its end (start), until there is none.
Window isolated(const Window& start, bool rows) {
  Builder& builder = *start.matrix.builder;
  const int64_t n = start.matrix.dim(0);
  const Value places = builder.iota({DType::kS32, {n}}, 0);
  const Type square{DType::kS32, {n, n}};
  const Value row = builder.iota(square, 0);
  const Value column = builder.iota(square, 1);
  const auto inside = [&](const Value& i, const Values& x) {
    return compare(Compare::kGe, i, x[2]) & compare(Compare::kLe, i, x[3]);
  };
  const auto candidates = [&](const Values& x) {
    const Value beside = inside(rows ? column : row, x) & compare(Compare::kNe, row, column) &
                         compare(Compare::kNe, x[0], like(x[0], 0.0));
    return inside(places, x) & (!reduce(beside, Reduction::kOr, Dims{rows ? 1 : 0}));
  };
  const Values result = while_loop(
      start.state(),
      [&](const Values& x) -> Values { return {any(candidates(x)) & compare(Compare::kLt, x[2], x[3])}; },
      [&](const Values& x) -> Values {
        const Value outside = like(places, rows ? -1.0 : static_cast<double>(n));
        const Value found =
            reduce(select(candidates(x), places, outside), rows ? Reduction::kMax : Reduction::kMin, Dims{0});
        const Value& end = rows ? x[3] : x[2];
        return {exchanged(x[0], found, end, true), exchanged(x[1], found, end, false),
                rows ? x[2] : x[2] + 1.0, rows ? x[3] - 1.0 : x[3]};
      });
  return {result[0], result[1], result[2], result[3]};
}

// {the power of two that brings the norms of column and row closest, their sum then}.
Values scale_of(const Value& column, const Value& row) {
  // (column, row, factor), with factor * column = column' and row / factor = row'.
  const auto step = [](const Values& x, double by) -> Values { return {x[0] * by, x[1] / by, x[2] * by}; };
  const auto bounded = [](const Values& x) {
    return compare(Compare::kLt, maximum(x[0], x[1]), 1e30) &
           compare(Compare::kGt, minimum(x[0], x[1]), 1e-30);
  };
  const Values grown = while_loop(
      {column, row, like(column, 1.0)},
      [&](const Values& x) -> Values { return {compare(Compare::kLt, x[0], x[1] * 0.5) & bounded(x)}; },
      [&](const Values& x) { return step(x, 2.0); });
  const Values shrunk = while_loop(
      grown,
      [&](const Values& x) -> Values { return {compare(Compare::kGe, x[0] * 0.5, x[1]) & bounded(x)}; },
      [&](const Values& x) { return step(x, 0.5); });
  return {shrunk[2], shrunk[0] + shrunk[1]};
}

// Scales row and column i of the window, and tells whether that was worth it.
Values scaled(const Value& i, const Values& x, const Value& low, const Value& high) {
  const Value& matrix = x[0];
  const int64_t n = matrix.dim(0);
  const DType dtype = matrix.dtype();
  const Value places = matrix.builder->iota({DType::kS32, {n}}, 0);
  const Value inside = compare(Compare::kGe, places, low) & compare(Compare::kLe, places, high);
  const Value zero = like(i, 0.0);
  const auto norm = [&](const Value& line) {
    return sqrt(reduce(masked(inside, squared_modulus(reshape(line, Dims{n}))), Reduction::kSum, Dims{0}));
  };
  const Value column = dynamic_slice(matrix, {zero, i}, Dims{n, 1});
  const Value row = dynamic_slice(matrix, {i, zero}, Dims{1, n});
  const Value column_norm = norm(column);
  const Value row_norm = norm(row);
  const Values scale = scale_of(column_norm, row_norm);
  const Value worth = compare(Compare::kGe, i, low) & compare(Compare::kLe, i, high) &
                      compare(Compare::kGt, minimum(column_norm, row_norm), 0.0) &
                      compare(Compare::kLt, scale[1], (column_norm + row_norm) * 0.95);
  const Value one = like(scale[0], 1.0);
  const Value factor = as_dtype(select(worth, scale[0], one), dtype);
  const Value inverse = as_dtype(select(worth, 1.0 / scale[0], one), dtype);
  const Value rows = dynamic_update_slice(matrix, row * inverse, {i, zero});
  const auto scaled_column = [&](const Value& y) {
    return dynamic_update_slice(y, dynamic_slice(y, {zero, i}, Dims{n, 1}) * factor, {zero, i});
  };
  return {scaled_column(rows), scaled_column(x[1]), x[2] | worth};
}

}  // namespace

Balanced balanced(const Value& a) {
  Builder& builder = *a.builder;
  const int64_t n = a.dim(0);
  const auto number = [&](int64_t i) { return builder.splat(i, {DType::kS32, {}}); };
  const Window window =
      isolated(isolated({a, identity(builder, a.dtype(), n, n), number(0), number(n - 1)}, true), false);
  constexpr double kMostSweeps = 100;
  const Value yes = builder.splat(1.0, {DType::kPred, {}});
  const Values result = while_loop(
      {number(0), yes, window.matrix, window.back, window.low, window.high},
      [&](const Values& x) -> Values { return {x[1] & compare(Compare::kLt, x[0], kMostSweeps)}; },
      [&](const Values& x) -> Values {
        const Values swept = repeat(n, {x[2], x[3], !yes, x[4], x[5]}, [](const Value& i, const Values& y) {
          Values next = scaled(i, y, y[3], y[4]);
          next.insert(next.end(), {y[3], y[4]});
          return next;
        });
        return {x[0] + 1.0, swept[2], swept[0], swept[1], x[4], x[5]};
      });
  return {result[2], result[3]};
}

Decomposed hessenberg(const Value& a) {
  Builder& builder = *a.builder;
  const int64_t n = a.dim(0);
  const DType dtype = a.dtype();
  const Value rows = builder.iota({DType::kS32, {n, 1}}, 0);
  const Values result =
      repeat(n - 2, {a, identity(builder, dtype, n, n)}, [&](const Value& j, const Values& state) -> Values {
        const Value first = j + 1.0;
        const Value zero = like(j, 0.0);
        const Value column = dynamic_slice(state[0], {zero, j}, Dims{n, 1});
        const Value tail = masked(compare(Compare::kGt, rows, first), column);
        const Value alpha = element(column, first, zero);
        const Value rest = reduce(squared_modulus(tail), Reduction::kSum, Dims{0, 1});
        const Value size = abs(alpha);
        const Value tiny = compare(Compare::kEq, size, 0.0);
        const Value phase =
            select(tiny, like(alpha, 1.0), alpha / as_dtype(select(tiny, like(size, 1.0), size), dtype));
        // v = x + phase |x| e; H = I - 2 v v^H / |v|^2. Nothing to do where there are zeros already.
        const Value shift = phase * as_dtype(sqrt(squared_modulus(alpha) + rest), dtype);
        const Value head = broadcast_to(reshape(alpha + shift, Dims{1, 1}), Dims{n, 1});
        const Value v = select(compare(Compare::kEq, rows, first), head, tail);
        const Value norm = reduce(squared_modulus(v), Reduction::kSum, Dims{0, 1});
        const Value none = compare(Compare::kEq, rest, 0.0);
        const Value ratio = select(none, like(norm, 0.0), 2.0 / select(none, like(norm, 1.0), norm));
        const Value vh = conjugate(transposed(v));
        const Value scaled_v = v * as_dtype(ratio, dtype);
        const Value left = state[0] - scaled_v * dot(vh, state[0]);
        const Value scaled_vh = vh * as_dtype(ratio, dtype);
        return {left - dot(left, v) * scaled_vh, state[1] - dot(state[1], v) * scaled_vh};
      });
  const Value below = lower_part(result[0], -2);
  return {result[0] - below, result[1]};
}

}  // namespace torch_tpu::ops::linalg
