// unique and its kin. One program sorts, numbers and counts; its results are cut to what was found.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <tuple>

#include "torch/dynamic_shape.h"
#include "torch/record.h"

namespace torch_tpu {
namespace {

using at::Tensor;
using Unique = std::tuple<Tensor, Tensor, Tensor>;  // elements, inverse, counts

Tensor empty_like_of(const Tensor& self, c10::IntArrayRef sizes, c10::ScalarType dtype) {
  return make_empty(sizes, dtype, self.device().index());
}

void require_order(const Tensor& self, const char* kernel) {
  const auto dtype = self.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isComplexType(dtype) && !c10::isFloat8Type(dtype), "\"", kernel,
                              "\" not implemented for '", c10::toString(dtype), "'");
}

Unique unique_elements(const Tensor& self, bool sorts, bool with_inverse, bool with_counts) {
  require_order(self, "unique");
  Tensor inverse = empty_like_of(self, {0}, at::kLong);
  Tensor counts = empty_like_of(self, {0}, at::kLong);
  if (self.numel() == 0) {
    if (with_inverse) inverse = empty_like_of(self, self.sizes(), at::kLong);
    return {empty_like_of(self, {0}, self.scalar_type()), inverse, counts};
  }
  const auto results =
      record_results("tpu::unique", {read(self)}, {ops::TensorArg{0}, sorts, with_inverse, with_counts});
  const int64_t count = read_count(results[1]);
  if (with_inverse) inverse = make_tensor(results[2]);
  if (with_counts) counts = first_rows(results.back(), count);
  return {first_rows(results[0], count), inverse, counts};
}

Unique unique_slices(const Tensor& self, int64_t dim, bool sorts) {
  require_order(self, "unique_dim");
  dim = c10::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/false);
  if (self.numel() == 0) {
    const auto empty_dims = std::count(self.sizes().begin(), self.sizes().end(), 0);
    TORCH_CHECK(self.size(dim) == 0,
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
    TORCH_CHECK(empty_dims == 1,
                "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    return {empty_like_of(self, self.sizes(), self.scalar_type()), empty_like_of(self, {0}, at::kLong),
            empty_like_of(self, {0}, at::kLong)};
  }
  const auto results = record_results("tpu::unique_slices", {read(self)}, {ops::TensorArg{0}, dim, sorts});
  const int64_t count = read_count(results[1]);
  return {first_rows(results[0], count).movedim(0, dim), make_tensor(results[2]),
          first_rows(results[3], count)};
}

std::tuple<Tensor, Tensor> unique(const Tensor& self, bool, bool with_inverse) {
  auto [elements, inverse, counts] = unique_elements(self, true, with_inverse, false);
  return {elements, inverse};
}

Unique unique2(const Tensor& self, bool, bool with_inverse, bool with_counts) {
  return unique_elements(self, true, with_inverse, with_counts);
}

// The inverse and the counts come in any case, as on the CPU.
Unique unique_dim(const Tensor& self, int64_t dim, bool, bool, bool) {
  if (self.dim() == 1 && self.numel() > 0) {
    (void)c10::maybe_wrap_dim(dim, 1);
    return unique_elements(self, true, true, true);
  }
  return unique_slices(self, dim, true);
}

Unique unique_dim_consecutive(const Tensor& self, int64_t dim, bool, bool) {
  return unique_slices(self, dim, false);
}

Unique unique_consecutive(const Tensor& self, bool with_inverse, bool with_counts,
                          std::optional<int64_t> dim) {
  if (dim.has_value() && !(*dim == 0 && self.dim() == 1)) return unique_slices(self, *dim, false);
  return unique_elements(self, false, with_inverse, with_counts);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_unique", unique);
  m.impl("_unique2", unique2);
  m.impl("unique_dim", unique_dim);
  m.impl("unique_consecutive", unique_consecutive);
  m.impl("unique_dim_consecutive", unique_dim_consecutive);
}

}  // namespace torch_tpu
