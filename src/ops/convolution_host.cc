// Convolutions as calls of host kernels.
#include "ops/convolution.h"

namespace torch_tpu::ops::conv {

using namespace hlo;

namespace {

std::vector<std::pair<std::string, int64_t>> attributes_of(const Geometry& g) {
  std::vector<std::pair<std::string, int64_t>> attributes;
  for (size_t i = 0; i < g.rank(); ++i) {
    const std::string number = std::to_string(i);
    attributes.emplace_back("stride" + number, g.stride[i]);
    attributes.emplace_back("padding" + number, g.padding[i]);
    attributes.emplace_back("dilation" + number, g.dilation[i]);
  }
  return attributes;
}

}  // namespace

Value host(const Value& x, const Value& w, const Geometry& g) {
  Dims dims{x.dim(0), w.dim(0)};
  for (const int64_t size : output_spatial(spatial(x.dims()), spatial(w.dims()), g)) dims.push_back(size);
  return host_call(kConvolution, {x, w}, {x.dtype(), dims}, attributes_of(g));
}

Value host_input_gradient(const Value& dy, const Value& w, const Geometry& g, const Dims& input_dims) {
  return host_call(kConvolutionInputGradient, {dy, w}, {dy.dtype(), input_dims}, attributes_of(g));
}

Value host_weight_gradient(const Value& x, const Value& dy, const Geometry& g, const Dims& weight_dims) {
  return host_call(kConvolutionWeightGradient, {x, dy}, {dy.dtype(), weight_dims}, attributes_of(g));
}

}  // namespace torch_tpu::ops::conv
