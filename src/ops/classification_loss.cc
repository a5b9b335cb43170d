// Losses whose targets are class indices: negative log-likelihood and the margin losses.
#include <limits>

#include "ops/loss.h"
#include "ops/op.h"
#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

Dims all_dims(const Value& x) {
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i) dims.push_back(i);
  return dims;
}

Value sum_all(const Value& x) { return hlo::reduce(x, Reduction::kSum, all_dims(x)); }

/// Elements of the rank-1 `x` at `positions`; out-of-range positions are clamped.
Value take(const Value& x, const Value& positions) {
  Dims expanded = positions.dims();
  expanded.push_back(1);
  const Value indices = hlo::reshape(positions, expanded);
  return hlo::gather(x, indices,
                     {.offset_dims = {},
                      .collapsed_slice_dims = {0},
                      .start_index_map = {0},
                      .slice_sizes = {1},
                      .index_vector_dim = positions.rank()});
}

/// The classes seen as [batch, classes, positions], the targets as [batch, positions]. Segmentation
/// has positions, plain classification has one.
struct Classes {
  Value x;        // computation dtype
  Value target;   // s32
  Value counted;  // not ignored
  int64_t size;   // number of classes
  Dims loss_dims;
};

Classes classes(Lowering& op, int input, int target, int ignore) {
  const Value x = to_compute(op.tensor(input));
  const Value t = op.tensor(target);
  const int64_t channel = x.rank() == 1 ? 0 : 1;
  const int64_t batch = x.rank() == 1 ? 1 : x.dim(0);
  int64_t positions = 1;
  for (int64_t i = channel + 1; i < x.rank(); ++i) positions *= x.dim(i);
  const int64_t size = x.dim(channel);
  Classes c;
  c.x = hlo::reshape(x, Dims{batch, size, positions});
  // Compared in the target's dtype: ignore_index may not fit into 32 bits, nor -100 into uint8.
  const Value wide = hlo::reshape(hlo::convert(t, DType::kS64), Dims{batch, positions});
  c.counted = hlo::compare(Compare::kNe, wide, op.builder().splat(op.integer(ignore), {DType::kS64, {}}));
  c.target = hlo::convert(wide, DType::kS32);
  c.size = size;
  c.loss_dims = t.dims();
  return c;
}

/// Checks that the targets that count are classes.
void check_classes(Lowering& op, const Classes& c) {
  const Value outside = hlo::compare(Compare::kLt, c.target, 0.0) |
                        hlo::compare(Compare::kGe, c.target, static_cast<double>(c.size));
  op.check(outside & c.counted, c.target, Code::kIndexError, "Target {} is out of bounds.");
}

/// weight[target], or ones; zero where the target is ignored. NaN for a target that is no class: where
/// values are not checked, NaN does not go unnoticed.
Value target_weight(const Classes& c, const Value& weight) {
  const Value zero = hlo::like(c.target, 0.0);
  const Value last = hlo::like(c.target, static_cast<double>(c.size - 1));
  const Value valid = hlo::compare(Compare::kGe, c.target, zero) & hlo::compare(Compare::kLe, c.target, last);
  const DType dtype = c.x.dtype();
  Builder& builder = *c.x.builder;
  const Value one =
      weight ? take(hlo::convert(weight, dtype), c.target) : builder.splat(1.0, {dtype, c.target.dims()});
  const Value checked =
      hlo::select(valid, one, builder.splat(std::numeric_limits<double>::quiet_NaN(), {dtype, {}}));
  return hlo::select(c.counted, checked, builder.splat(0.0, {dtype, {}}));
}

/// x[b, target[b, p], p]
Value picked(const Classes& c) {
  const Type type{DType::kS32, c.target.dims()};
  Builder& builder = *c.x.builder;
  Dims expanded = c.target.dims();
  expanded.push_back(1);
  const Value indices =
      hlo::concatenate({hlo::reshape(builder.iota(type, 0), expanded), hlo::reshape(c.target, expanded),
                        hlo::reshape(builder.iota(type, 1), expanded)},
                       2);
  return hlo::gather(c.x, indices,
                     {.offset_dims = {},
                      .collapsed_slice_dims = {0, 1, 2},
                      .start_index_map = {0, 1, 2},
                      .slice_sizes = {1, 1, 1},
                      .index_vector_dim = 2});
}

Values nll_forward(Lowering& op) {
  const DType dtype = op.tensor(0).dtype();
  require_floating(op, op.tensor(0), "nll_loss");
  const Classes c = classes(op, 0, 1, 4);
  check_classes(op, c);
  const int64_t reduction = op.integer(3);
  const Value weight = target_weight(c, op.optional_tensor(2));
  // Zero weights do not meet the value: it may be infinite.
  const Value zero = hlo::like(weight, 0.0);
  const Value loss = hlo::select(c.counted, -weight * picked(c), zero);
  const Value total = sum_all(weight);
  if (reduction == kNone) {
    // torch leaves total_weight zero unless there is but one sample without a batch dimension.
    const bool batched = op.tensor(0).rank() > 1;
    return {hlo::convert(hlo::reshape(loss, c.loss_dims), dtype),
            batched ? op.builder().splat(0.0, {dtype, {}}) : hlo::convert(total, dtype)};
  }
  const Value sum = sum_all(loss);
  return {hlo::convert(reduction == kMean ? sum / total : sum, dtype), hlo::convert(total, dtype)};
}

Values nll_backward(Lowering& op) {
  const Value input = op.tensor(1);
  const Classes c = classes(op, 1, 2, 5);
  const int64_t reduction = op.integer(4);
  Value grad = hlo::convert(op.tensor(0), c.x.dtype());
  if (reduction == kMean) grad = grad / hlo::convert(op.tensor(6), c.x.dtype());
  if (reduction == kNone) grad = hlo::reshape(grad, c.target.dims());
  const Value slope = hlo::select(c.counted, -target_weight(c, op.optional_tensor(3)) * grad,
                                  hlo::like(c.x.builder->splat(0.0, {c.x.dtype(), {}}), 0.0));
  const Value here = hlo::broadcast_in_dim(slope, c.x.dims(), Dims{0, 2});
  const Value target = hlo::broadcast_in_dim(c.target, c.x.dims(), Dims{0, 2});
  const Value hit = hlo::compare(Compare::kEq, op.builder().iota(target.type, 1), target);
  const Value result = hlo::select(hit, here, hlo::like(here, 0.0));
  return {hlo::convert(hlo::reshape(result, input.dims()), input.dtype())};
}

/// A margin loss's input as [batch, classes].
Value as_matrix(const Value& x) { return x.rank() < 2 ? hlo::reshape(x, Dims{1, x.type.elements()}) : x; }

/// The per-sample gradient of a margin loss as [batch, 1].
Value sample_gradient(const Value& grad, int64_t reduction, const Value& x) {
  const int64_t batch = x.dim(0);
  const Value scaled = loss_gradient(hlo::convert(grad, x.dtype()), reduction, batch);
  return scaled.rank() == 0 ? scaled : hlo::reshape(scaled, Dims{batch, 1});
}

struct MultiMargin {
  Value x;
  Value hit;       // [batch, classes]: the target's place
  Value distance;  // margin - x[target] + x, zero at the target
  Value weight;    // [batch, 1]
};

/// Arguments from `first`: self, target, p, margin, weight.
MultiMargin multi_margin(Lowering& op, int first) {
  const Value x = as_matrix(to_compute(op.tensor(first)));
  const Value target = hlo::reshape(hlo::convert(op.tensor(first + 1), DType::kS32), Dims{x.dim(0)});
  const Value column = hlo::broadcast_in_dim(target, x.dims(), Dims{0});
  MultiMargin m;
  m.x = x;
  m.hit = hlo::compare(Compare::kEq, op.builder().iota(column.type, 1), column);
  const Value zero = hlo::like(x, 0.0);
  const Value own = hlo::reduce_keep(hlo::select(m.hit, x, zero), Reduction::kSum, Dims{1});
  const Value margin = op.scalar(first + 3, x.dtype());
  m.distance = hlo::select(m.hit, zero, hlo::maximum(margin - own + x, zero));
  if (const Value weight = op.optional_tensor(first + 4)) {
    m.weight = hlo::reshape(take(hlo::convert(weight, x.dtype()), target), Dims{x.dim(0), 1});
  }
  return m;
}

struct MultiLabel {
  Value x;          // [batch, classes]
  Value one_hot;    // [batch, label, class]: a label before the first -1 names this class
  Value is_target;  // [batch, classes]
  Value distance;   // [batch, label, class]: 1 - x[label] + x where label is one and class is none
};

MultiLabel multi_label(const Value& x, const Value& target) {
  Builder& builder = *x.builder;
  const int64_t batch = x.dim(0);
  const int64_t size = x.dim(1);
  const Value label = hlo::reshape(hlo::convert(target, DType::kS32), Dims{batch, size});
  const Value place = builder.iota(label.type, 1);
  const Value end = hlo::reduce_keep(
      hlo::select(hlo::compare(Compare::kLt, label, 0.0), place, hlo::like(place, static_cast<double>(size))),
      Reduction::kMin, Dims{1});
  const Value valid = hlo::compare(Compare::kLt, place, end);
  const Dims cube{batch, size, size};
  MultiLabel m;
  m.x = x;
  const Value wide_label = hlo::broadcast_in_dim(label, cube, Dims{0, 1});
  const Value wide_valid = hlo::broadcast_in_dim(valid, cube, Dims{0, 1});
  m.one_hot = hlo::compare(Compare::kEq, builder.iota(wide_label.type, 2), wide_label) & wide_valid;
  m.is_target = hlo::reduce(m.one_hot, Reduction::kOr, Dims{1});
  const Value wide_x = hlo::broadcast_in_dim(x, cube, Dims{0, 2});
  const Value zero = hlo::like(wide_x, 0.0);
  const Value own = hlo::reduce_keep(hlo::select(m.one_hot, wide_x, zero), Reduction::kSum, Dims{2});
  const Value counted = wide_valid & !hlo::broadcast_in_dim(m.is_target, cube, Dims{0, 2});
  m.distance = hlo::select(counted, hlo::maximum(1.0 - own + wide_x, zero), zero);
  return m;
}

void require_label_for_each_class(const Lowering& op, const Value& input, const Value& target) {
  const bool is_sample = input.rank() < 2 && target.rank() < 2 && target.type.elements() > 0;
  const bool is_batch = input.rank() == 2 && input.dim(1) > 0;
  if (is_sample ? input.type.elements() == target.type.elements() : is_batch && input.dims() == target.dims())
    return;
  op.fail("inconsistent target size");
}

}  // namespace

OP("aten::nll_loss_forward") { return nll_forward(op); }
OP("aten::nll_loss2d_forward") { return nll_forward(op); }
OP("aten::nll_loss_backward") { return nll_backward(op); }
OP("aten::nll_loss2d_backward") { return nll_backward(op); }

OP("aten::multi_margin_loss", .structural = {2}) {
  const MultiMargin m = multi_margin(op, 0);
  check_range(op, op.tensor(1), 0, m.x.dim(1), Code::kInvalidArgument, "target out of range: {}");
  Value terms = op.constant(2) == 1 ? m.distance : m.distance * m.distance;
  if (m.weight) terms = terms * m.weight;
  const Value loss = hlo::reduce(terms, Reduction::kSum, Dims{1}) / static_cast<double>(m.x.dim(1));
  const DType dtype = op.tensor(0).dtype();
  if (op.integer(5) == kNone) return {hlo::convert(hlo::reshape(loss, op.tensor(1).dims()), dtype)};
  return {reduce_loss(loss, op.integer(5), dtype)};
}

OP("aten::multi_margin_loss_backward", .structural = {3}) {
  const MultiMargin m = multi_margin(op, 1);
  const Value zero = hlo::like(m.x, 0.0);
  Value slope = hlo::select(hlo::compare(Compare::kGt, m.distance, zero), hlo::like(zero, 1.0), zero);
  if (op.constant(3) == 2) slope = m.distance * 2.0;
  if (m.weight) slope = slope * m.weight;
  slope = slope * sample_gradient(op.tensor(0), op.integer(6), m.x) / static_cast<double>(m.x.dim(1));
  const Value own = hlo::reduce_keep(slope, Reduction::kSum, Dims{1});
  const Value result = hlo::select(m.hit, -own, slope);
  return {hlo::convert(hlo::reshape(result, op.tensor(1).dims()), op.tensor(1).dtype())};
}

// ATen's Meta kernel gives the loss of one sample a dimension, and refuses scalars beside vectors of one.
OP("aten::multilabel_margin_loss_forward", .meta_results = 0) {
  const Value input = op.tensor(0);
  require_label_for_each_class(op, input, op.tensor(1));
  const MultiLabel m = multi_label(as_matrix(to_compute(input)), op.tensor(1));
  check_range(op, op.tensor(1), -1, m.x.dim(1), Code::kInvalidArgument,
              "argument #2 'target' is out of range: {}");
  const Value loss = hlo::reduce(m.distance, Reduction::kSum, Dims{1, 2}) / static_cast<double>(m.x.dim(1));
  const Value is_target = hlo::reshape(hlo::convert(m.is_target, input.dtype()), op.tensor(1).dims());
  if (op.integer(2) == kNone && input.rank() < 2) {
    return {hlo::convert(hlo::reshape(loss, Dims{}), input.dtype()), is_target};
  }
  return {reduce_loss(loss, op.integer(2), input.dtype()), is_target};
}

OP("aten::multilabel_margin_loss_backward") {
  const Value input = op.tensor(1);
  const MultiLabel m = multi_label(as_matrix(to_compute(input)), op.tensor(2));
  const Value zero = hlo::like(m.distance, 0.0);
  const Value active = hlo::select(hlo::compare(Compare::kGt, m.distance, zero), hlo::like(zero, 1.0), zero);
  // Each active pair pushes its class up and its label's class down.
  const Value own = hlo::reduce_keep(active, Reduction::kSum, Dims{2});
  const Value slope = hlo::reduce(active, Reduction::kSum, Dims{1}) -
                      hlo::reduce(hlo::select(m.one_hot, own, zero), Reduction::kSum, Dims{1});
  const Value grad = sample_gradient(op.tensor(0), op.integer(3), m.x);
  const Value result = slope * grad / static_cast<double>(m.x.dim(1));
  return {hlo::convert(hlo::reshape(result, input.dims()), input.dtype())};
}

}  // namespace torch_tpu::ops
