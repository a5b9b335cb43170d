// Factors of symmetric and Hermitian matrices that need not be positive definite: L D L^T with blocks of one
// and two rows in D, the pivoting of Bunch and Kaufman. Numbers and pivots as LAPACK's sytf2 and hetf2 leave
// them for the lower triangle; a step of the loop advances every matrix by its own block.
#include <cmath>

#include "ops/linalg.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace linalg {
namespace {

using namespace hlo;

// Vectors are [batch, n, 1], numbers of a matrix [batch, 1, 1].
struct Steps {
  Builder& builder;
  int64_t batch, n;
  DType dtype;
  bool hermitian;
  Value rows;  // s32 [batch, n, 1]

  Steps(const Value& a, bool hermitian)
      : builder(*a.builder), batch(a.dim(0)), n(a.dim(1)), dtype(a.dtype()), hermitian(hermitian) {
    rows = builder.iota({DType::kS32, {batch, n, 1}}, 1);
  }
  Value conj(const Value& x) const { return hermitian ? conjugate(x) : x; }
  /// The transposed that makes A equal to itself.
  Value mirrored(const Value& x) const { return hermitian ? adjoint(x) : transposed(x); }
  Value is_row(const Value& k) const { return compare(Compare::kEq, rows, k); }
  Value is_column(const Value& k) const { return transposed(is_row(k)); }
  static Value masked(const Value& keep, const Value& x) {
    return select(broadcast_to(keep, x.dims()), x, like(x, 0.0));
  }
  /// Row k of x as [batch, 1, columns], column k as [batch, rows, 1].
  Value row(const Value& x, const Value& k) const {
    return reduce_keep(masked(is_row(k), x), Reduction::kSum, Dims{1});
  }
  Value column(const Value& x, const Value& k) const {
    return reduce_keep(masked(is_column(k), x), Reduction::kSum, Dims{2});
  }
  Value with_rows_swapped(const Value& x, const Value& i, const Value& j) const {
    const Value at_i = broadcast_to(row(x, i), x.dims());
    const Value at_j = broadcast_to(row(x, j), x.dims());
    return select(broadcast_to(is_row(i), x.dims()), at_j,
                  select(broadcast_to(is_row(j), x.dims()), at_i, x));
  }
  Value divided(const Value& a, const Value& b, const Value& where) const {
    return a / select(where, b, like(b, 1.0));
  }
};

struct Pivot {
  Value row;      // what goes to the block's last row
  Value is_pair;  // pred: the block has two rows
  Value is_zero;  // pred: nothing to eliminate
};

// The block at k of the trailing matrix.
Pivot pivot_at(const Steps& steps, const Value& a, const Value& k) {
  const double alpha = (1.0 + std::sqrt(17.0)) / 8.0;
  const auto max_over = [](const Value& x) { return reduce_keep(x, Reduction::kMax, Dims{1}); };
  const auto diagonal_size = [&](const Value& x) { return steps.hermitian ? abs(real(x)) : one_norm(x); };
  const Value below = compare(Compare::kGt, steps.rows, k);
  const Value column = steps.column(a, k);
  const Value head = diagonal_size(steps.row(column, k));
  const Value sizes = select(below, one_norm(column), like(head, -1.0));
  const Value largest = max_over(sizes);
  const Value at = compare(Compare::kEq, sizes, largest) & below;
  const Value last = like(steps.rows, static_cast<double>(steps.n - 1));
  const Value other = reduce_keep(select(at, steps.rows, last), Reduction::kMin, Dims{1});
  const Value column_max = maximum(largest, like(largest, 0.0));
  const Value other_column = steps.column(a, other);
  const Value beside = compare(Compare::kGe, steps.rows, k) & !steps.is_row(other);
  const Value row_max = max_over(Steps::masked(beside, one_norm(other_column)));
  const Value other_head = diagonal_size(steps.row(other_column, other));
  const Value is_zero = compare(Compare::kEq, maximum(head, column_max), 0.0) | is_nan(head);
  const Value threshold = column_max * alpha;
  const Value stays = is_zero | compare(Compare::kGe, head, threshold) |
                      compare(Compare::kGe, head, threshold * (column_max / row_max));
  const Value single = stays | compare(Compare::kGe, other_head, row_max * alpha);
  return {select(stays, k, other), !single, is_zero};
}

struct Block {
  Value first, second;  // the columns of L (the second zero for a single row)
  Value update;         // what the trailing matrix loses
  Value corner;         // the block's entry below the diagonal
};

// Eliminates with the block at k after the exchange of rows.
Block eliminated(const Steps& steps, const Value& a, const Value& k, const Pivot& pivot) {
  const DType dtype = steps.dtype;
  const Value next = k + 1.0;
  const Value c1 = steps.column(a, k);
  const Value c2 = steps.column(a, next);
  const Value d1 = steps.row(c1, k);
  const Value d2 = steps.row(c2, next);
  const Value corner = steps.row(c1, next);
  const Value single = !pivot.is_pair;
  const Value has_pivot = single & !pivot.is_zero;
  const Value scale = Steps::masked(has_pivot, steps.divided(like(d1, 1.0), d1, has_pivot));
  // d: |corner| for Hermitian matrices, whose D is real on its diagonal.
  const Value divisor = steps.hermitian ? as_dtype(abs(corner), dtype) : corner;
  const Value d11 = steps.divided(d2, divisor, pivot.is_pair);
  const Value d22 = steps.divided(d1, divisor, pivot.is_pair);
  const Value t = 1.0 / (d11 * d22 - 1.0);
  const Value factor = steps.divided(t, divisor, pivot.is_pair);
  const Value phase = steps.hermitian ? steps.divided(corner, divisor, pivot.is_pair) : like(corner, 1.0);
  const Value w1 = (c1 * d11 - c2 * phase) * factor;
  const Value w2 = (c2 * d22 - c1 * steps.conj(phase)) * factor;
  const Value last = select(pivot.is_pair, next, k);
  const Value below = compare(Compare::kGt, steps.rows, last);
  const auto where = [&](const Value& keep, const Value& x) {
    return Steps::masked(broadcast_to(keep, steps.rows.dims()) & below, x);
  };
  const Value first = select(broadcast_to(pivot.is_pair, c1.dims()), w1, c1 * scale);
  const Value kept = where(!pivot.is_zero, first);
  const Value second = where(pivot.is_pair, w2);
  const Value update =
      where(!pivot.is_zero, c1) * steps.mirrored(kept) + where(pivot.is_pair, c2) * steps.mirrored(second);
  return {kept, second, update, Steps::masked(pivot.is_pair, corner)};
}

}  // namespace

struct Indefinite {
  Value ld, pivots, info;
};

// Reads the lower triangle only.
Indefinite indefinite_factor(const Value& given, bool hermitian) {
  const Steps steps(given, hermitian);
  Builder& builder = steps.builder;
  const Dims numbers{steps.batch, 1, 1};
  const Value below = lower_part(given, -1);
  const Value eye = identity(builder, DType::kPred, steps.n, steps.n);
  const Value diagonal = Steps::masked(reshape(eye, Dims{1, steps.n, steps.n}), given);
  const Value whole =
      below + steps.mirrored(below) + (hermitian ? as_dtype(real(diagonal), given.dtype()) : diagonal);
  const Value zero = builder.splat(int64_t{0}, {DType::kS32, numbers});
  const Values state{zero, whole, like(given, 0.0), like(steps.rows, 0.0), zero};
  const auto active = [&](const Values& x) {
    return compare(Compare::kLt, x[0], static_cast<double>(steps.n));
  };
  const Values result = while_loop(
      state, [&](const Values& x) -> Values { return {reduce(active(x), Reduction::kOr, Dims{0, 1, 2})}; },
      [&](const Values& x) -> Values {
        const Value& k = x[0];
        const Pivot pivot = pivot_at(steps, x[1], k);
        const Value last = select(pivot.is_pair, k + 1.0, k);
        const Value rows_swapped = steps.with_rows_swapped(x[1], last, pivot.row);
        const Value a = transposed(steps.with_rows_swapped(transposed(rows_swapped), last, pivot.row));
        const Block block = eliminated(steps, a, k, pivot);
        const Value is_k = steps.is_row(k);
        const Value is_last = steps.is_row(last);
        const Value first = select(is_k, steps.column(a, k), block.first) +
                            Steps::masked(is_last & !is_k, broadcast_to(block.corner, steps.rows.dims()));
        const Value second = select(is_last, steps.column(a, last), block.second);
        const Value on_first = broadcast_to(steps.is_column(k) & active(x), a.dims());
        const Value on_second = broadcast_to(steps.is_column(last) & pivot.is_pair & active(x), a.dims());
        const Value ld = select(on_first, broadcast_to(first, a.dims()),
                                select(on_second, broadcast_to(second, a.dims()), x[2]));
        const Value number = pivot.row + 1.0;
        const Value pivots =
            select((is_k | is_last) & active(x),
                   broadcast_to(select(pivot.is_pair, -number, number), steps.rows.dims()), x[3]);
        const Value fresh = pivot.is_zero & active(x) & compare(Compare::kEq, x[4], 0.0);
        return {last + 1.0, a - block.update, ld, pivots, select(fresh, k + 1.0, x[4])};
      });
  return {result[2], reshape(result[3], Dims{steps.batch, steps.n}), reshape(result[4], Dims{steps.batch})};
}

namespace {

// Per row, pred [batch, n, 1]: the first of a block of two. Negative pivots come in pairs.
Value pair_starts(const Steps& steps, const Value& pivots) {
  const Value none = like(compare(Compare::kEq, pivots, 0.0), 0.0);
  return repeat(steps.n, {none, pivots}, [&](const Value& k, const Values& x) -> Values {
    const Value previous = row_of(x[0], maximum(k - 1.0, like(k, 0.0)));
    const Value at_k = compare(Compare::kLt, row_of(x[1], k), 0.0) & !previous;
    const Value zero = like(k, 0.0);
    return {dynamic_update_slice(x[0], at_k, {zero, k, zero}), x[1]};
  })[0];
}

// The solution of D Y = B for the blocks of D.
Value block_solve(const Steps& steps, const Value& ld, const Value& starts, const Value& b) {
  const int64_t n = steps.n;
  const auto moved = [&](const Value& x, int64_t by) {  // y[i] = x[i - by]
    const Value none = steps.builder.splat(0.0, {x.dtype(), {}});
    const Value part = by > 0 ? slice_dim(x, 1, 0, n - 1) : slice_dim(x, 1, 1, n);
    return by > 0 ? pad(part, none, Dims{0, 1, 0}, Dims{0, 0, 0})
                  : pad(part, none, Dims{0, 0, 0}, Dims{0, 1, 0});
  };
  const Dims column{steps.batch, n, 1};
  const Value main = reshape(diagonal(ld), column);
  const Value whole = pad(ld, steps.builder.splat(0.0, {ld.dtype(), {}}), Dims{0, 0, 1}, Dims{0, 0, 0});
  const Value sub = reshape(diagonal(slice_dim(whole, 2, 0, n)), column);  // at i: ld[i, i - 1]
  const Value is_second = moved(starts, 1);
  const Value off_first = select(starts, moved(sub, -1), like(sub, 1.0));
  const Value off_second = select(is_second, sub, like(sub, 1.0));
  // With c below and c' above the diagonal: (ak bk' - bk) / denominator, as LAPACK's sytrs.
  const Value lead = main / steps.conj(off_first);
  const Value trail = moved(main, -1) / off_first;
  const Value denominator = lead * trail - 1.0;
  const Value b_lead = b / steps.conj(off_first);
  const Value b_trail = moved(b, -1) / off_first;
  const Value first = (trail * b_lead - b_trail) / denominator;
  const Value second = moved((lead * b_trail - b_lead) / denominator, 1);
  const Value single = b / select(starts | is_second, like(main, 1.0), main);
  const auto wide = [&](const Value& x) { return broadcast_to(x, b.dims()); };
  return select(wide(starts), first, select(wide(is_second), second, single));
}

}  // namespace

Value indefinite_solve(const Value& ld, const Value& given_pivots, const Value& b, bool hermitian) {
  const Steps steps(ld, hermitian);
  const Value pivots = reshape(given_pivots, Dims{steps.batch, steps.n, 1});
  const Value starts = pair_starts(steps, pivots);
  const Value zero_column = steps.builder.splat(0.0, {DType::kPred, {steps.batch, 1, 1}});
  // At row k: the column of L there, and the rows to exchange.
  const auto at = [&](const Value& k, const Values& x) {
    const Value is_first = row_of(x[2], k);
    const Value previous = row_of(x[2], maximum(k - 1.0, like(k, 0.0)));
    const Value is_second =
        select(broadcast_to(compare(Compare::kGt, k, 0.0), previous.dims()), previous, zero_column);
    const Value here = broadcast_to(k, is_first.dims());
    const Value last = select(is_first, here + 1.0, here);
    const Value pivot = row_of(x[3], k);
    const Value other = select(is_second, here, select(is_first, -pivot, pivot) - 1.0);
    const Value column = Steps::masked(compare(Compare::kGt, steps.rows, last), column_of(x[1], k));
    return Values{column, last, other};
  };
  const Values forward =
      repeat(steps.n, {b, ld, starts, pivots}, [&](const Value& k, const Values& x) -> Values {
        const Values step = at(k, x);
        const Value swapped = steps.with_rows_swapped(x[0], step[1], step[2]);
        return {swapped - step[0] * row_of(swapped, k), x[1], x[2], x[3]};
      });
  const Value middle = block_solve(steps, ld, starts, forward[0]);
  return repeat(steps.n, {middle, ld, starts, pivots}, [&](const Value& turn, const Values& x) -> Values {
    const Value k = static_cast<double>(steps.n - 1) - turn;
    const Values step = at(k, x);
    const Value zero = like(k, 0.0);
    const Value solved = row_of(x[0], k) - product(steps.mirrored(step[0]), x[0]);
    const Value updated = dynamic_update_slice(x[0], solved, {zero, k, zero});
    return {steps.with_rows_swapped(updated, step[1], step[2]), x[1], x[2], x[3]};
  })[0];
}

}  // namespace linalg

using namespace hlo;

OP("aten::linalg_ldl_factor_ex") {
  const Value a = op.tensor(0);
  const Dims batch = linalg::batch_dims(a);
  Dims pivot_dims = batch;
  pivot_dims.push_back(a.dim(-1));
  const bool hermitian = op.flag(1) && is_complex(a.dtype());
  if (a.type.elements() == 0) {
    return {a, op.builder().splat(int64_t{0}, {DType::kS32, pivot_dims}),
            op.builder().splat(int64_t{0}, {DType::kS32, batch})};
  }
  const linalg::Indefinite factor = linalg::indefinite_factor(linalg::widened(linalg::stacked(a)), hermitian);
  return {convert(reshape(factor.ld, a.dims()), a.dtype()), reshape(factor.pivots, pivot_dims),
          reshape(factor.info, batch)};
}

OP("aten::linalg_ldl_solve") {
  const Value given = op.tensor(0);
  const Value right = op.tensor(2);
  const Dims batch = broadcast_dims(op.builder(), linalg::batch_dims(given), linalg::batch_dims(right));
  // Negative pivots are those of blocks of two.
  const Value pivots = hlo::abs(op.tensor(1));
  const char* origin = " Did you properly pass the result of ldl_factor?";
  check_range(op, pivots, 1, INT32_MAX, Code::kInvalidArgument,
              std::string("Pivots given to ldl_solve must all satisfy |pivot| >= 1.") + origin);
  check_range(op, pivots, 0, given.dim(-2) + 1, Code::kInvalidArgument,
              std::string("Pivots given to ldl_solve must all satisfy |pivot| <= LD.size(-2).") + origin);
  const auto stack_of = [&](const Value& x, int64_t trailing) {
    Dims dims = batch;
    for (int64_t i = trailing; i > 0; --i) dims.push_back(x.dim(-i));
    const Value wide = broadcast_to(x, dims);
    Dims merged{element_count(batch)};
    for (int64_t i = trailing; i > 0; --i) merged.push_back(x.dim(-i));
    return reshape(wide, merged);
  };
  Dims result = batch;
  result.push_back(right.dim(-2));
  result.push_back(right.dim(-1));
  const Value b = stack_of(right, 2);
  if (b.type.elements() == 0) return {reshape(b, result)};
  const Value ld = linalg::widened(stack_of(given, 2));
  const bool hermitian = op.flag(3) && is_complex(given.dtype());
  const Value x = linalg::indefinite_solve(ld, stack_of(op.tensor(1), 1), convert(b, ld.dtype()), hermitian);
  return {convert(reshape(x, result), right.dtype())};
}

}  // namespace torch_tpu::ops
