// Adaptive pooling: output position i of o covers [floor(i * n / o), ceil((i + 1) * n / o)).
#include "ops/pool.h"
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

struct Cover {
  std::vector<int64_t> start, end;
  int64_t longest = 0;
};

Cover cover_of(int64_t input, int64_t output) {
  Cover cover;
  for (int64_t i = 0; i < output; ++i) {
    cover.start.push_back(i * input / output);
    cover.end.push_back(((i + 1) * input + output - 1) / output);
    cover.longest = std::max(cover.longest, cover.end.back() - cover.start.back());
  }
  return cover;
}

Dims split_dims(Dims dims, int64_t dim, int64_t outer, int64_t inner) {
  dims[dim] = outer;
  dims.insert(static_cast<size_t>(dim) + 1, inner);
  return dims;
}

// `dim` split into [output, longest]: the positions of each window, the last one repeated.
Value windows_of(const Value& x, int64_t dim, int64_t output, const Cover& cover) {
  if (x.dim(dim) % output == 0) return reshape(x, split_dims(x.dims(), dim, output, cover.longest));
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < output; ++i) {
    for (int64_t j = 0; j < cover.longest; ++j)
      positions.push_back(std::min(cover.start[i] + j, cover.end[i] - 1));
  }
  return reshape(pool::take(x, dim, positions), split_dims(x.dims(), dim, output, cover.longest));
}

Value sum_of_windows(const Value& x, int64_t dim, int64_t output) {
  if (x.dim(dim) == output) return x;
  const Cover cover = cover_of(x.dim(dim), output);
  Value values = windows_of(x, dim, output, cover);
  if (x.dim(dim) % output != 0) {
    std::vector<double> inside;
    for (int64_t i = 0; i < output; ++i) {
      for (int64_t j = 0; j < cover.longest; ++j)
        inside.push_back(cover.start[i] + j < cover.end[i] ? 1.0 : 0.0);
    }
    const Value mask = x.builder->array(inside, {DType::kPred, {output, cover.longest}});
    values = select(broadcast_in_dim(mask, values.dims(), Dims{dim, dim + 1}), values, like(values, 0.0));
  }
  return reduce(values, Reduction::kSum, Dims{dim + 1});
}

// The number of elements in each window, shaped to broadcast against the output.
Value window_sizes(Builder& builder, const Dims& input, const Dims& output, DType dtype) {
  Value count = builder.splat(1.0, {dtype, {}});
  for (size_t i = 0; i < input.size(); ++i) {
    const Cover cover = cover_of(input[i], output[i]);
    std::vector<double> sizes;
    for (int64_t j = 0; j < output[i]; ++j)
      sizes.push_back(static_cast<double>(cover.end[j] - cover.start[j]));
    Dims dims(input.size(), 1);
    dims[i] = output[i];
    count = count * (input[i] % output[i] == 0 ? builder.splat(sizes[0], {dtype, {}})
                                               : builder.array(sizes, {dtype, dims}));
  }
  return count;
}

Values adaptive_average(Lowering& op, size_t rank) {
  const DType dtype = op.tensor(0).dtype();
  const Value x = to_compute(op.tensor(0));
  const Dims output = per_dimension(op.integers(1), rank);
  const Dims input = last_dims(x.dims(), rank);
  const Dims dims = with_last_dims(x.dims(), output);
  if (element_count(dims) == 0) return {op.builder().splat(0.0, {dtype, dims})};
  Value sum = x;
  for (size_t i = rank; i-- > 0;) {
    sum = sum_of_windows(sum, static_cast<int64_t>(x.dims().size() - rank + i), output[i]);
  }
  return {convert(sum / broadcast_to(window_sizes(op.builder(), input, output, x.dtype()), dims), dtype)};
}

// Which outputs cover an input position follows the same rule with input and output exchanged.
Values adaptive_average_backward(Lowering& op, size_t rank) {
  const DType dtype = op.tensor(0).dtype();
  const Value dy = to_compute(op.tensor(0));
  const Dims dims = op.tensor(1).dims();
  const Dims input = last_dims(dims, rank);
  if (element_count(dims) == 0 || dy.type.elements() == 0) return {op.builder().splat(0.0, {dtype, dims})};
  const Value sizes = window_sizes(op.builder(), input, last_dims(dy.dims(), rank), dy.dtype());
  Value sum = dy / broadcast_to(sizes, dy.dims());
  for (size_t i = 0; i < rank; ++i) {
    sum = sum_of_windows(sum, static_cast<int64_t>(dims.size() - rank + i), input[i]);
  }
  return {convert(sum, dtype)};
}

// Dimension by dimension from the last: the winner of a row, then the winner of those rows, is the
// winner of the window with torch's order of ties.
Values adaptive_max(Lowering& op, size_t rank) {
  const Value x = op.tensor(0);
  Builder& builder = op.builder();
  const Dims output = per_dimension(op.integers(1), rank);
  const Dims input = last_dims(x.dims(), rank);
  const Dims dims = with_last_dims(x.dims(), output);
  if (element_count(dims) == 0)
    return {builder.splat(0.0, {x.dtype(), dims}), builder.splat(0.0, {DType::kS64, dims})};
  Value value = x;
  Value index =
      broadcast_to(reshape(builder.iota({DType::kS32, {element_count(input)}}, 0), input), x.dims());
  for (size_t i = rank; i-- > 0;) {
    const int64_t dim = static_cast<int64_t>(x.dims().size() - rank + i);
    if (input[i] == output[i]) continue;
    const Cover cover = cover_of(input[i], output[i]);
    const Values pair = pool::max_with_index(windows_of(value, dim, output[i], cover),
                                             windows_of(index, dim, output[i], cover), Dims{dim + 1});
    value = pair[0];
    index = pair[1];
  }
  return {value, convert(index, DType::kS64)};
}

Values adaptive_max_backward(Lowering& op, size_t rank) {
  const Value x = op.tensor(1);
  const Value grad = to_compute(op.tensor(0));
  return {convert(pool::scatter_in_planes(grad, op.tensor(2), x.dims(), rank, true), x.dtype())};
}

}  // namespace

OP("aten::_adaptive_avg_pool2d") { return adaptive_average(op, 2); }
OP("aten::_adaptive_avg_pool2d_backward") { return adaptive_average_backward(op, 2); }
OP("aten::_adaptive_avg_pool3d") { return adaptive_average(op, 3); }
OP("aten::_adaptive_avg_pool3d_backward") { return adaptive_average_backward(op, 3); }
OP("aten::adaptive_max_pool2d") { return adaptive_max(op, 2); }
OP("aten::adaptive_max_pool2d_backward") { return adaptive_max_backward(op, 2); }
OP("aten::adaptive_max_pool3d") { return adaptive_max(op, 3); }
OP("aten::adaptive_max_pool3d_backward") { return adaptive_max_backward(op, 3); }

}  // namespace torch_tpu::ops
