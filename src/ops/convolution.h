// The forms in which a convolution is written. Each is right for every geometry it is chosen for;
// they differ in speed (see the comment of each) and convolution.cc chooses among them. All return
// compute_dtype of their operands.
#pragma once

#include "ops/window.h"

namespace torch_tpu::ops::conv {

/// Of a convolution x[n, c, ...] * w[o, c / groups, ...] -> y[n, o, ...]; a transposed convolution
/// is the input gradient of one.
struct Geometry : Windows {
  int64_t groups = 1;
};

Dims spatial(const Dims& dims);
Dims output_spatial(const Dims& input, const Dims& kernel, const Geometry& geometry);

/// stablehlo.convolution with one group: the library convolution of the compiler.
Value direct(const Value& x, const Value& w, const Geometry& g);
/// dx by dilation of dy and a reversed kernel: window_reversal would leave the library path.
Value direct_input_gradient(const Value& dy, const Value& w, const Geometry& g, const Dims& input_dims);
/// dw as a convolution of x with dy in which batch and features change places.
Value direct_weight_gradient(const Value& x, const Value& dy, const Geometry& g, const Dims& weight_dims);

/// im2col and one dot (batched over groups): for 1x1 kernels, where nothing is copied; for filters
/// larger than the image, which the compiler runs as a naive loop; for many channels on small maps;
/// for element types that the library convolution lacks.
Value patches_dot(const Value& x, const Value& w, const Geometry& g);
Value patches_input_gradient(const Value& dy, const Value& w, const Geometry& g, const Dims& input_dims);
Value patches_weight_gradient(const Value& x, const Value& dy, const Geometry& g, const Dims& weight_dims);

/// By the host kernels hlo::kConvolution and those of its gradients.
Value host(const Value& x, const Value& w, const Geometry& g);
Value host_input_gradient(const Value& dy, const Value& w, const Geometry& g, const Dims& input_dims);
Value host_weight_gradient(const Value& x, const Value& dy, const Geometry& g, const Dims& weight_dims);

/// Depthwise as shifted multiply-adds: one fused loop instead of one tiny convolution per channel.
Value shifted(const Value& x, const Value& w, const Geometry& g);
Value shifted_input_gradient(const Value& dy, const Value& w, const Geometry& g, const Dims& input_dims);
Value shifted_weight_gradient(const Value& x, const Value& dy, const Geometry& g, const Dims& weight_dims);

}  // namespace torch_tpu::ops::conv
