// Maximum pooling over sliding and over random windows, and its inverse.
#include <limits>

#include "ops/pool.h"
#include "ops/promotion.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;
using pool::Geometry;

// The index within the input plane of the window's first tap, padding included, per output position.
Value window_starts(Builder& builder, const Geometry& g, const Dims& input, const Dims& output) {
  const Dims pitch = contiguous_strides(input);
  Value sum;
  for (size_t i = 0; i < g.rank(); ++i) {
    const Value position = builder.iota({DType::kS32, output}, static_cast<int64_t>(i));
    const Value part =
        position * static_cast<double>(g.stride[i] * pitch[i]) - static_cast<double>(g.padding[i] * pitch[i]);
    sum = i == 0 ? part : sum + part;
  }
  return sum;
}

int64_t tap_offset(const Geometry& g, const Dims& tap, const Dims& input) {
  const Dims pitch = contiguous_strides(input);
  int64_t offset = 0;
  for (size_t i = 0; i < g.rank(); ++i) offset += tap[i] * g.dilation[i] * pitch[i];
  return offset;
}

// The offset of the first tap that does not lie in the padding: the answer where all are -inf.
Value first_offset(Builder& builder, const Geometry& g, const Dims& input, const Dims& output) {
  const Dims pitch = contiguous_strides(input);
  const Type type{DType::kS32, output};
  Value sum = builder.splat(int64_t{0}, type);
  for (size_t i = 0; i < g.rank(); ++i) {
    if (g.padding[i] == 0) continue;
    const Value outside = static_cast<double>(g.padding[i]) -
                          builder.iota(type, static_cast<int64_t>(i)) * static_cast<double>(g.stride[i]);
    const double dilation = static_cast<double>(g.dilation[i]);
    const Value skipped = (maximum(outside, like(outside, 0.0)) + (dilation - 1)) / dilation;
    sum = sum + skipped * (dilation * static_cast<double>(pitch[i]));
  }
  return sum;
}

// One compare and two selects a tap, fused into a single vectorised loop.
Values max_pool_by_taps(const Value& x, const Geometry& g, const Dims& output) {
  Builder& builder = *x.builder;
  const Dims input = last_dims(x.dims(), g.rank());
  const Dims dims = with_last_dims(x.dims(), output);
  const Value padded = window_padded(x, g, g.kernel, output, -std::numeric_limits<double>::infinity());
  Value best = builder.lowest({x.dtype(), dims});
  Value offset = broadcast_to(first_offset(builder, g, input, output), dims);
  for (const Dims& tap : window_taps(g.kernel)) {
    const Value value = under_tap(padded, tap, output, g);
    Value wins = compare(Compare::kGt, value, best);
    if (is_float(x.dtype())) wins = wins | is_nan(value);
    best = select(wins, value, best);
    offset = select(wins, builder.splat(tap_offset(g, tap, input), {DType::kS32, {}}), offset);
  }
  return {best, offset + broadcast_to(window_starts(builder, g, input, output), dims)};
}

// For large kernels: a window reduction over pairs.
Values max_pool_by_window(const Value& x, const Geometry& g, const Dims& output) {
  Builder& builder = *x.builder;
  const Dims input = last_dims(x.dims(), g.rank());
  const size_t first = x.dims().size() - g.rank();
  Window window;
  window.size = window.strides = window.window_dilation = Dims(x.dims().size(), 1);
  window.padding_low = window.padding_high = Dims(x.dims().size(), 0);
  for (size_t i = 0; i < g.rank(); ++i) {
    window.size[first + i] = g.kernel[i];
    window.strides[first + i] = g.stride[i];
    window.window_dilation[first + i] = g.dilation[i];
    window.padding_low[first + i] = g.padding[i];
    window.padding_high[first + i] =
        (output[i] - 1) * g.stride[i] + (g.kernel[i] - 1) * g.dilation[i] + 1 - input[i] - g.padding[i];
  }
  // A stride can leave the end of the input unread.
  Dims cut = x.dims();
  for (size_t i = 0; i < g.rank(); ++i) {
    if (window.padding_high[first + i] < 0) cut[first + i] += window.padding_high[first + i];
    window.padding_high[first + i] = std::max<int64_t>(window.padding_high[first + i], 0);
  }
  const Value numbers = reshape(builder.iota({DType::kS32, {element_count(input)}}, 0), input);
  const Dims none(x.dims().size(), 0);
  const Value values = slice(x, none, cut);
  const Value indices = slice(broadcast_to(numbers, x.dims()), none, cut);
  return reduce_window({values, indices},
                       {builder.lowest({x.dtype(), {}}), builder.highest({DType::kS32, {}})}, window,
                       pool::better);
}

Values max_pool(Lowering& op, size_t rank) {
  const Value x = op.tensor(0);
  const Geometry g = pool::geometry_of(op, rank, 1, 2, 3, 4, 5);
  const Dims output = g.output(last_dims(x.dims(), rank));
  const Dims dims = with_last_dims(x.dims(), output);
  if (element_count(dims) == 0) {
    return {op.builder().splat(0.0, {x.dtype(), dims}), op.builder().splat(0.0, {DType::kS64, dims})};
  }
  const Values pair =
      g.tap_count() <= pool::kMostTaps ? max_pool_by_taps(x, g, output) : max_pool_by_window(x, g, output);
  return {pair[0], convert(pair[1], DType::kS64)};
}

// By taps as well, where they are few: no scatter, and the same sums on every run.
Values max_pool_backward(Lowering& op, size_t rank) {
  const Value grad = to_compute(op.tensor(0));
  const Value x = op.tensor(1);
  const Geometry g = pool::geometry_of(op, rank, 2, 3, 4, 5, 6);
  const Dims input = last_dims(x.dims(), rank);
  const Dims output = last_dims(grad.dims(), rank);
  if (grad.type.elements() == 0 || g.tap_count() > pool::kMostTaps) {
    return {convert(pool::scatter_in_planes(grad, op.tensor(7), x.dims(), rank, true), x.dtype())};
  }
  const Value indices = convert(op.tensor(7), DType::kS32);
  const Value offsets = indices - broadcast_to(window_starts(op.builder(), g, input, output), indices.dims());
  const Value zero = op.builder().splat(0.0, {grad.dtype(), {}});
  Value sum;
  for (const Dims& tap : window_taps(g.kernel)) {
    const Value hit = compare(Compare::kEq, offsets, static_cast<double>(tap_offset(g, tap, input)));
    const Value part = onto_input(select(hit, grad, zero), tap, input, g);
    sum = sum ? sum + part : part;
  }
  return {convert(sum, x.dtype())};
}

Values scatter_backward(Lowering& op, int input, int indices, size_t rank) {
  const Value grad = to_compute(op.tensor(0));
  const Value x = op.tensor(input);
  return {convert(pool::scatter_in_planes(grad, op.tensor(indices), x.dims(), rank, true), x.dtype())};
}

// Window starts drawn from one random number a plane and dimension, as ATen's generate_intervals:
// [planes, output, kernel] positions.
Value fractional_positions(const Value& sample, int64_t input, int64_t output, int64_t kernel) {
  Builder& builder = *sample.builder;
  const Dims dims{sample.dim(0), output};
  const Value u = broadcast_in_dim(sample, dims, Dims{0});
  const Value index = builder.iota({sample.dtype(), dims}, 1);
  Value start = builder.splat(input - kernel, {DType::kS32, dims});
  if (output > 1) {
    const Value alpha = builder.splat(static_cast<double>(input - kernel), {sample.dtype(), {}}) /
                        builder.splat(static_cast<double>(output - 1), {sample.dtype(), {}});
    const Value drawn = convert((index + u) * alpha, DType::kS32) - convert(u * alpha, DType::kS32);
    start = select(compare(Compare::kLt, index, static_cast<double>(output - 1)), drawn, start);
  }
  const Dims window{dims[0], output, kernel};
  return broadcast_in_dim(start, window, Dims{0, 1}) + builder.iota({DType::kS32, window}, 2);
}

Values fractional_max_pool(Lowering& op, size_t rank) {
  const Value x = op.tensor(0);
  Builder& builder = op.builder();
  const Dims kernel = per_dimension(op.integers(1), rank);
  const Dims output = per_dimension(op.integers(2), rank);
  const Dims input = last_dims(x.dims(), rank);
  const Dims dims = with_last_dims(x.dims(), output);
  if (element_count(dims) == 0)
    return {builder.splat(0.0, {x.dtype(), dims}), builder.splat(0.0, {DType::kS64, dims})};
  const int64_t planes = x.type.elements() / element_count(input);
  // Samples for more planes than there are may be given: those of the first batch.
  const Value drawn = reshape(to_compute(op.tensor(3)), Dims{op.tensor(3).type.elements()});
  const Dims one_a_dimension{planes, static_cast<int64_t>(rank)};
  const Value samples = reshape(slice_dim(drawn, 0, 0, element_count(one_a_dimension)), one_a_dimension);
  const Dims pitch = contiguous_strides(input);
  // [planes, o0, k0, o1, k1, ...]
  Dims window{planes};
  for (size_t i = 0; i < rank; ++i) {
    window.push_back(output[i]);
    window.push_back(kernel[i]);
  }
  Value index = builder.splat(0.0, {DType::kS32, window});
  for (size_t i = 0; i < rank; ++i) {
    // In two dimensions the first number is for the width, in three for the depth.
    const int64_t column = static_cast<int64_t>(rank == 2 ? 1 - i : i);
    const Value sample = reshape(slice_dim(samples, 1, column, column + 1), Dims{planes});
    const Value positions =
        fractional_positions(sample, input[i], output[i], kernel[i]) * static_cast<double>(pitch[i]);
    const int64_t at = static_cast<int64_t>(2 * i + 1);
    index = index + broadcast_in_dim(positions, window, Dims{0, at, at + 1});
  }
  const Value plane = builder.iota({DType::kS32, window}, 0) * static_cast<double>(element_count(input));
  const Value flat = reshape(x, Dims{x.type.elements()});
  const Value positions = reshape(index + plane, Dims{index.type.elements(), 1});
  const Value values = reshape(gather(flat, positions, {{}, {0}, {0}, {1}, 1}), window);
  Dims reduced;
  for (size_t i = 0; i < rank; ++i) reduced.push_back(static_cast<int64_t>(2 * i + 2));
  const Values pair = pool::max_with_index(values, index, reduced);
  return {reshape(pair[0], dims), convert(reshape(pair[1], dims), DType::kS64)};
}

Values max_unpool(Lowering& op, size_t rank) {
  const Value x = op.tensor(0);
  const Dims volume = per_dimension(op.integers(2), rank);
  const Dims dims = with_last_dims(x.dims(), volume);
  std::string sizes;
  for (const int64_t size : volume) sizes += (sizes.empty() ? "" : "x") + std::to_string(size);
  check_range(op, op.tensor(1), 0, element_count(volume), Code::kInvalidArgument,
              "Found an invalid max index: {} (output volumes are of size " + sizes + ")");
  return {pool::scatter_in_planes(x, op.tensor(1), dims, rank, false)};
}

}  // namespace

OP("aten::max_pool2d_with_indices") { return max_pool(op, 2); }
OP("aten::max_pool2d_with_indices_backward") { return max_pool_backward(op, 2); }
OP("aten::max_pool3d_with_indices") { return max_pool(op, 3); }
OP("aten::max_pool3d_with_indices_backward") { return max_pool_backward(op, 3); }
OP("aten::fractional_max_pool2d") { return fractional_max_pool(op, 2); }
OP("aten::fractional_max_pool2d_backward") { return scatter_backward(op, 1, 4, 2); }
OP("aten::fractional_max_pool3d") { return fractional_max_pool(op, 3); }
OP("aten::fractional_max_pool3d_backward") { return scatter_backward(op, 1, 4, 3); }
OP("aten::max_unpool2d") { return max_unpool(op, 2); }
OP("aten::max_unpool3d") { return max_unpool(op, 3); }

}  // namespace torch_tpu::ops
