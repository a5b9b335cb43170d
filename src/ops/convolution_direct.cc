// Convolutions as stablehlo.convolution, one group.
#include "ops/convolution.h"
#include "ops/promotion.h"

namespace torch_tpu::ops::conv {

using namespace hlo;

Dims spatial(const Dims& dims) { return Dims(dims.begin() + 2, dims.end()); }

Dims output_spatial(const Dims& input, const Dims& kernel, const Geometry& g) {
  Dims sizes;
  for (size_t i = 0; i < g.rank(); ++i) {
    const int64_t extent = (kernel[i] - 1) * g.dilation[i] + 1;
    sizes.push_back((input[i] + 2 * g.padding[i] - extent) / g.stride[i] + 1);
  }
  return sizes;
}

namespace {

// "[b, f, 0, 1]"
std::string layout(const char* first, const char* second, size_t rank) {
  std::string text = std::string("[") + first + ", " + second;
  for (size_t i = 0; i < rank; ++i) text += ", " + std::to_string(i);
  return text + "]";
}

Dims joined(int64_t first, int64_t second, const Dims& rest) {
  Dims dims{first, second};
  for (const int64_t size : rest) dims.push_back(size);
  return dims;
}

}  // namespace

Value direct(const Value& x, const Value& w, const Geometry& g) {
  const size_t rank = g.rank();
  const Dims output = output_spatial(spatial(x.dims()), spatial(w.dims()), g);
  const Window window{{}, g.stride, g.padding, g.padding, {}, g.dilation};
  return convolution(x, w, window, {layout("b", "f", rank), layout("o", "i", rank), layout("b", "f", rank)},
                     1, 1, {compute_dtype(x.dtype()), joined(x.dim(0), w.dim(0), output)});
}

Value direct_input_gradient(const Value& dy, const Value& w, const Geometry& g, const Dims& input_dims) {
  const size_t rank = g.rank();
  Window window{{}, {}, {}, {}, g.stride, g.dilation};
  Dims reversed;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t extent = (w.dim(i + 2) - 1) * g.dilation[i];
    const int64_t low = extent - g.padding[i];
    window.padding_low.push_back(low);
    window.padding_high.push_back(input_dims[i + 2] + extent - ((dy.dim(i + 2) - 1) * g.stride[i] + 1) - low);
    if (w.dim(i + 2) > 1) reversed.push_back(static_cast<int64_t>(i) + 2);
  }
  return convolution(dy, reverse(w, reversed), window,
                     {layout("b", "f", rank), layout("i", "o", rank), layout("b", "f", rank)}, 1, 1,
                     {compute_dtype(dy.dtype()), input_dims});
}

Value direct_weight_gradient(const Value& x, const Value& dy, const Geometry& g, const Dims& weight_dims) {
  const size_t rank = g.rank();
  Window window{{}, g.dilation, g.padding, {}, {}, g.stride};
  for (size_t i = 0; i < rank; ++i) {
    const int64_t covered = (weight_dims[i + 2] - 1) * g.dilation[i] + (dy.dim(i + 2) - 1) * g.stride[i] + 1;
    window.padding_high.push_back(covered - x.dim(i + 2) - g.padding[i]);
  }
  return convolution(x, dy, window, {layout("f", "b", rank), layout("i", "o", rank), layout("f", "b", rank)},
                     1, 1, {compute_dtype(x.dtype()), weight_dims});
}

}  // namespace torch_tpu::ops::conv
