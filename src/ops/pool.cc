#include "ops/pool.h"

#include "ops/promotion.h"

namespace torch_tpu::ops::pool {

using namespace hlo;

Dims Geometry::output(const Dims& input) const {
  Dims sizes;
  for (size_t i = 0; i < rank(); ++i) {
    const int64_t free =
        input[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1 + (ceil_mode ? stride[i] - 1 : 0);
    int64_t size = (free >= 0 ? free / stride[i] : -((-free + stride[i] - 1) / stride[i])) + 1;
    if (ceil_mode && (size - 1) * stride[i] >= input[i] + padding[i]) --size;
    sizes.push_back(size);
  }
  return sizes;
}

Geometry geometry_of(Lowering& op, size_t rank, int kernel, int stride, int padding, int dilation,
                     int ceil_mode) {
  Geometry g;
  g.kernel = per_dimension(op.integers(kernel), rank);
  const std::vector<int64_t> strides = op.integers(stride);
  g.stride = strides.empty() ? g.kernel : per_dimension(strides, rank);
  g.padding = per_dimension(op.integers(padding), rank);
  g.dilation = dilation < 0 ? Dims(rank, 1) : per_dimension(op.integers(dilation), rank);
  g.ceil_mode = op.flag(ceil_mode);
  return g;
}

Values better(const Values& pairs) {
  const Value &a = pairs[0], &a_index = pairs[1], &b = pairs[2], &b_index = pairs[3];
  // A total order, so that every order of reduction gives the same result.
  Value wins =
      compare(Compare::kGt, b, a) | (compare(Compare::kEq, b, a) & compare(Compare::kLt, b_index, a_index));
  if (is_float(a.dtype())) {
    wins = wins | (is_nan(b) & ((!is_nan(a)) | compare(Compare::kGt, b_index, a_index)));
  }
  return {select(wins, b, a), select(wins, b_index, a_index)};
}

Values max_with_index(const Value& values, const Value& indices, const Dims& dims) {
  Builder& builder = *values.builder;
  return reduce({values, indices},
                {builder.lowest({values.dtype(), {}}), builder.highest({indices.dtype(), {}})}, dims, better);
}

Value scatter_in_planes(const Value& values, const Value& indices, const Dims& dims, size_t rank, bool add) {
  Builder& builder = *values.builder;
  const int64_t total = element_count(dims);
  if (total == 0 || values.type.elements() == 0) return builder.splat(0.0, {values.dtype(), dims});
  const int64_t plane = element_count(last_dims(dims, rank));
  const int64_t planes = total / plane;
  const DType index_type = total < (int64_t{1} << 31) ? DType::kS32 : DType::kS64;
  const Dims flat{planes, values.type.elements() / planes};
  const Value start = builder.iota({index_type, flat}, 0) * static_cast<double>(plane);
  const Value position = start + convert(reshape(indices, flat), index_type);
  const Value zeros = builder.splat(0.0, {values.dtype(), {total}});
  ScatterDims scatter_dims{{}, {0}, {0}, 1, false};
  const Value result = scatter(zeros, reshape(position, Dims{position.type.elements(), 1}),
                               reshape(values, Dims{values.type.elements()}), scatter_dims,
                               [add](const Values& x) -> Values { return {add ? x[0] + x[1] : x[1]}; });
  return reshape(result, dims);
}

Value take(const Value& x, int64_t dim, const std::vector<int64_t>& positions) {
  GatherDims dims;
  dims.collapsed_slice_dims = {dim};
  dims.start_index_map = {dim};
  dims.slice_sizes = x.dims();
  dims.slice_sizes[dim] = 1;
  dims.index_vector_dim = 1;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) dims.offset_dims.push_back(i);
  }
  return gather(x, x.builder->integers(positions, DType::kS32), dims);
}

}  // namespace torch_tpu::ops::pool
