// Convolutions written as dots over patches and as shifted multiply-adds.
#include "ops/convolution.h"
#include "ops/promotion.h"

namespace torch_tpu::ops::conv {

using namespace hlo;

namespace {

int64_t product(const Dims& dims) { return element_count(dims); }

Dims appended(Dims dims, const Dims& more) {
  for (const int64_t size : more) dims.push_back(size);
  return dims;
}

Value with_first_two_swapped(const Value& x) {
  Dims order;
  for (int64_t i = 0; i < x.rank(); ++i) order.push_back(i < 2 ? 1 - i : i);
  return transpose(x, order);
}

// True where the patches tile the image: kernel equals stride (patch embeddings, transposed
// convolutions of U-Nets). Then they are a reshape and a transpose.
bool tiles(const Dims& input, const Dims& kernel, const Geometry& g) {
  for (size_t i = 0; i < g.rank(); ++i) {
    if (kernel[i] != g.stride[i] || g.dilation[i] != 1 || g.padding[i] != 0 || input[i] % kernel[i] != 0)
      return false;
  }
  return true;
}

// From [..., o0, k0, o1, k1, ...] to [..., k0, k1, ..., n, o0, o1, ...] and back, for a leading
// [c, n]: `forward` says which.
Dims tile_order(size_t rank, bool forward) {
  Dims order{0};
  const auto at = [](size_t i) { return static_cast<int64_t>(i); };
  if (forward) {
    for (size_t i = 0; i < rank; ++i) order.push_back(at(2 * i + 3));
    order.push_back(1);
    for (size_t i = 0; i < rank; ++i) order.push_back(at(2 * i + 2));
  } else {
    order.push_back(at(rank + 1));
    for (size_t i = 0; i < rank; ++i) {
      order.push_back(at(rank + 2 + i));
      order.push_back(at(1 + i));
    }
  }
  return order;
}

// x[n, c, ...] as [groups, c / groups * taps, n * positions].
Value patches(const Value& x, const Dims& kernel, const Dims& output, const Geometry& g) {
  const int64_t n = x.dim(0);
  const int64_t c = x.dim(1);
  const Value channels_first = with_first_two_swapped(x);
  const Dims result{g.groups, c / g.groups * product(kernel), n * product(output)};
  if (tiles(spatial(x.dims()), kernel, g)) {
    Dims split{c, n};
    for (size_t i = 0; i < g.rank(); ++i) {
      split.push_back(output[i]);
      split.push_back(kernel[i]);
    }
    return reshape(transpose(reshape(channels_first, split), tile_order(g.rank(), true)), result);
  }
  const Value image = window_padded(channels_first, g, kernel, output, 0.0);
  Values parts;
  for (const Dims& tap : window_taps(kernel)) {
    parts.push_back(reshape(under_tap(image, tap, output, g), Dims{c, 1, n * product(output)}));
  }
  return reshape(concatenate(parts, 1), result);
}

// The transpose of patches: adds [groups, c / groups * taps, n * positions] up to [n, c, ...].
Value fold_patches(const Value& columns, const Dims& kernel, const Dims& output, const Geometry& g,
                   const Dims& input_dims) {
  const int64_t n = input_dims[0];
  const int64_t c = input_dims[1];
  const Dims input = spatial(input_dims);
  if (tiles(input, kernel, g)) {
    const Value split = reshape(columns, appended(appended(Dims{c}, kernel), appended(Dims{n}, output)));
    const Value image = reshape(transpose(split, tile_order(g.rank(), false)), appended(Dims{c, n}, input));
    return with_first_two_swapped(image);
  }
  const Value by_tap = reshape(columns, appended(Dims{c, product(kernel), n}, output));
  Value sum;
  int64_t number = 0;
  for (const Dims& tap : window_taps(kernel)) {
    const Value values = reshape(slice_dim(by_tap, 1, number, number + 1), appended(Dims{c, n}, output));
    const Value part = onto_input(values, tap, input, g);
    sum = number++ == 0 ? part : sum + part;
  }
  return with_first_two_swapped(sum);
}

// y[n, o, ...] as [groups, o / groups, n * positions].
Value outputs_first(const Value& y, const Geometry& g) {
  return reshape(with_first_two_swapped(y),
                 Dims{g.groups, y.dim(1) / g.groups, y.dim(0) * product(spatial(y.dims()))});
}

}  // namespace

Value patches_dot(const Value& x, const Value& w, const Geometry& g) {
  const Dims kernel = spatial(w.dims());
  const Dims output = output_spatial(spatial(x.dims()), kernel, g);
  const Value columns = patches(x, kernel, output, g);
  const Value matrix = reshape(w, Dims{g.groups, w.dim(0) / g.groups, columns.dim(1)});
  const Value y = dot_general(matrix, columns, {{0}, {0}, {2}, {1}}, compute_dtype(x.dtype()));
  return with_first_two_swapped(reshape(y, appended(Dims{w.dim(0), x.dim(0)}, output)));
}

Value patches_input_gradient(const Value& dy, const Value& w, const Geometry& g, const Dims& input_dims) {
  const Dims kernel = spatial(w.dims());
  const Value matrix = reshape(w, Dims{g.groups, w.dim(0) / g.groups, w.dim(1) * product(kernel)});
  const Value grad = outputs_first(dy, g);
  const DType dtype = compute_dtype(dy.dtype());
  Value columns;
  if (product(kernel) == 1) {
    columns = dot_general(matrix, grad, {{0}, {0}, {1}, {1}}, dtype);
  } else {
    // A dot over the rows of a large weight leaves the fast path (20 ms against 9 for 512 channels on
    // 7x7); transposing the gradient and the columns is cheaper.
    const Value positions_first = transpose(grad, Dims{0, 2, 1});
    const Value by_position = dot_general(positions_first, matrix, {{0}, {0}, {2}, {1}}, dtype);
    columns = transpose(by_position, Dims{0, 2, 1});
  }
  return fold_patches(columns, kernel, spatial(dy.dims()), g, input_dims);
}

Value patches_weight_gradient(const Value& x, const Value& dy, const Geometry& g, const Dims& weight_dims) {
  const Value columns = patches(x, spatial(weight_dims), spatial(dy.dims()), g);
  const Value matrix =
      dot_general(outputs_first(dy, g), columns, {{0}, {0}, {2}, {2}}, compute_dtype(x.dtype()));
  return reshape(matrix, weight_dims);
}

namespace {

// w[c * m, 1, ...] at one tap, shaped to multiply [n, c, m, positions...].
Value weight_at(const Value& w, const Dims& tap, int64_t channels, size_t rank) {
  Dims start(w.dims().size(), 0);
  Dims limit = w.dims();
  for (size_t i = 0; i < rank; ++i) {
    start[i + 2] = tap[i];
    limit[i + 2] = tap[i] + 1;
  }
  return reshape(slice(w, start, limit), appended(Dims{channels, w.dim(0) / channels}, Dims(rank, 1)));
}

// y[n, c * m, ...] as [n, c, m, ...].
Value by_channel(const Value& y, int64_t channels) {
  return reshape(y, appended(Dims{y.dim(0), channels, y.dim(1) / channels}, spatial(y.dims())));
}

}  // namespace

Value shifted(const Value& x, const Value& w, const Geometry& g) {
  const int64_t channels = x.dim(1);
  const Value weight = to_compute(w);
  const Dims output = output_spatial(spatial(x.dims()), spatial(w.dims()), g);
  const Value image = window_padded(by_channel(to_compute(x), channels), g, spatial(w.dims()), output, 0.0);
  Value sum;
  for (const Dims& tap : window_taps(spatial(w.dims()))) {
    const Value part = under_tap(image, tap, output, g) * weight_at(weight, tap, channels, g.rank());
    sum = sum ? sum + part : part;
  }
  return reshape(sum, appended(Dims{x.dim(0), w.dim(0)}, output));
}

Value shifted_input_gradient(const Value& dy, const Value& w, const Geometry& g, const Dims& input_dims) {
  const int64_t channels = input_dims[1];
  const Value weight = to_compute(w);
  const Value grad = by_channel(to_compute(dy), channels);
  Value sum;
  for (const Dims& tap : window_taps(spatial(w.dims()))) {
    Value values = grad * weight_at(weight, tap, channels, g.rank());
    values = grad.dim(2) == 1 ? values : reduce_keep(values, Reduction::kSum, Dims{2});
    const Value part = onto_input(values, tap, spatial(input_dims), g);
    sum = sum ? sum + part : part;
  }
  return reshape(sum, input_dims);
}

Value shifted_weight_gradient(const Value& x, const Value& dy, const Geometry& g, const Dims& weight_dims) {
  const int64_t channels = x.dim(1);
  const Value image =
      window_padded(by_channel(to_compute(x), channels), g, spatial(weight_dims), spatial(dy.dims()), 0.0);
  const Value grad = by_channel(to_compute(dy), channels);
  Dims summed{0};
  for (int64_t i = 3; i < grad.rank(); ++i) summed.push_back(i);
  Values parts;
  for (const Dims& tap : window_taps(spatial(weight_dims))) {
    const Value values = under_tap(image, tap, spatial(dy.dims()), g) * grad;
    parts.push_back(reshape(reduce(values, Reduction::kSum, summed), Dims{weight_dims[0], 1}));
  }
  return reshape(concatenate(parts, 1), weight_dims);
}

}  // namespace torch_tpu::ops::conv
