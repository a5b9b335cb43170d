// aten::convolution and its gradients: which form to use, groups, transposed convolutions, bias.
#include "ops/convolution.h"

#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;
using conv::Geometry;

enum class Form { kDirect, kPatches, kShifted, kSplit, kHost };

// More taps would make the program long; the direct form then does.
constexpr int64_t kMostTaps = 128;
// im2col pays where channels are many and maps small (512 channels on 7x7: 13 ms against 50).
constexpr int64_t kManyChannels = 128;
constexpr int64_t kSmallMap = 64;
// Few groups are cheaper as separate convolutions, many as one batched dot.
constexpr int64_t kFewGroups = 8;
// With fewer multiplications a call of the host takes longer than what it saves.
constexpr int64_t kFewestHostProducts = int64_t{1} << 20;

bool fills_tiles(const Dims& kernel, const Geometry& g) {
  for (size_t i = 0; i < g.rank(); ++i) {
    if (kernel[i] != g.stride[i] || g.padding[i] != 0 || g.dilation[i] != 1) return false;
  }
  return true;
}

// What torch's own library computes faster than the compiler's kernels: 1.1 to 3.8 times for 3x3 filters on
// maps of 8x8 to 64x64 with 3 to 256 channels.
bool is_for_host(const Value& operand, const Dims& input_dims, const Dims& weight_dims, const Geometry& g) {
  if (operand.builder->products() != Products::kHost || operand.dtype() != DType::kF32) return false;
  const Dims output = conv::output_spatial(conv::spatial(input_dims), conv::spatial(weight_dims), g);
  const int64_t products = input_dims[0] * element_count(output) * element_count(weight_dims);
  return g.groups == 1 && products >= kFewestHostProducts;
}

Form choose(const Value& operand, const Dims& input_dims, const Dims& weight_dims, const Geometry& g) {
  const DType dtype = operand.dtype();
  const Dims kernel = conv::spatial(weight_dims);
  const Dims input = conv::spatial(input_dims);
  const int64_t tap_count = element_count(kernel);
  if (g.groups > 1 && weight_dims[1] == 1 && tap_count <= kMostTaps) return Form::kShifted;
  const bool has_library_type = is_float(dtype) && byte_size(dtype) <= 4;
  if (tap_count == 1 || fills_tiles(kernel, g) || !has_library_type) return Form::kPatches;
  if (is_for_host(operand, input_dims, weight_dims, g)) return Form::kHost;
  if (g.groups > 1) return g.groups <= kFewGroups || tap_count > kMostTaps ? Form::kSplit : Form::kPatches;
  if (tap_count > kMostTaps) return Form::kDirect;
  for (size_t i = 0; i < g.rank(); ++i) {
    if ((kernel[i] - 1) * g.dilation[i] + 1 > input[i]) return Form::kPatches;
  }
  const bool many_channels = std::min(weight_dims[0], weight_dims[1]) >= kManyChannels;
  return many_channels && element_count(input) <= kSmallMap ? Form::kPatches : Form::kDirect;
}

Value group_slice(const Value& x, int64_t dim, int64_t group, int64_t groups) {
  const int64_t size = x.dim(dim) / groups;
  return slice_dim(x, dim, group * size, (group + 1) * size);
}

Geometry one_group(Geometry g) {
  g.groups = 1;
  return g;
}

Value forward(const Value& x, const Value& w, const Geometry& g) {
  Dims dims{x.dim(0), w.dim(0)};
  for (const int64_t size : conv::output_spatial(conv::spatial(x.dims()), conv::spatial(w.dims()), g))
    dims.push_back(size);
  if (element_count(dims) == 0 || x.type.elements() == 0)
    return x.builder->splat(0.0, {compute_dtype(x.dtype()), dims});
  switch (choose(x, x.dims(), w.dims(), g)) {
    case Form::kDirect:
      return conv::direct(x, w, g);
    case Form::kPatches:
      return conv::patches_dot(x, w, g);
    case Form::kShifted:
      return conv::shifted(x, w, g);
    case Form::kHost:
      return conv::host(x, w, g);
    case Form::kSplit:
      break;
  }
  Values parts;
  for (int64_t i = 0; i < g.groups; ++i) {
    parts.push_back(forward(group_slice(x, 1, i, g.groups), group_slice(w, 0, i, g.groups), one_group(g)));
  }
  return concatenate(parts, 1);
}

Value input_gradient(const Value& dy, const Value& w, const Geometry& g, const Dims& input_dims) {
  if (dy.type.elements() == 0 || element_count(input_dims) == 0)
    return dy.builder->splat(0.0, {compute_dtype(dy.dtype()), input_dims});
  switch (choose(dy, input_dims, w.dims(), g)) {
    case Form::kDirect:
      return conv::direct_input_gradient(dy, w, g, input_dims);
    case Form::kPatches:
      return conv::patches_input_gradient(dy, w, g, input_dims);
    case Form::kShifted:
      return conv::shifted_input_gradient(dy, w, g, input_dims);
    case Form::kHost:
      return conv::host_input_gradient(dy, w, g, input_dims);
    case Form::kSplit:
      break;
  }
  Dims part_dims = input_dims;
  part_dims[1] /= g.groups;
  Values parts;
  for (int64_t i = 0; i < g.groups; ++i) {
    parts.push_back(input_gradient(group_slice(dy, 1, i, g.groups), group_slice(w, 0, i, g.groups),
                                   one_group(g), part_dims));
  }
  return concatenate(parts, 1);
}

Value weight_gradient(const Value& x, const Value& dy, const Geometry& g, const Dims& weight_dims) {
  if (dy.type.elements() == 0 || x.type.elements() == 0)
    return dy.builder->splat(0.0, {compute_dtype(dy.dtype()), weight_dims});
  switch (choose(dy, x.dims(), weight_dims, g)) {
    case Form::kDirect:
      return conv::direct_weight_gradient(x, dy, g, weight_dims);
    case Form::kPatches:
      return conv::patches_weight_gradient(x, dy, g, weight_dims);
    case Form::kShifted:
      return conv::shifted_weight_gradient(x, dy, g, weight_dims);
    case Form::kHost:
      return conv::host_weight_gradient(x, dy, g, weight_dims);
    case Form::kSplit:
      break;
  }
  Dims part_dims = weight_dims;
  part_dims[0] /= g.groups;
  Values parts;
  for (int64_t i = 0; i < g.groups; ++i) {
    parts.push_back(weight_gradient(group_slice(x, 1, i, g.groups), group_slice(dy, 1, i, g.groups),
                                    one_group(g), part_dims));
  }
  return concatenate(parts, 0);
}

// The stride, padding and dilation lists at `first`, `first + 1`, `first + 2`; one number counts for
// every spatial dimension.
Geometry geometry_of(Lowering& op, int first, int64_t groups, int64_t rank) {
  const auto expanded = [&](int i) {
    std::vector<int64_t> numbers = op.integers(i);
    if (numbers.size() == 1) numbers.resize(static_cast<size_t>(rank), numbers[0]);
    return Dims(numbers);
  };
  const Geometry g{{expanded(first), expanded(first + 1), expanded(first + 2)}, groups};
  for (const int64_t padding : g.padding) {
    if (padding < 0) op.fail("negative padding is not supported");
  }
  return g;
}

// An input without batch dimension is not possible here: torch adds it before.
Values convolve(Lowering& op) {
  const DType dtype = op.tensor(0).dtype();
  const Value x = op.tensor(0);
  const Value w = op.tensor(1);
  const Geometry g = geometry_of(op, 3, op.integer(8), x.rank() - 2);
  Value y;
  if (op.flag(6)) {
    const std::vector<int64_t> extra = op.integers(7);
    Dims dims{x.dim(0), w.dim(1) * g.groups};
    for (size_t i = 0; i < g.rank(); ++i) {
      dims.push_back((x.dim(i + 2) - 1) * g.stride[i] - 2 * g.padding[i] +
                     (w.dim(i + 2) - 1) * g.dilation[i] + extra[extra.size() == 1 ? 0 : i] + 1);
    }
    y = input_gradient(x, w, g, dims);
  } else {
    y = forward(x, w, g);
  }
  if (op.has(2)) {
    const Value bias = to_compute(op.tensor(2));
    y = y + broadcast_in_dim(bias, y.dims(), Dims{1});
  }
  return {convert(y, dtype)};
}

// `first`: position of the stride list; the rest of the schema follows it.
Values convolve_backward(Lowering& op, int first) {
  const DType dtype = op.tensor(0).dtype();
  const Value dy = op.tensor(0);
  const Value x = op.tensor(1);
  const Value w = op.tensor(2);
  const bool transposed = op.flag(first + 3);
  const Geometry g = geometry_of(op, first, op.integer(first + 5), x.rank() - 2);
  const std::vector<bool> wanted = op.flags(first + 6);
  Values results(3);
  if (wanted[0] && transposed) {
    // An output padding of at least the stride gives positions beyond the input.
    results[0] = convert(slice(forward(dy, w, g), Dims(x.dims().size(), 0), x.dims()), dtype);
  } else if (wanted[0]) {
    results[0] = convert(input_gradient(dy, w, g, x.dims()), dtype);
  }
  if (wanted[1]) {
    results[1] = convert(
        transposed ? weight_gradient(dy, x, g, w.dims()) : weight_gradient(x, dy, g, w.dims()), dtype);
  }
  if (wanted[2]) {
    Dims summed{0};
    for (int64_t i = 2; i < dy.rank(); ++i) summed.push_back(i);
    results[2] = convert(reduce(to_compute(dy), Reduction::kSum, summed), dtype);
  }
  return results;
}

}  // namespace

OP("aten::convolution") { return convolve(op); }
OP("aten::convolution_backward") { return convolve_backward(op, 4); }
OP("aten::convolution_overrideable") { return convolve(op); }
OP("aten::convolution_backward_overrideable") { return convolve_backward(op, 3); }

}  // namespace torch_tpu::ops
