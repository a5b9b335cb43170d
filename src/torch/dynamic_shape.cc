#include "torch/dynamic_shape.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/tensor_split_native.h>
#include <torch/library.h>

#include <bit>

#include "torch/copy.h"
#include "torch/device.h"
#include "torch/dtype.h"
#include "torch/record.h"

namespace torch_tpu {

int64_t capacity_for(int64_t count, int64_t most) {
  constexpr int64_t kLeast = 16;  // smaller programs would save nothing
  return std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(count, kLeast)))), most);
}

int64_t read_count(const engine::TensorPtr& value) {
  int64_t count = 0;
  read_to_host(value, &count);
  return count;
}

at::Tensor first_rows(engine::TensorPtr padded, int64_t count) {
  const int64_t rows = padded->type.dims[0];
  if (const int64_t capacity = capacity_for(count, rows); capacity < rows) {
    padded = record_internal("tpu::first_rows", {padded}, {ops::TensorArg{0}, capacity});
  }
  const at::Tensor tensor = make_tensor(std::move(padded));
  return count == tensor.size(0) ? tensor : tensor.narrow(0, 0, count);
}

namespace {

using at::Tensor;

bool is_mask(const Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

int64_t count_nonzero(const engine::TensorPtr& value) {
  if (value->type.elements() == 0) return 0;
  return read_count(record_internal("tpu::nonzero_count", {value}, {ops::TensorArg{0}}));
}

Tensor zeros(c10::IntArrayRef sizes, c10::ScalarType dtype, int device_index) {
  return make_empty(sizes, dtype, device_index).zero_();
}

// self[mask] for a mask over the leading dimensions.
Tensor masked_rows(const Tensor& self, const Tensor& mask) {
  const auto mask_value = read(mask);
  const int64_t count = count_nonzero(mask_value);
  std::vector<int64_t> sizes = self.sizes().slice(mask.dim()).vec();
  sizes.insert(sizes.begin(), count);
  if (c10::multiply_integers(sizes) == 0) return zeros(sizes, self.scalar_type(), self.device().index());
  const auto rows =
      record_internal("tpu::masked_rows", {read(self), mask_value},
                      {ops::TensorArg{0}, ops::TensorArg{1}, capacity_for(count, mask.numel())});
  return first_rows(rows, count);
}

}  // namespace

Tensor nonzero(const Tensor& self) {
  const auto value = read(self);
  const int64_t count = count_nonzero(value);
  if (count == 0) return zeros({0, self.dim()}, at::kLong, self.device().index());
  const auto rows =
      record_internal("tpu::nonzero", {value}, {ops::TensorArg{0}, capacity_for(count, self.numel())});
  return first_rows(rows, count);
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto sizes = at::infer_size_dimvector(self.sizes(), mask.sizes());
  return masked_rows(self.expand(sizes), mask.expand(sizes));
}

namespace {

Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights, int64_t minlength) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), false),
                              "\"bincount_cpu\" not implemented for '", c10::toString(self.scalar_type()),
                              "'");
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  const int device_index = self.device().index();
  if (self.numel() == 0) return zeros({minlength}, at::kLong, device_index);
  const bool weighted = weights.has_value() && weights->defined();
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const auto value = read(self);
  int64_t extrema[2];
  read_to_host(record_internal("tpu::extrema", {value}, {ops::TensorArg{0}}), extrema);
  TORCH_CHECK(extrema[0] >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const int64_t count = std::max(extrema[1] + 1, minlength);
  const int64_t bins = capacity_for(count, std::numeric_limits<int64_t>::max());
  if (!weighted) {
    return first_rows(record_internal("tpu::bincount", {value}, {ops::TensorArg{0}, std::monostate(), bins}),
                      count);
  }
  const hlo::DType dtype = weights->scalar_type() == at::kFloat ? hlo::DType::kF32 : hlo::DType::kF64;
  return first_rows(record_internal("tpu::bincount", {value, record_convert(read(*weights), dtype)},
                                    {ops::TensorArg{0}, ops::TensorArg{1}, bins}),
                    count);
}

Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  const auto dtype = repeats.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(dtype == at::kLong || dtype == at::kInt,
                              "\"repeat_interleave_cpu\" not implemented for '", c10::toString(dtype), "'");
  if (repeats.numel() == 0) return zeros({0}, dtype, repeats.device().index());
  const auto value = read(repeats);
  if (output_size.has_value() && *output_size > 0) {
    return make_tensor(record_internal("tpu::repeat_exactly", {value}, {ops::TensorArg{0}, *output_size}));
  }
  const auto ends = record_results("tpu::repeat_ends", {value}, {ops::TensorArg{0}});
  int64_t least_and_sum[2];
  read_to_host(ends[1], least_and_sum);
  TORCH_CHECK(least_and_sum[0] >= 0, "repeats can not be negative");
  const int64_t count = least_and_sum[1];
  TORCH_CHECK(!output_size.has_value() || *output_size == count,
              "allocated size does not match required size");
  if (count == 0) return zeros({0}, dtype, repeats.device().index());
  const int64_t capacity = capacity_for(count, std::numeric_limits<int64_t>::max());
  return first_rows(
      record_internal("tpu::repeat_indices", {ends[0]}, {ops::TensorArg{0}, capacity, to_hlo(dtype)}), count);
}

// x[mask, ...], the common case, without a program for each number of results.
bool is_masked_rows(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  if (indices.empty() || !is_tpu(self)) return false;
  for (size_t i = 1; i < indices.size(); ++i) {
    if (const std::optional<Tensor> index = indices.get(i); index.has_value() && index->defined())
      return false;
  }
  const std::optional<Tensor> mask = indices.get(0);
  if (!mask.has_value() || !mask->defined() || !is_mask(*mask) || mask->dim() == 0) return false;
  const auto indexed = static_cast<int64_t>(indices.size()) - 1 + mask->dim();
  return indexed <= self.dim() && self.sizes().slice(0, mask->dim()) == mask->sizes();
}

Tensor index(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  if (is_masked_rows(self, indices)) return masked_rows(self, indices.get(0)->to(self.device()));
  static const ops::Op& op = *ops::find_op("aten::index.Tensor");
  static const Binding& binding = *new Binding(make_binding(*own_operator(op), op));
  torch::jit::Stack stack{self, indices};
  run_binding(binding, stack);
  return stack[0].toTensor();
}

// The sizes of the parts shape them, so their numbers are needed on the host.
std::vector<Tensor> tensor_split(const Tensor& self, const Tensor& indices, int64_t dim) {
  return at::native::tensor_split(self, indices.cpu(), dim);
}

// Whether index_put writes one number where its only index, a mask, is set.
bool fills_by_mask(const Binding& binding, const c10::IValue* values) {
  if (binding.op->name != "aten::index_put" && binding.op->name != "aten::_index_put_impl") return false;
  const Tensor& self = values[0].toTensor();
  const Tensor& number = values[2].toTensor();
  if (number.numel() != 1 || number.dim() > 1 || values[3].toBool()) return false;
  int64_t place = 0;
  int64_t mask_place = -1;
  Tensor mask;
  for (const c10::IValue& element : values[1].toListRef()) {
    if (!element.isNone() && element.toTensor().defined()) {
      if (mask.defined()) return false;
      mask = element.toTensor();
      mask_place = place;
    }
    ++place;
  }
  if (!mask.defined() || !is_mask(mask) || !is_tpu(mask) || mask.dim() == 0) return false;
  if (place - 1 + mask.dim() > self.dim()) return false;
  return self.sizes().slice(mask_place, mask.dim()) == mask.sizes();
}

// The index tensors that stand for the mask `index` of the dimensions from `dim` on.
void expand_mask(const Tensor& self, const Tensor& index, int64_t dim,
                 c10::List<std::optional<Tensor>>& expanded) {
  for (int64_t k = 0; k < index.dim(); ++k) {
    TORCH_CHECK_INDEX(dim + k < self.dim() && index.size(k) == self.size(dim + k), "The shape of the mask ",
                      index.sizes(), " at index ", k, " does not match the shape of the indexed tensor ",
                      self.sizes(), " at index ", dim + k);
  }
  const Tensor columns = torch_tpu::nonzero(index);
  for (int64_t k = 0; k < index.dim(); ++k) expanded.push_back(columns.select(1, k));
}

}  // namespace

void expand_index_masks(const Binding& binding, c10::IValue* values) {
  const Tensor& self = values[0].toTensor();
  if (fills_by_mask(binding, values)) return;
  for (size_t i = 0; i < binding.arguments.size(); ++i) {
    if (binding.arguments[i].kind != ArgKind::kTensorList) continue;
    c10::List<std::optional<Tensor>> expanded;
    int64_t dim = 0;
    for (const c10::IValue& element : values[i].toListRef()) {
      if (element.isNone() || !element.toTensor().defined()) {
        expanded.push_back(std::optional<Tensor>());
        ++dim;
        continue;
      }
      const Tensor index =
          element.toTensor().is_cpu() ? element.toTensor().to(self.device()) : element.toTensor();
      if (is_mask(index)) {
        expand_mask(self, index, dim, expanded);
        dim += index.dim();
      } else {
        expanded.push_back(index);
        ++dim;
      }
    }
    values[i] = expanded;
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("bincount", bincount);
  m.impl("repeat_interleave.Tensor", repeat_interleave);
  m.impl("index.Tensor", index);
  m.impl("tensor_split.tensor_indices_or_sections", tensor_split);
}

// What it calls is differentiable; it is not.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("tensor_split.tensor_indices_or_sections", tensor_split);
}

}  // namespace torch_tpu
