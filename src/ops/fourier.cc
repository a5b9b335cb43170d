// Discrete Fourier transforms over any dimensions, with torch's normalisations.
#include <cmath>
#include <numeric>

#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

// One stablehlo.fft takes at most three dimensions, the last ones.
constexpr size_t kMostDims = 3;

Value transform(const Value& x, const char* kind, const Dims& lengths, const Type& result) {
  return x.builder->emit_one(
      "stablehlo.fft", {x}, result,
      std::string("fft_type = #stablehlo<fft_type ") + kind + ">, fft_length = " + i64_array(lengths));
}

// A permutation that moves `dims` to the end, in order.
Dims to_end(int64_t rank, const Dims& dims) {
  Dims order;
  for (int64_t i = 0; i < rank; ++i) {
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) order.push_back(i);
  }
  for (const int64_t dim : dims) order.push_back(dim);
  return order;
}

Dims inverted(const Dims& order) {
  Dims inverse(order.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return inverse;
}

// Unscaled forward, or inverse scaled by one over the length (as StableHLO defines it).
Value complex_transform(Value x, const Dims& dims, bool forward) {
  for (size_t done = 0; done < dims.size();) {
    const size_t count = std::min(kMostDims, dims.size() - done);
    const Dims chunk(dims.begin() + done, dims.begin() + done + count);
    const Dims order = to_end(x.rank(), chunk);
    const Value moved = transpose(x, order);
    const Dims lengths(moved.dims().end() - count, moved.dims().end());
    x = transpose(transform(moved, forward ? "FFT" : "IFFT", lengths, moved.type), inverted(order));
    done += count;
  }
  return x;
}

double length_of(const Dims& dims, const Dims& axes) {
  double length = 1;
  for (const int64_t axis : axes) length *= static_cast<double>(dims[axis]);
  return length;
}

// normalization: 0 none, 1 by the root of the length, 2 by the length.
Value scaled(const Value& x, int64_t normalization, double length, bool has_inverse_scale) {
  double factor = normalization == 0 ? 1.0 : normalization == 1 ? 1.0 / std::sqrt(length) : 1.0 / length;
  if (has_inverse_scale) factor *= length;
  if (factor == 1.0 || (has_inverse_scale && normalization == 2)) return x;
  const Value by = x.builder->splat(factor, {real_type(x.dtype()), {}});
  if (!is_complex(x.dtype())) return x * by;
  return complex(real(x) * by, imag(x) * by);
}

Dims axes_of(Lowering& op, int64_t rank) {
  Dims axes;
  for (const int64_t dim : op.integers(1)) axes.push_back(op.wrap_dim(dim, rank));
  return axes;
}

}  // namespace

OP("aten::_fft_c2c") {
  const Value x = op.tensor(0);
  const Dims axes = axes_of(op, x.rank());
  if (x.type.elements() == 0 || axes.empty()) return {x};
  const bool forward = op.flag(3);
  return {scaled(complex_transform(x, axes, forward), op.integer(2), length_of(x.dims(), axes), !forward)};
}

OP("aten::_fft_r2c") {
  const Value x = op.tensor(0);
  Dims axes = axes_of(op, x.rank());
  const double length = length_of(x.dims(), axes);
  const DType dtype = complex_type(x.dtype());
  if (!op.flag(3)) {
    const Value full = convert(x, dtype);
    if (x.type.elements() == 0) return {full};
    return {scaled(complex_transform(full, axes, true), op.integer(2), length, false)};
  }
  const int64_t last = axes.back();
  axes.pop_back();
  const Dims order = to_end(x.rank(), Dims{last});
  const Value moved = transpose(x, order);
  Type half{dtype, moved.dims()};
  half.dims.back() = half.dims.back() / 2 + 1;
  if (x.type.elements() == 0) {
    Dims dims = x.dims();
    dims[last] = dims[last] / 2 + 1;
    return {op.builder().splat(0.0, {dtype, dims})};
  }
  const Value one = transpose(transform(moved, "RFFT", Dims{moved.dim(-1)}, half), inverted(order));
  return {scaled(complex_transform(one, axes, true), op.integer(2), length, false)};
}

OP("aten::_fft_c2r") {
  const Value x = op.tensor(0);
  Dims axes = axes_of(op, x.rank());
  const int64_t size = op.integer(3);
  Dims dims = x.dims();
  dims[axes.back()] = size;
  const double length = length_of(dims, axes);
  const DType dtype = real_type(x.dtype());
  if (element_count(dims) == 0 || x.type.elements() == 0) return {op.builder().splat(0.0, {dtype, dims})};
  const int64_t last = axes.back();
  axes.pop_back();
  const Value others = complex_transform(x, axes, false);
  const Dims order = to_end(x.rank(), Dims{last});
  Value moved = transpose(others, order);
  // The inverse reads size / 2 + 1 values: the rest follows by symmetry.
  const int64_t needed = size / 2 + 1;
  if (moved.dim(-1) > needed) moved = slice_dim(moved, moved.rank() - 1, 0, needed);
  if (moved.dim(-1) < needed) {
    Dims high(moved.dims().size(), 0);
    high.back() = needed - moved.dim(-1);
    moved = pad(moved, op.builder().splat(0.0, {moved.dtype(), {}}), Dims(high.size(), 0), high);
  }
  Type full{dtype, moved.dims()};
  full.dims.back() = size;
  const Value back = transpose(transform(moved, "IRFFT", Dims{size}, full), inverted(order));
  return {scaled(back, op.integer(2), length, true)};
}

}  // namespace torch_tpu::ops
