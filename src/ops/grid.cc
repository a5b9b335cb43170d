// grid_sampler: reading an image at real-valued coordinates, with its gradients.
//
// Each dimension of the grid gives a few taps (position, weight, derivative of the weight); a sample
// is the sum over their products. Formulas: ATen's GridSampler.h.
//
// Gradients are computed in f64: that of the grid is a difference of neighbours times the image's size, that
// of the image adds up everything that border padding reads from the edges.
#include <numeric>

#include "ops/promotion.h"
#include "ops/window.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

enum Interpolation { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum Padding { kZeros = 0, kBorder = 1, kReflection = 2 };

struct Coordinate {
  Value value;
  Value slope;  // d value / d grid
};

struct Tap {
  Value position;  // s32, inside the image
  Value inside;    // pred: false where zero padding is read
  Value weight, slope;
};

Coordinate unnormalized(const Value& x, int64_t size, bool align_corners) {
  const double extent = static_cast<double>(size);
  if (align_corners) return {(x + 1.0) / 2.0 * (extent - 1), like(x, (extent - 1) / 2)};
  return {((x + 1.0) * extent - 1.0) / 2.0, like(x, extent / 2)};
}

Coordinate clipped(const Coordinate& c, int64_t size) {
  const double last = static_cast<double>(size - 1);
  const Value inside = compare(Compare::kGt, c.value, 0.0) & compare(Compare::kLt, c.value, last);
  // Written so that NaN goes to zero.
  const Value low = select(compare(Compare::kGt, c.value, 0.0), c.value, like(c.value, 0.0));
  return {select(compare(Compare::kLt, low, last), low, like(low, last)),
          select(inside, c.slope, like(c.slope, 0.0))};
}

Coordinate reflected(const Coordinate& c, int64_t twice_low, int64_t twice_high) {
  if (twice_low == twice_high) return {like(c.value, 0.0), like(c.value, 0.0)};
  const double low = static_cast<double>(twice_low) / 2;
  const double span = static_cast<double>(twice_high - twice_low) / 2;
  const Value shifted = c.value - low;
  const Value distance = abs(shifted);
  const Value extra = remainder(distance, like(distance, span));
  const Value flips = floor(distance / span);
  const Value even = compare(Compare::kEq, remainder(flips, like(flips, 2.0)), 0.0);
  const Value negative = compare(Compare::kLt, shifted, 0.0);
  return {select(even, extra + low, span - extra + low), select(even ^ negative, c.slope, -c.slope)};
}

Coordinate padded(const Coordinate& c, int64_t size, int64_t padding, bool align_corners) {
  if (padding == kBorder) return clipped(c, size);
  if (padding != kReflection) return c;
  return clipped(align_corners ? reflected(c, 0, 2 * (size - 1)) : reflected(c, -1, 2 * size - 1), size);
}

Tap tap_at(const Value& coordinate, int64_t size, const Value& weight, const Value& slope) {
  const double last = static_cast<double>(size - 1);
  const Value inside = compare(Compare::kGe, coordinate, 0.0) & compare(Compare::kLe, coordinate, last);
  const Value position = convert(select(inside, coordinate, like(coordinate, 0.0)), DType::kS32);
  return {position, inside, weight, slope};
}

// The four weights of cubic convolution with a = -0.75 at distance t past the second tap.
std::vector<Tap> cubic_taps(const Coordinate& c, int64_t size, int64_t padding, bool align_corners) {
  constexpr double a = -0.75;
  const Value base = floor(c.value);
  const Value t = c.value - base;
  std::vector<Tap> taps;
  for (int i = 0; i < 4; ++i) {
    const Value x = i == 0 ? t + 1.0 : i == 1 ? t : i == 2 ? 1.0 - t : 2.0 - t;
    const double direction = i < 2 ? 1.0 : -1.0;
    const bool near = i == 1 || i == 2;
    const Value weight =
        near ? ((a + 2) * x - (a + 3)) * x * x + 1.0 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    const Value slope = near ? (3 * (a + 2) * x - 2 * (a + 3)) * x : (3 * a * x - 10 * a) * x + 8 * a;
    const Coordinate position =
        padded({base + static_cast<double>(i - 1), c.slope}, size, padding, align_corners);
    taps.push_back(tap_at(position.value, size, weight, slope * direction * c.slope));
  }
  return taps;
}

std::vector<Tap> taps_of(const Value& grid, int64_t size, int64_t interpolation, int64_t padding,
                         bool align_corners) {
  Coordinate c = unnormalized(grid, size, align_corners);
  if (interpolation == kBicubic) return cubic_taps(c, size, padding, align_corners);
  c = padded(c, size, padding, align_corners);
  if (interpolation == kNearest) {
    return {tap_at(unary("round_nearest_even", c.value), size, like(grid, 1.0), like(grid, 0.0))};
  }
  const Value base = floor(c.value);
  return {tap_at(base, size, base + 1.0 - c.value, -c.slope),
          tap_at(base + 1.0, size, c.value - base, c.slope)};
}

// All products of one tap per dimension, over [n, taps, positions].
struct Samples {
  Value index;   // s32 [n, taps, positions] within the image plane
  Value inside;  // pred
  Value weight;
  Values slopes;  // by dimension of the grid's last axis (x first)
};

Value stacked(const Values& parts) {
  Values rows;
  for (const Value& part : parts) rows.push_back(reshape(part, Dims{part.dim(0), 1, part.dim(1)}));
  return concatenate(rows, 1);
}

/// Weights and slopes come as `dtype`.
Samples samples_of(const Value& grid, const Dims& image, int64_t interpolation, int64_t padding,
                   bool align_corners, DType dtype) {
  const int64_t n = grid.dim(0);
  const size_t rank = image.size();
  const int64_t positions = grid.type.elements() / (n * static_cast<int64_t>(rank));
  const Value points = reshape(grid, Dims{n, positions, static_cast<int64_t>(rank)});
  const Dims pitch = contiguous_strides(image);
  std::vector<std::vector<Tap>> by_dim;  // x (the last image dimension) first, as the grid
  for (size_t i = 0; i < rank; ++i) {
    const int64_t column = static_cast<int64_t>(i);
    const Value coordinate = reshape(slice_dim(points, 2, column, column + 1), Dims{n, positions});
    by_dim.push_back(taps_of(coordinate, image[rank - 1 - i], interpolation, padding, align_corners));
  }
  Dims counts;
  for (const auto& taps : by_dim) counts.push_back(static_cast<int64_t>(taps.size()));
  Values index, inside, weight;
  std::vector<Values> slopes(rank);
  for (const Dims& choice : window_taps(counts)) {
    Value position, within, product;
    for (size_t i = 0; i < rank; ++i) {
      const Tap& tap = by_dim[i][choice[i]];
      const Value offset = tap.position * static_cast<double>(pitch[rank - 1 - i]);
      position = i == 0 ? offset : position + offset;
      within = i == 0 ? tap.inside : within & tap.inside;
      product = i == 0 ? tap.weight : product * tap.weight;
    }
    for (size_t i = 0; i < rank; ++i) {
      Value slope = by_dim[i][choice[i]].slope;
      for (size_t j = 0; j < rank; ++j) {
        if (j != i) slope = slope * by_dim[j][choice[j]].weight;
      }
      slopes[i].push_back(slope);
    }
    index.push_back(position);
    inside.push_back(within);
    weight.push_back(product);
  }
  Samples samples{stacked(index), stacked(inside), convert(stacked(weight), dtype), {}};
  for (const Values& parts : slopes) samples.slopes.push_back(convert(stacked(parts), dtype));
  return samples;
}

// (batch, plane position) pairs for gather and scatter: [n, taps * positions, 2].
Value index_pairs(const Samples& samples) {
  const int64_t n = samples.index.dim(0);
  const int64_t count = samples.index.dim(1) * samples.index.dim(2);
  const Value position = reshape(samples.index, Dims{n, count, 1});
  return concatenate({samples.index.builder->iota({DType::kS32, {n, count, 1}}, 0), position}, 2);
}

// The image under every tap as [n, c, taps, positions]; zero where a tap lies outside.
Value read(const Value& image, const Samples& samples) {
  const int64_t n = image.dim(0);
  const int64_t c = image.dim(1);
  const Value planes = reshape(image, Dims{n, c, image.type.elements() / (n * c)});
  const Value values = gather(planes, index_pairs(samples), {{1}, {0, 2}, {0, 2}, {1, c, 1}, 2});
  const Value grouped = reshape(values, Dims{n, c, samples.index.dim(1), samples.index.dim(2)});
  return select(broadcast_in_dim(samples.inside, grouped.dims(), Dims{0, 2, 3}), grouped, like(grouped, 0.0));
}

Value over_channels(const Value& x, const Dims& dims) { return broadcast_in_dim(x, dims, Dims{0, 2, 3}); }

Values sample(Lowering& op, size_t rank) {
  const DType dtype = op.tensor(0).dtype();
  const Value image = to_compute(op.tensor(0));
  const Value grid = convert(op.tensor(1), image.dtype());
  Dims dims{image.dim(0), image.dim(1)};
  for (size_t i = 0; i < rank; ++i) dims.push_back(grid.dim(static_cast<int64_t>(i) + 1));
  if (element_count(dims) == 0) return {op.builder().splat(0.0, {dtype, dims})};
  const Samples samples = samples_of(grid, last_dims(image.dims(), rank), op.integer(2), op.integer(3),
                                     op.flag(4), image.dtype());
  const Value values = read(image, samples);
  const Value sum = reduce(values * over_channels(samples.weight, values.dims()), Reduction::kSum, Dims{2});
  return {convert(reshape(sum, dims), dtype)};
}

Value image_gradient(const Value& dy, const Samples& samples, const Dims& image_dims) {
  const int64_t n = image_dims[0];
  const int64_t c = image_dims[1];
  const Dims dims{n, c, samples.index.dim(1), samples.index.dim(2)};
  const Value share = broadcast_in_dim(dy, dims, Dims{0, 1, 3}) * over_channels(samples.weight, dims);
  const Value updates = select(over_channels(samples.inside, dims), share, like(share, 0.0));
  const Value zeros = dy.builder->splat(0.0, {dy.dtype(), {n, c, element_count(image_dims) / (n * c)}});
  const Value sum = scatter(zeros, index_pairs(samples), reshape(updates, Dims{n, c, dims[2] * dims[3]}),
                            {{1}, {0, 2}, {0, 2}, 2, false}, combiner(Reduction::kSum));
  return reshape(sum, image_dims);
}

Value grid_gradient(const Value& dy, const Value& image, const Samples& samples, const Dims& grid_dims) {
  const Value values = read(image, samples);
  const Value weighted =
      reduce(values * broadcast_in_dim(dy, values.dims(), Dims{0, 1, 3}), Reduction::kSum, Dims{1});
  Values parts;
  for (const Value& slope : samples.slopes) {
    const Value part = reduce(weighted * slope, Reduction::kSum, Dims{1});
    parts.push_back(reshape(part, Dims{part.dim(0), part.dim(1), 1}));
  }
  return reshape(concatenate(parts, 2), grid_dims);
}

Values sample_backward(Lowering& op, size_t rank) {
  const DType dtype = op.tensor(1).dtype();
  const Value image = convert(op.tensor(1), DType::kF64);
  const Value original_grid = op.tensor(2);
  // The nearest element is the one that the forward pass chose.
  const bool nearest = op.integer(3) == kNearest;
  const Value grid = nearest ? to_compute(original_grid) : convert(original_grid, DType::kF64);
  const std::vector<bool> wanted = op.flags(6);
  Values results(2);
  if (op.tensor(0).type.elements() == 0 || image.type.elements() == 0) {
    if (wanted[0]) results[0] = op.builder().splat(0.0, {dtype, image.dims()});
    results[1] = op.builder().splat(0.0, original_grid.type);
    return results;
  }
  const Samples samples =
      samples_of(grid, last_dims(image.dims(), rank), op.integer(3), op.integer(4), op.flag(5), DType::kF64);
  const Value dy =
      reshape(convert(op.tensor(0), DType::kF64), Dims{image.dim(0), image.dim(1), samples.index.dim(2)});
  if (wanted[0]) results[0] = convert(image_gradient(dy, samples, image.dims()), dtype);
  // As ATen, the gradient of the grid is always computed.
  results[1] = convert(grid_gradient(dy, image, samples, grid.dims()), original_grid.dtype());
  return results;
}

}  // namespace

OP("aten::grid_sampler_2d") { return sample(op, 2); }
OP("aten::grid_sampler_2d_backward") { return sample_backward(op, 2); }
OP("aten::grid_sampler_3d") { return sample(op, 3); }
OP("aten::grid_sampler_3d_backward") { return sample_backward(op, 3); }

}  // namespace torch_tpu::ops
