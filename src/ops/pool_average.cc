// Average pooling over sliding windows.
#include "ops/pool.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;
using pool::Geometry;

// The number that torch divides each window by: its size, with or without the part that lies in the
// padding, never counting what ceil_mode adds beyond it.
Value divisor(Builder& builder, const Geometry& g, const Dims& input, const Dims& output, DType dtype,
              bool with_padding, std::optional<int64_t> override) {
  if (override) return builder.splat(*override, {dtype, {}});
  const Type type{DType::kS32, output};
  Value count;
  int64_t uniform = 1;
  for (size_t i = 0; i < g.rank(); ++i) {
    const int64_t last_end = (output[i] - 1) * g.stride[i] - g.padding[i] + g.kernel[i];
    const bool inside = last_end <= input[i] + (with_padding ? g.padding[i] : 0);
    if (inside && (with_padding || g.padding[i] == 0)) {
      uniform *= g.kernel[i];
      continue;
    }
    const Value begin = builder.iota(type, static_cast<int64_t>(i)) * static_cast<double>(g.stride[i]) -
                        static_cast<double>(g.padding[i]);
    const double edge = static_cast<double>(input[i] + (with_padding ? g.padding[i] : 0));
    const Value end = minimum(begin + static_cast<double>(g.kernel[i]), like(begin, edge));
    const Value size = end - (with_padding ? begin : maximum(begin, like(begin, 0.0)));
    count = count ? count * size : size;
  }
  if (count) return convert(uniform == 1 ? count : count * static_cast<double>(uniform), dtype);
  return builder.splat(uniform, {dtype, {}});
}

std::optional<int64_t> override_of(Lowering& op, int i) {
  return op.has(i) ? std::optional<int64_t>(op.integer(i)) : std::nullopt;
}

Value window_sums(const Value& padded, const Geometry& g, const Dims& stride) {
  Window window{Dims(padded.dims().size(), 1), Dims(padded.dims().size(), 1), {}, {}, {}, {}};
  const size_t first = padded.dims().size() - g.rank();
  for (size_t i = 0; i < g.rank(); ++i) {
    window.size[first + i] = g.kernel[i];
    window.strides[first + i] = stride[i];
  }
  return reduce_window(padded, Reduction::kSum, window);
}

Values average_pool(Lowering& op, size_t rank) {
  const DType dtype = op.tensor(0).dtype();
  const Value x = to_compute(op.tensor(0));
  const Geometry g = pool::geometry_of(op, rank, 1, 2, 3, -1, 4);
  const Dims input = last_dims(x.dims(), rank);
  const Dims output = g.output(input);
  const Dims dims = with_last_dims(x.dims(), output);
  if (element_count(dims) == 0) return {op.builder().splat(0.0, {dtype, dims})};
  const Value padded = window_padded(x, g, g.kernel, output, 0.0);
  const Value count = divisor(op.builder(), g, input, output, x.dtype(), op.flag(5), override_of(op, 6));
  return {convert(window_sums(padded, g, g.stride) / broadcast_to(count, dims), dtype)};
}

// Each input element sums the windows that cover it: a window sum over the spread-out gradient.
Values average_pool_backward(Lowering& op, size_t rank) {
  const DType dtype = op.tensor(0).dtype();
  const Value dy = to_compute(op.tensor(0));
  const Dims dims = op.tensor(1).dims();
  const Geometry g = pool::geometry_of(op, rank, 2, 3, 4, -1, 5);
  const Dims input = last_dims(dims, rank);
  const Dims output = last_dims(dy.dims(), rank);
  if (element_count(dims) == 0 || dy.type.elements() == 0) return {op.builder().splat(0.0, {dtype, dims})};
  const Value count = divisor(op.builder(), g, input, output, dy.dtype(), op.flag(6), override_of(op, 7));
  const Value share = dy / broadcast_to(count, dy.dims());
  const size_t first = dims.size() - rank;
  Dims low(dims.size(), 0);
  Dims high(dims.size(), 0);
  Dims interior(dims.size(), 0);
  for (size_t i = 0; i < rank; ++i) {
    low[first + i] = g.kernel[i] - 1 - g.padding[i];
    high[first + i] = input[i] + g.kernel[i] - 1 - ((output[i] - 1) * g.stride[i] + 1) - low[first + i];
    interior[first + i] = g.stride[i] - 1;
  }
  const Value spread = pad(share, op.builder().splat(0.0, {share.dtype(), {}}), low, high, interior);
  return {convert(window_sums(spread, g, Dims(rank, 1)), dtype)};
}

}  // namespace

OP("aten::avg_pool2d") { return average_pool(op, 2); }
OP("aten::avg_pool2d_backward") { return average_pool_backward(op, 2); }
OP("aten::avg_pool3d") { return average_pool(op, 3); }
OP("aten::avg_pool3d_backward") { return average_pool_backward(op, 3); }

}  // namespace torch_tpu::ops
