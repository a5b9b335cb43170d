// Resizing (upsample_*): nearest, linear, cubic and antialiased filters, with their gradients.
//
// Every method is a sparse linear map along one dimension after the other. The map is a table of
// source positions and weights made here with ATen's own arithmetic (UpSample.h), in the precision
// in which ATen computes it; its gradient is the transposed table.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/pool.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

struct Tap {
  int64_t position;
  double weight;
};
/// For each result position along one dimension, what it reads.
using Table = std::vector<std::vector<Tap>>;

enum class Method { kNearest, kNearestExact, kLinear, kCubic, kTriangleFilter, kCubicFilter, kLanczosFilter };

struct Axis {
  int64_t input, output;
  bool align_corners;
  std::optional<double> scale;
};

template <typename T>
T scale_of(const Axis& axis) {
  if (axis.align_corners) {
    return axis.output > 1 ? static_cast<T>(axis.input - 1) / static_cast<T>(axis.output - 1) : T(0);
  }
  if (axis.scale && *axis.scale > 0) return static_cast<T>(1.0 / *axis.scale);
  return static_cast<T>(axis.input) / static_cast<T>(axis.output);
}

// ATen takes the nearest neighbour in single precision for every dtype.
Table nearest_table(Axis axis, bool exact) {
  axis.align_corners = false;
  const float scale = scale_of<float>(axis);
  Table table;
  for (int64_t i = 0; i < axis.output; ++i) {
    int64_t position;
    if (exact) {
      position = static_cast<int64_t>(std::floor(static_cast<float>((static_cast<double>(i) + 0.5) * scale)));
    } else if (axis.output == axis.input) {
      position = i;
    } else if (axis.output == 2 * axis.input) {
      position = i / 2;
    } else {
      position = static_cast<int64_t>(std::floor(static_cast<float>(i) * scale));
    }
    table.push_back({{std::min(position, axis.input - 1), 1.0}});
  }
  return table;
}

template <typename T>
T source_index(const Axis& axis, T scale, int64_t i, bool cubic) {
  if (axis.align_corners) return scale * static_cast<T>(i);
  const T source = scale * (static_cast<T>(i) + T(0.5)) - T(0.5);
  return !cubic && source < T(0) ? T(0) : source;
}

template <typename T>
Table linear_table(const Axis& axis) {
  const T scale = scale_of<T>(axis);
  Table table;
  for (int64_t i = 0; i < axis.output; ++i) {
    if (axis.output == axis.input) {
      table.push_back({{i, 1.0}});
      continue;
    }
    const T source = source_index(axis, scale, i, false);
    const int64_t first = std::min(static_cast<int64_t>(source), axis.input - 1);
    const T fraction = std::min(std::max(source - static_cast<T>(first), T(0)), T(1));
    table.push_back({{first, static_cast<double>(T(1) - fraction)},
                     {first + (first < axis.input - 1 ? 1 : 0), static_cast<double>(fraction)}});
  }
  return table;
}

template <typename T>
Table cubic_table(const Axis& axis) {
  constexpr T a = T(-0.75);
  const auto near = [](T x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](T x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  const T scale = scale_of<T>(axis);
  Table table;
  for (int64_t i = 0; i < axis.output; ++i) {
    const T source = source_index(axis, scale, i, true);
    const int64_t base = std::min(static_cast<int64_t>(std::floor(source)), axis.input - 1);
    const T t = std::min(std::max(source - static_cast<T>(base), T(0)), T(1));
    const T weights[4] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
    std::vector<Tap> taps;
    for (int64_t j = 0; j < 4; ++j) {
      taps.push_back({std::clamp<int64_t>(base - 1 + j, 0, axis.input - 1), static_cast<double>(weights[j])});
    }
    table.push_back(taps);
  }
  return table;
}

template <typename T>
T filter_weight(Method method, T x) {
  x = std::abs(x);
  if (method == Method::kTriangleFilter) return x < 1 ? 1 - x : T(0);
  if (method == Method::kCubicFilter) {
    constexpr T a = T(-0.5);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : T(0);
  }
  const auto sinc = [](T y) {
    return y == 0 ? T(1) : std::sin(y * std::numbers::pi_v<T>) / (y * std::numbers::pi_v<T>);
  };
  return x < 3 ? sinc(x) * sinc(x / 3) : T(0);
}

template <typename T>
Table filter_table(const Axis& axis, Method method) {
  const T scale = scale_of<T>(axis);
  const T width = method == Method::kTriangleFilter ? T(2) : method == Method::kCubicFilter ? T(4) : T(6);
  const T support = width * T(0.5) * std::max(scale, T(1));
  const T inverse = scale >= T(1) ? T(1) / scale : T(1);
  Table table;
  for (int64_t i = 0; i < axis.output; ++i) {
    const T center = scale * (static_cast<T>(i) + T(0.5));
    const int64_t first = std::max(static_cast<int64_t>(center - support + T(0.5)), int64_t{0});
    const int64_t last = std::min(static_cast<int64_t>(center + support + T(0.5)), axis.input);
    std::vector<Tap> taps;
    T total = 0;
    for (int64_t j = first; j < last; ++j) {
      const T weight = filter_weight(method, (static_cast<T>(j) - center + T(0.5)) * inverse);
      taps.push_back({j, static_cast<double>(weight)});
      total += weight;
    }
    for (Tap& tap : taps)
      tap.weight = total != 0 ? static_cast<double>(static_cast<T>(tap.weight) / total) : tap.weight;
    table.push_back(taps);
  }
  return table;
}

template <typename T>
Table table_of(const Axis& axis, Method method) {
  switch (method) {
    case Method::kNearest:
    case Method::kNearestExact:
      return nearest_table(axis, method == Method::kNearestExact);
    case Method::kLinear:
      return linear_table<T>(axis);
    case Method::kCubic:
      return cubic_table<T>(axis);
    default:
      return filter_table<T>(axis, method);
  }
}

Table transposed(const Table& table, int64_t input) {
  Table result(static_cast<size_t>(input));
  for (size_t i = 0; i < table.size(); ++i) {
    for (const Tap& tap : table[i]) result[tap.position].push_back({static_cast<int64_t>(i), tap.weight});
  }
  return result;
}

// The taps of a position as one.
std::vector<Tap> merged(const std::vector<Tap>& taps) {
  std::vector<Tap> result;
  for (const Tap& tap : taps) {
    const auto same = [&](const Tap& other) { return other.position == tap.position; };
    const auto found = std::find_if(result.begin(), result.end(), same);
    if (found == result.end()) {
      result.push_back(tap);
    } else {
      found->weight += tap.weight;
    }
  }
  return result;
}

// Bytes are resized with 16-bit fixed-point weights, as ATen and Pillow do.
void quantize(Table& table) {
  for (auto& taps : table) taps = merged(taps);
  double largest = 0;
  for (const auto& taps : table) {
    for (const Tap& tap : taps) largest = std::max(largest, tap.weight);
  }
  double unit = 1;
  for (int bits = 0; bits < 22 && std::floor(0.5 + largest * unit * 2) < 32768; ++bits) unit *= 2;
  for (auto& taps : table) {
    for (Tap& tap : taps) tap.weight = std::trunc(tap.weight * unit + (tap.weight < 0 ? -0.5 : 0.5)) / unit;
  }
}

// Result position i of a table that only copies: i / times, for every i.
int64_t repetition(const Table& table, int64_t input) {
  const int64_t output = static_cast<int64_t>(table.size());
  if (input == 0 || output % input != 0) return 0;
  const int64_t times = output / input;
  for (int64_t i = 0; i < output; ++i) {
    if (table[i].size() != 1 || table[i][0].weight != 1.0 || table[i][0].position != i / times) return 0;
  }
  return times;
}

Dims split_dims(Dims dims, int64_t dim, int64_t outer, int64_t inner) {
  dims[dim] = outer;
  dims.insert(static_cast<size_t>(dim) + 1, inner);
  return dims;
}

// A whole-number enlargement needs no gather.
Value repeat(const Value& x, int64_t dim, int64_t times) {
  Dims mapping;
  for (int64_t i = 0; i < x.rank(); ++i) mapping.push_back(i <= dim ? i : i + 1);
  Dims dims = x.dims();
  dims[dim] *= times;
  return reshape(broadcast_in_dim(x, split_dims(x.dims(), dim, x.dim(dim), times), mapping), dims);
}

Value apply(const Table& table, const Value& x, int64_t dim) {
  Builder& builder = *x.builder;
  const int64_t rows = static_cast<int64_t>(table.size());
  size_t longest = 0;
  for (const auto& taps : table) longest = std::max(longest, taps.size());
  std::vector<int64_t> positions;
  std::vector<double> weights;
  std::vector<double> inside;
  bool copies = true;
  bool ragged = false;
  for (const auto& taps : table) {
    for (size_t j = 0; j < longest; ++j) {
      const bool present = j < taps.size();
      positions.push_back(present ? taps[j].position : 0);
      weights.push_back(present ? taps[j].weight : 0.0);
      inside.push_back(present ? 1.0 : 0.0);
      copies = copies && (!present || taps[j].weight == 1.0);
      ragged = ragged || !present;
    }
  }
  Dims dims = x.dims();
  dims[dim] = rows;
  if (longest == 0) return builder.splat(0.0, {x.dtype(), dims});
  const int64_t count = static_cast<int64_t>(longest);
  Value values = reshape(pool::take(x, dim, positions), split_dims(x.dims(), dim, rows, count));
  const auto along = [&](const Value& constant) {
    return broadcast_in_dim(constant, values.dims(), Dims{dim, dim + 1});
  };
  if (!copies) values = values * along(builder.array(weights, {x.dtype(), {rows, count}}));
  if (ragged)
    values = select(along(builder.array(inside, {DType::kPred, {rows, count}})), values, like(values, 0.0));
  return longest == 1 ? reshape(values, dims) : reduce(values, Reduction::kSum, Dims{dim + 1});
}

struct Positions {
  int sizes;  // output_size; in backward input_size follows it
  int align;  // -1: the method has no such argument
  int scales;
};

std::vector<Table> tables_of(Lowering& op, Method method, const Dims& input, const Dims& output,
                             const Positions& at, bool wide) {
  std::vector<Table> tables;
  for (size_t i = 0; i < input.size(); ++i) {
    const Axis axis{input[i], output[i], at.align >= 0 && op.flag(at.align),
                    op.number(at.scales + static_cast<int>(i))};
    tables.push_back(wide ? table_of<double>(axis, method) : table_of<float>(axis, method));
  }
  return tables;
}

Values resize(Lowering& op, Method method, size_t rank, const Positions& at) {
  const Value original = op.tensor(0);
  const DType dtype = original.dtype();
  const bool moves_only = method == Method::kNearest || method == Method::kNearestExact;
  Value x = moves_only ? original : is_float(dtype) ? to_compute(original) : convert(original, DType::kF32);
  const Dims input = last_dims(x.dims(), rank);
  const Dims output(op.integers(at.sizes));
  const Dims dims = with_last_dims(x.dims(), output);
  if (element_count(dims) == 0) return {op.builder().splat(0.0, {dtype, dims})};
  const bool bytes = !moves_only && is_integer(dtype);
  std::vector<Table> tables = tables_of(op, method, input, output, at, bytes || dtype == DType::kF64);
  for (size_t i = rank; i-- > 0;) {
    if (bytes) quantize(tables[i]);
    const int64_t dim = static_cast<int64_t>(dims.size() - rank + i);
    const int64_t times = repetition(tables[i], input[i]);
    if (times == 1) continue;
    x = times > 1 ? repeat(x, dim, times) : apply(tables[i], x, dim);
    if (bytes) {
      // As ATen and Pillow: each pass ends in whole numbers.
      x = floor(x + 0.5);
      x = minimum(maximum(x, like(x, 0.0)), like(x, 255.0));
    }
  }
  return {convert(x, dtype)};
}

Values resize_backward(Lowering& op, Method method, size_t rank, const Positions& at) {
  const DType dtype = op.tensor(0).dtype();
  Value grad = to_compute(op.tensor(0));
  const Dims output(op.integers(at.sizes));
  const Dims dims(op.integers(at.sizes + 1));
  const Dims input = last_dims(dims, rank);
  if (grad.type.elements() == 0 || element_count(dims) == 0) return {op.builder().splat(0.0, {dtype, dims})};
  const std::vector<Table> tables = tables_of(op, method, input, output, at, dtype == DType::kF64);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t dim = static_cast<int64_t>(dims.size() - rank + i);
    const int64_t times = repetition(tables[i], input[i]);
    if (times == 1) continue;
    grad = times > 1 ? reduce(reshape(grad, split_dims(grad.dims(), dim, input[i], times)), Reduction::kSum,
                              Dims{dim + 1})
                     : apply(transposed(tables[i], input[i]), grad, dim);
  }
  return {convert(grad, dtype)};
}

}  // namespace

// The scale factors shape the tables.
#define RESIZE_1D(name, method, align)                                     \
  OP("aten::" name, .structural = {align + 2}) {                           \
    return resize(op, method, 1, {1, align ? 2 : -1, align + 2});          \
  }                                                                        \
  OP("aten::" name "_backward", .structural = {align + 3}) {               \
    return resize_backward(op, method, 1, {1, align ? 3 : -1, align + 3}); \
  }
#define RESIZE_2D(name, method, align)                                     \
  OP("aten::" name, .structural = {align + 2, align + 3}) {                \
    return resize(op, method, 2, {1, align ? 2 : -1, align + 2});          \
  }                                                                        \
  OP("aten::" name "_backward", .structural = {align + 3, align + 4}) {    \
    return resize_backward(op, method, 2, {1, align ? 3 : -1, align + 3}); \
  }
#define RESIZE_3D(name, method, align)                                             \
  OP("aten::" name, .structural = {align + 2, align + 3, align + 4}) {             \
    return resize(op, method, 3, {1, align ? 2 : -1, align + 2});                  \
  }                                                                                \
  OP("aten::" name "_backward", .structural = {align + 3, align + 4, align + 5}) { \
    return resize_backward(op, method, 3, {1, align ? 3 : -1, align + 3});         \
  }

RESIZE_1D("upsample_nearest1d", Method::kNearest, 0)
RESIZE_2D("upsample_nearest2d", Method::kNearest, 0)
RESIZE_3D("upsample_nearest3d", Method::kNearest, 0)
RESIZE_1D("_upsample_nearest_exact1d", Method::kNearestExact, 0)
RESIZE_2D("_upsample_nearest_exact2d", Method::kNearestExact, 0)
RESIZE_3D("_upsample_nearest_exact3d", Method::kNearestExact, 0)
RESIZE_1D("upsample_linear1d", Method::kLinear, 1)
RESIZE_2D("upsample_bilinear2d", Method::kLinear, 1)
RESIZE_3D("upsample_trilinear3d", Method::kLinear, 1)
RESIZE_2D("upsample_bicubic2d", Method::kCubic, 1)
RESIZE_2D("_upsample_bilinear2d_aa", Method::kTriangleFilter, 1)
RESIZE_2D("_upsample_bicubic2d_aa", Method::kCubicFilter, 1)
RESIZE_2D("_upsample_lanczos2d_aa", Method::kLanczosFilter, 1)

#undef RESIZE_1D
#undef RESIZE_2D
#undef RESIZE_3D

}  // namespace torch_tpu::ops
