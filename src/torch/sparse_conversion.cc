// Ways between dense and sparse tensors, and gradients that are sparse.
#include <ATen/ops/_embedding_bag_dense_backward.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <ATen/ops/_to_sparse_bsc_native.h>
#include <ATen/ops/_to_sparse_bsr_native.h>
#include <ATen/ops/_to_sparse_csc_native.h>
#include <ATen/ops/_to_sparse_csr_native.h>
#include <ATen/ops/_to_sparse_native.h>
#include <ATen/ops/_validate_compressed_sparse_indices.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>
#include <torch/library.h>

#include "torch/sparse.h"

namespace torch_tpu {
namespace {

namespace native = at::native;
using at::Tensor;

// The entries are the rows, over the sparse dimensions, that hold anything but zeros.
Tensor dense_to_coo(const Tensor& self, int64_t sparse_dim) {
  TORCH_CHECK(sparse_dim > 0 || self.dim() == 0, "sparse_dim must be >0 if dimensionality > 0");
  TORCH_CHECK(sparse_dim <= self.dim(), "sparse_dim must be less than or equal to self.dim()");
  Tensor filled = self.ne(0);
  std::vector<int64_t> dense_dims;
  for (int64_t dim = sparse_dim; dim < self.dim(); ++dim) dense_dims.push_back(dim);
  if (!dense_dims.empty()) filled = filled.any(dense_dims);
  const Tensor places = filled.nonzero();
  const Tensor indices = places.transpose(0, 1).contiguous();
  std::vector<int64_t> shape{-1};
  int64_t rows = 1;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    if (dim < sparse_dim)
      rows *= self.size(dim);
    else
      shape.push_back(self.size(dim));
  }
  shape[0] = rows;
  const Tensor values = self.reshape(shape).index_select(0, flatten_indices(indices, self.sizes()));
  return make_coo(indices, values, self.sizes(), true);
}

Tensor to_sparse(const Tensor& self, std::optional<c10::Layout> layout, at::OptionalIntArrayRef blocksize,
                 std::optional<int64_t> dense_dim) {
  const bool is_coo = layout.value_or(at::kSparse) == at::kSparse && !blocksize.has_value();
  if (is_coo) return dense_to_coo(self, self.dim() - dense_dim.value_or(0));
  return native::dense_to_sparse(self, layout, blocksize, dense_dim);
}

// Every number counts, and none is needed on the device.
void validate_compressed_indices(bool is_crow, const Tensor& compressed, const Tensor& plain, int64_t cdim,
                                 int64_t dim, int64_t nnz) {
  at::_validate_compressed_sparse_indices(is_crow, compressed.cpu(), plain.cpu(), cdim, dim, nnz);
}

// The bag of each index; a forward on the CPU may have left `given` out, the offsets tell as well.
Tensor bag_of_index(const Tensor& given, const Tensor& indices, const Tensor& offsets) {
  if (given.numel() == indices.numel()) return given;
  const Tensor place = at::arange(indices.numel(), offsets.options());
  return at::searchsorted(offsets, place, /*out_int32=*/false, /*right=*/true)
      .sub(1)
      .to(offsets.scalar_type());
}

Tensor embedding_bag_backward(const Tensor& grad, const Tensor& indices, const Tensor& offsets,
                              const Tensor& offset2bag, const Tensor& bag_size, const Tensor& maximum_indices,
                              int64_t num_weights, bool scale_grad_by_freq, int64_t mode, bool sparse,
                              const std::optional<Tensor>& per_sample_weights, int64_t padding_idx) {
  const Tensor bags = bag_of_index(offset2bag, indices, offsets);
  if (sparse) {
    return at::_embedding_bag_sparse_backward(grad, indices, offsets, bags, bag_size, num_weights,
                                              scale_grad_by_freq, mode, per_sample_weights, padding_idx);
  }
  return at::_embedding_bag_dense_backward(grad, indices, bags, bag_size, maximum_indices, num_weights,
                                           scale_grad_by_freq, mode, per_sample_weights, padding_idx);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_embedding_bag_backward", on_device<embedding_bag_backward>());
  m.impl("_to_sparse", on_device<to_sparse>());
  m.impl("_to_sparse.sparse_dim", on_device<dense_to_coo>());
  m.impl("_to_sparse_bsc", on_device<native::dense_to_sparse_bsc>());
  m.impl("_to_sparse_bsr", on_device<native::dense_to_sparse_bsr>());
  m.impl("_to_sparse_csc", on_device<native::dense_to_sparse_csc>());
  m.impl("_to_sparse_csr", on_device<native::dense_to_sparse_csr>());
  m.impl("_validate_compressed_sparse_indices", on_device<validate_compressed_indices>());
}

}  // namespace torch_tpu
