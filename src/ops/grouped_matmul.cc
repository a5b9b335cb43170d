// Products of groups of rows with a matrix each, where the device counts the rows: _grouped_mm, as mixtures
// of experts use it.
#include "ops/indexing.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

// The rows are taken in tiles of a fixed height. A tile in which a group ends is taken once for each group in
// it, so there are at most rows / height + groups steps, and a step multiplies one tile.
constexpr int64_t kTileHeight = 128;

enum Plan { kStart, kEnd, kFirstTile, kSteps, kStepsUpTo, kPlanSize };

// Of each group, s32 [groups]: the rows [start, end), the first tile, the steps, and the steps with those
// before.
Values plan(const Value& ends, int64_t height) {
  Builder& builder = *ends.builder;
  const int64_t groups = ends.dim(0);
  const Value starts =
      concatenate({builder.splat(0.0, {DType::kS32, {1}}), slice_dim(ends, 0, 0, groups - 1)}, 0);
  const Value tall = like(ends, static_cast<double>(height));
  const Value first = starts / tall;
  const Value last = (ends + static_cast<double>(height - 1)) / tall;
  const Value steps = select(compare(Compare::kGt, ends, starts), last - first, like(ends, 0.0));
  const Type square{DType::kS32, {groups, groups}};
  const Value before = compare(Compare::kLe, builder.iota(square, 1), builder.iota(square, 0));
  const Value up_to = reduce(select(before, steps, builder.splat(0.0, square)), Reduction::kSum, Dims{1});
  return {starts, ends, first, steps, up_to};
}

struct Step {
  Value group, row;  // s32 []: of the step, and the first row of its tile
  Value in_group;    // pred [height]: which rows of the tile are the group's
};

Step step_of(const Value& i, const Values& plan, int64_t height) {
  const Value group =
      reduce(convert(compare(Compare::kLe, plan[kStepsUpTo], i), DType::kS32), Reduction::kSum, Dims{0});
  const auto of_group = [&](Plan part) {
    return reshape(dynamic_slice(plan[part], {group}, Dims{1}), Dims{});
  };
  const Value within = i - (of_group(kStepsUpTo) - of_group(kSteps));
  const Value row = (of_group(kFirstTile) + within) * static_cast<double>(height);
  const Value rows = i.builder->iota({DType::kS32, {height}}, 0) + row;
  return {group, row,
          compare(Compare::kGe, rows, of_group(kStart)) & compare(Compare::kLt, rows, of_group(kEnd))};
}

// Calls body(step, constants, result) -> result for all steps.
Value for_each_step(const Value& ends, int64_t height, const Values& constants, const Value& result,
                    const std::function<Value(const Step&, const Values&, const Value&)>& body) {
  const Values planned = plan(ends, height);
  const Value zero = ends.builder->splat(0.0, {DType::kS32, {}});
  const int64_t groups = ends.dim(0);
  Values state{zero, reshape(slice_dim(planned[kStepsUpTo], 0, groups - 1, groups), Dims{}), result};
  constexpr size_t kHead = 3;
  state.insert(state.end(), planned.begin(), planned.end());
  state.insert(state.end(), constants.begin(), constants.end());
  const Values end = while_loop(
      state, [](const Values& x) -> Values { return {compare(Compare::kLt, x[0], x[1])}; },
      [&](const Values& x) -> Values {
        const Values inner_plan(x.begin() + kHead, x.begin() + kHead + kPlanSize);
        const Values inner_constants(x.begin() + kHead + kPlanSize, x.end());
        Values next = x;
        next[0] = x[0] + 1.0;
        next[2] = body(step_of(x[0], inner_plan, height), inner_constants, x[2]);
        return next;
      });
  return end[2];
}

// x with `dim` padded by zeros to a multiple of the height.
Value padded(const Value& x, int64_t dim, int64_t height) {
  Dims high(x.rank(), 0);
  high[dim] = (height - x.dim(dim) % height) % height;
  return high[dim] == 0 ? x : pad(x, x.builder->splat(0.0, {x.dtype(), {}}), Dims(x.rank(), 0), high);
}

int64_t height_for(int64_t rows) { return std::max<int64_t>(1, std::min(rows, kTileHeight)); }

// [rows, inner] and [groups, inner, outer] -> [rows, outer]; rows beyond the last group are zero.
Value product_of_rows(const Value& x, const Value& matrices, const Value& ends) {
  const int64_t height = height_for(x.dim(0)), inner = x.dim(1), outer = matrices.dim(2);
  const DType dtype = compute_dtype(x.dtype());
  const Value rows = padded(x, 0, height);
  const Value result = x.builder->splat(0.0, {dtype, {rows.dim(0), outer}});
  const Value all = for_each_step(
      ends, height, {rows, matrices}, result, [&](const Step& step, const Values& in, const Value& result) {
        const Value zero = like(step.row, 0.0);
        const Value tile = dynamic_slice(in[0], {step.row, zero}, Dims{height, inner});
        const Value matrix = reshape(dynamic_slice(in[1], {step.group, zero, zero}, Dims{1, inner, outer}),
                                     Dims{inner, outer});
        const Value before = dynamic_slice(result, {step.row, zero}, Dims{height, outer});
        const Value mine = broadcast_in_dim(step.in_group, Dims{height, outer}, Dims{0});
        const Value product = dot_general(tile, matrix, {{}, {}, {1}, {0}}, dtype);
        return dynamic_update_slice(result, select(mine, product, before), {step.row, zero});
      });
  return slice_dim(all, 0, 0, x.dim(0));
}

// [left, rows] and [rows, right] -> [groups, left, right]: the products of each group's rows.
Value product_over_rows(const Value& x, const Value& y, const Value& ends) {
  const int64_t height = height_for(y.dim(0)), left = x.dim(0), right = y.dim(1);
  const DType dtype = compute_dtype(x.dtype());
  const Value result = x.builder->splat(0.0, {dtype, {ends.dim(0), left, right}});
  return for_each_step(
      ends, height, {padded(x, 1, height), padded(y, 0, height)}, result,
      [&](const Step& step, const Values& in, const Value& result) {
        const Value zero = like(step.row, 0.0);
        const auto masked = [&](const Value& tile, int64_t dim) {
          return select(broadcast_in_dim(step.in_group, tile.dims(), Dims{dim}), tile, like(tile, 0.0));
        };
        const Value a = masked(dynamic_slice(in[0], {zero, step.row}, Dims{left, height}), 1);
        const Value b = masked(dynamic_slice(in[1], {step.row, zero}, Dims{height, right}), 0);
        const Value product = reshape(dot_general(a, b, {{}, {}, {1}, {0}}, dtype), Dims{1, left, right});
        const Values place{step.group, zero, zero};
        return dynamic_update_slice(result, dynamic_slice(result, place, Dims{1, left, right}) + product,
                                    place);
      });
}

void check_operands(const Lowering& op, const Value& a, const Value& b, const Value& ends) {
  const auto both = std::to_string(a.rank()) + "D/" + std::to_string(b.rank()) + "D";
  if (a.rank() < 2 || a.rank() > 3 || b.rank() < 2 || b.rank() > 3)
    op.fail("_grouped_mm: multiplicands must be 2D or 3D but got " + both);
  if (!is_float(a.dtype()) || a.dtype() != b.dtype())
    op.fail("_grouped_mm: expected two tensors of one floating-point type");
  const bool is_ragged = a.rank() == 2 || b.rank() == 2;
  if (is_ragged != (ends.builder != nullptr))
    op.fail("_grouped_mm: offsets are needed where an operand is 2D, and only there; operands are " + both);
  if (is_ragged && (ends.rank() != 1 || ends.dtype() != DType::kS32))
    op.fail("_grouped_mm: offsets must be a 1D tensor of int32");
  if (a.dim(-1) != b.dim(-2)) op.fail("_grouped_mm: contraction dimension of mat_a and mat_b must match");
  const bool agrees = a.rank() == 3 && b.rank() == 3 ? a.dim(0) == b.dim(0)
                      : a.rank() == 3                ? a.dim(0) == ends.dim(0)
                      : b.rank() == 3                ? b.dim(0) == ends.dim(0)
                                                     : true;
  if (!agrees) op.fail("_grouped_mm: operands and offsets have different numbers of groups");
}

}  // namespace

// Offsets are where each group of rows ends; they do not decrease. Of two matrices the groups divide the
// inner dimension; of a stack and a matrix, the columns.
OP("aten::_grouped_mm", .meta_results = 0) {  // whose Meta kernel knows the strides that CUDA wants
  const Value a = op.tensor(0), b = op.tensor(1), given = op.optional_tensor(2);
  check_operands(op, a, b, given);
  if (op.has(3)) op.fail("_grouped_mm: bias is not supported yet");
  const DType dtype = op.dtype(4).value_or(a.dtype());
  if (given.builder == nullptr)
    return {convert(product(a, b, {{0}, {0}, {2}, {1}}, compute_dtype(a.dtype())), dtype)};
  const int64_t rows = b.rank() == 3 ? a.dim(0) : a.rank() == 2 ? b.dim(0) : b.dim(1);
  const Value ends = minimum(maximum(given, like(given, 0.0)), like(given, static_cast<double>(rows)));
  if (b.rank() == 3) return {convert(product_of_rows(a, b, ends), dtype)};
  if (a.rank() == 2) return {convert(product_over_rows(a, b, ends), dtype)};
  const Value columns = product_of_rows(transpose(b, Dims{1, 0}), transpose(a, Dims{0, 2, 1}), ends);
  return {convert(transpose(columns, Dims{1, 0}), dtype)};
}

}  // namespace torch_tpu::ops
