#include "torch/dynamic_shape.h"

#include <ATen/ExpandUtils.h>

#include <bit>

#include "torch/copy.h"
#include "torch/device.h"
#include "torch/dtype.h"
#include "torch/record.h"

namespace torch_tpu {
namespace {

int64_t count_nonzero(const engine::TensorPtr& value) {
  const auto count = record_internal("tpu::nonzero_count", {value}, {ops::TensorArg{0}});
  int64_t number = 0;
  read_to_host(count, &number);
  return number;
}

int64_t capacity_for(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
}

// The first `count` rows of a padded result, as a tensor of its own.
at::Tensor first_rows(const at::Tensor& padded, int64_t count) {
  return count == padded.size(0) ? padded : padded.narrow(0, 0, count);
}

}  // namespace

at::Tensor nonzero(const at::Tensor& self) {
  const auto value = read(self);
  const int64_t count = self.numel() == 0 ? 0 : count_nonzero(value);
  if (count == 0) {
    return make_empty({0, self.dim()}, {std::max<int64_t>(self.dim(), 1), 1}, at::kLong,
                      self.device().index());
  }
  const auto rows = record_internal("tpu::nonzero", {value},
                                    {ops::TensorArg{0}, std::min(capacity_for(count), self.numel())});
  return first_rows(make_tensor(rows), count);
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  at::Tensor wide_mask = mask;
  at::Tensor wide_self = self;
  if (self.sizes() != mask.sizes()) {
    const auto broadcast = at::infer_size_dimvector(self.sizes(), mask.sizes());
    wide_self = self.expand(broadcast);
    wide_mask = mask.expand(broadcast);
  }
  const auto mask_value = read(wide_mask);
  const int64_t count = wide_mask.numel() == 0 ? 0 : count_nonzero(mask_value);
  if (count == 0) return make_empty({0}, {1}, self.scalar_type(), self.device().index());
  const auto selected = record_internal(
      "tpu::masked_select", {read(wide_self), mask_value},
      {ops::TensorArg{0}, ops::TensorArg{1}, std::min(capacity_for(count), wide_mask.numel())});
  return first_rows(make_tensor(selected), count);
}

void expand_index_masks(const Binding& binding, c10::IValue* values) {
  const at::Tensor& self = values[0].toTensor();
  for (size_t i = 0; i < binding.arguments.size(); ++i) {
    if (binding.arguments[i].kind != ArgKind::kTensorList) continue;
    c10::List<std::optional<at::Tensor>> expanded;
    int64_t dim = 0;
    for (const c10::IValue& element : values[i].toListRef()) {
      if (element.isNone() || !element.toTensor().defined()) {
        expanded.push_back(std::optional<at::Tensor>());
        ++dim;
        continue;
      }
      at::Tensor index = element.toTensor();
      if (index.is_cpu()) index = index.to(self.device());
      const bool is_mask = index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
      if (!is_mask) {
        expanded.push_back(index);
        ++dim;
        continue;
      }
      for (int64_t k = 0; k < index.dim(); ++k) {
        TORCH_CHECK_INDEX(dim + k < self.dim() && index.size(k) == self.size(dim + k),
                          "The shape of the mask ", index.sizes(), " at index ", k,
                          " does not match the shape of the indexed tensor ", self.sizes(), " at index ",
                          dim + k);
      }
      const at::Tensor columns = torch_tpu::nonzero(index);
      for (int64_t k = 0; k < index.dim(); ++k) expanded.push_back(columns.select(1, k));
      dim += index.dim();
    }
    values[i] = expanded;
  }
}

}  // namespace torch_tpu
