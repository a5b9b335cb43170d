// im2col and col2im (F.unfold and F.fold), and the shuffles of channels and pixels.
#include "ops/promotion.h"
#include "ops/window.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

// Kernel, dilation, padding and stride lists from position `first` on.
struct Columns {
  Windows windows;
  Dims kernel;

  Columns(Lowering& op, int first) {
    kernel = per_dimension(op.integers(first), 2);
    windows.dilation = per_dimension(op.integers(first + 1), 2);
    windows.padding = per_dimension(op.integers(first + 2), 2);
    windows.stride = per_dimension(op.integers(first + 3), 2);
  }

  Dims output(const Dims& input) const {
    Dims sizes;
    for (size_t i = 0; i < 2; ++i) {
      const int64_t free = input[i] + 2 * windows.padding[i] - windows.dilation[i] * (kernel[i] - 1) - 1;
      sizes.push_back(free / windows.stride[i] + 1);
    }
    return sizes;
  }
};

Values image_to_columns(Lowering& op) {
  const Value x = op.tensor(0);
  const Columns columns(op, 1);
  const Dims output = columns.output(last_dims(x.dims(), 2));
  const bool batched = x.rank() == 4;
  const int64_t n = batched ? x.dim(0) : 1;
  const int64_t c = x.dim(-3);
  const int64_t positions = element_count(output);
  const int64_t rows = c * element_count(columns.kernel);
  const Dims dims = batched ? Dims{n, rows, positions} : Dims{rows, positions};
  if (element_count(dims) == 0) return {op.builder().splat(0.0, {x.dtype(), dims})};
  const Value image = window_padded(reshape(x, Dims{n, c, x.dim(-2), x.dim(-1)}), columns.windows,
                                    columns.kernel, output, 0.0);
  Values parts;
  for (const Dims& tap : window_taps(columns.kernel)) {
    parts.push_back(reshape(under_tap(image, tap, output, columns.windows), Dims{n, c, 1, positions}));
  }
  return {reshape(concatenate(parts, 2), dims)};
}

Values columns_to_image(Lowering& op) {
  const DType dtype = op.tensor(0).dtype();
  const Value x = to_compute(op.tensor(0));
  const Dims image = per_dimension(op.integers(1), 2);
  const Columns columns(op, 2);
  const Dims output = columns.output(image);
  const bool batched = x.rank() == 3;
  const int64_t n = batched ? x.dim(0) : 1;
  const int64_t taps = element_count(columns.kernel);
  const int64_t c = x.dim(-2) / taps;
  const Dims dims = batched ? Dims{n, c, image[0], image[1]} : Dims{c, image[0], image[1]};
  if (element_count(dims) == 0) return {op.builder().splat(0.0, {dtype, dims})};
  const Value by_tap = reshape(x, Dims{n, c, taps, output[0], output[1]});
  Value sum;
  int64_t number = 0;
  for (const Dims& tap : window_taps(columns.kernel)) {
    const Value values = reshape(slice_dim(by_tap, 2, number, number + 1), Dims{n, c, output[0], output[1]});
    const Value part = onto_input(values, tap, image, columns.windows);
    sum = number++ == 0 ? part : sum + part;
  }
  return {convert(reshape(sum, dims), dtype)};
}

}  // namespace

OP("aten::im2col") { return image_to_columns(op); }
OP("aten::col2im") { return columns_to_image(op); }

OP("aten::pixel_shuffle") {
  const Value x = op.tensor(0);
  const int64_t factor = op.integer(1);
  const int64_t n = element_count(with_last_dims(x.dims(), Dims{1, 1, 1}));
  const int64_t c = x.dim(-3) / (factor * factor);
  const int64_t h = x.dim(-2);
  const int64_t w = x.dim(-1);
  const Value split = reshape(x, Dims{n, c, factor, factor, h, w});
  return {reshape(transpose(split, Dims{0, 1, 4, 2, 5, 3}),
                  with_last_dims(x.dims(), Dims{c, h * factor, w * factor}))};
}

OP("aten::pixel_unshuffle") {
  const Value x = op.tensor(0);
  const int64_t factor = op.integer(1);
  const int64_t n = element_count(with_last_dims(x.dims(), Dims{1, 1, 1}));
  const int64_t c = x.dim(-3);
  const int64_t h = x.dim(-2) / factor;
  const int64_t w = x.dim(-1) / factor;
  const Value split = reshape(x, Dims{n, c, h, factor, w, factor});
  return {reshape(transpose(split, Dims{0, 1, 3, 5, 2, 4}),
                  with_last_dims(x.dims(), Dims{c * factor * factor, h, w}))};
}

}  // namespace torch_tpu::ops
