// Sums, products and selections of two tensors of which at least one is sparse.
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include "torch/sparse.h"

namespace at::native {
TORCH_API Tensor& _mul_dense_sparse_out(const Tensor& dense, const Tensor& sparse, Tensor& out);
TORCH_API Tensor& _mul_sparse_sparse_zero_dim_out(const Tensor& zero_dim, const Tensor& other, Tensor& out);
}  // namespace at::native

namespace torch_tpu {
namespace {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;

c10::ScalarType sum_dtype(const Tensor& self, const Tensor& other, const Tensor& out) {
  const c10::ScalarType dtype = c10::promoteTypes(self.scalar_type(), other.scalar_type());
  check_can_cast(dtype, out.scalar_type(), "add");
  return dtype;
}

Tensor scaled(const Tensor& values, const Scalar& factor) {
  return factor.equal(1) ? values : values.mul(factor).to(values.scalar_type());
}

// The sum of the entries; of the sum of two coalesced tensors each offset has one entry.
Tensor add_entries(const Tensor& self, const Tensor& other, const Scalar& alpha, c10::ScalarType dtype) {
  const Tensor self_values = self._values().to(dtype);
  const Tensor other_values = scaled(other._values().to(dtype), alpha);
  if (other._nnz() == 0)
    return make_coo(self._indices().clone(), self_values, self.sizes(), self.is_coalesced());
  if (self._nnz() == 0) {
    return make_coo(other._indices().clone(), other_values, other.sizes(), other.is_coalesced());
  }
  TORCH_CHECK(self.sparse_dim() == other.sparse_dim() && self.dense_dim() == other.dense_dim(),
              "add: expected 'self' and 'other' to have same density, but 'self' has ", self.sparse_dim(),
              " sparse dimensions while 'other' has ", other.sparse_dim(), " sparse dimensions");
  const Tensor sum = make_coo(at::cat({self._indices(), other._indices()}, 1),
                              at::cat({self_values, other_values}, 0), self.sizes(), false);
  // Sums of sums do not grow without bounds.
  const bool both = self.is_coalesced() && other.is_coalesced();
  return both || sum._nnz() > sum.numel() ? sum.coalesce() : sum;
}

// dense + alpha * sparse: rows of the dense tensor, addressed by offset.
Tensor add_to_dense(const Tensor& dense, const Tensor& sparse, const Scalar& alpha, c10::ScalarType dtype) {
  const Tensor base = dense.to(dtype);
  if (sparse._nnz() == 0 || base.numel() == 0) return base;
  const Tensor offsets = flatten_indices(sparse._indices(), sparse.sizes());
  const Tensor values = scaled(sparse._values().to(dtype), alpha);
  const Tensor rows = as_rows(base, sparse);
  if (dtype == at::kBool) {
    return rows.logical_or(sum_by(offsets, values, rows.size(0))).view(dense.sizes());
  }
  return rows.index_add(0, offsets, values).view(dense.sizes());
}

Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.device() == other.device() && self.device() == out.device(),
              "add: expected all tensors to be on one device, but found ", self.device(), ", ",
              other.device(), " and ", out.device());
  if (!self.is_sparse()) {
    TORCH_CHECK(self.sizes() == other.sizes(),
                "add: expected 'self' and 'other' to have same size, but self has size ", self.sizes(),
                " while other has size ", other.sizes(),
                " (FYI: dense-sparse addition does not currently support broadcasting)");
    const Tensor sum = add_to_dense(self, other, alpha, sum_dtype(self, other, out));
    out.resize_(sum.sizes());
    return out.copy_(sum);
  }
  TORCH_CHECK(self.sizes() == other.sizes(), "add: expected sizes of 'self' and 'other' to match, but ",
              self.sizes(), " != ", other.sizes());
  assign_entries(out, add_entries(self, other, alpha, sum_dtype(self, other, out)));
  return out;
}

Tensor& add_out_compressed(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  const c10::ScalarType dtype = sum_dtype(self, other, out);
  TORCH_CHECK(self.sizes() == other.sizes(),
              "torch.add: Expected input tensors to have the same shape, but got ",
              "tensor `self` with shape ", self.sizes(), " and tensor `other` with shape ", other.sizes());
  if (!is_compressed(self) || !is_compressed(other)) {
    const Tensor dense_self = is_compressed(self) ? self.to_dense() : self;
    const Tensor dense_other = is_compressed(other) ? other.to_dense() : other;
    const Tensor sum = at::add(dense_self, dense_other, alpha);
    out.resize_(sum.sizes());
    return out.copy_(sum);
  }
  TORCH_CHECK(self.layout() == other.layout(), "add: operands have different layouts, ", self.layout(),
              " and ", other.layout());
  assign_compressed(out, compressed_like(add_entries(as_coo(self), as_coo(other), alpha, dtype), self));
  return out;
}

// The products of the entries that both coalesced tensors have.
Tensor common_entries(const Tensor& a, const Tensor& b) {
  const Tensor offsets = flatten_indices(a._indices(), a.sizes());
  const auto [place, found] = find_sorted(flatten_indices(b._indices(), b.sizes()), offsets);
  const Tensor kept = found.nonzero().squeeze(1);
  const Tensor partner = place.index_select(0, kept);
  const Tensor values = a._values().index_select(0, kept).mul(b._values().index_select(0, partner));
  return make_coo(a._indices().index_select(1, kept), values, a.sizes(), true);
}

// All entries of one tensor, times what the other one holds there. ATen looks up in the coalesced one, or in
// the larger one.
Tensor matched_entries(const Tensor& a, const Tensor& b) {
  const bool look_up_a = a.is_coalesced() || (!b.is_coalesced() && a._nnz() >= b._nnz());
  const Tensor& source = look_up_a ? b : a;
  const Tensor partners =
      values_at(coalesced(look_up_a ? a : b), flatten_indices(source._indices(), a.sizes()));
  return make_coo(source._indices().clone(), source._values().mul(partners), a.sizes(), false);
}

Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  if (!other.is_sparse()) return at::native::_mul_dense_sparse_out(other, self, out);
  if (!self.is_sparse()) return at::native::_mul_dense_sparse_out(self, other, out);
  if (other.dim() == 0) return at::native::_mul_sparse_sparse_zero_dim_out(other, self, out);
  if (self.dim() == 0) return at::native::_mul_sparse_sparse_zero_dim_out(self, other, out);
  TORCH_CHECK(self.sizes() == other.sizes(),
              "mul: expected 'self' and 'other' to have same sizes when both are sparse, but ", self.sizes(),
              " != ", other.sizes());
  TORCH_CHECK(self.sparse_dim() == other.sparse_dim(),
              "mul: expected 'self' and 'other' to have the same number of sparse dimensions, but ",
              self.sparse_dim(), " != ", other.sparse_dim());
  const c10::ScalarType dtype = c10::promoteTypes(self.scalar_type(), other.scalar_type());
  check_can_cast(dtype, out.scalar_type(), "mul");
  if (self._nnz() == 0 || other._nnz() == 0) {
    assign_entries(out, self);
    return out.zero_();
  }
  assign_entries(out, self.is_coalesced() && other.is_coalesced() ? common_entries(self, other)
                                                                  : matched_entries(self, other));
  return out;
}

// The values of self (dense or COO) where the mask has entries.
Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.sizes() == self.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ",
              self.sizes(), " but mask has size ", mask.sizes());
  if (self.is_same(mask)) return self;
  if (mask.numel() == 0 || mask._nnz() == 0) return mask.clone().to(self.device(), self.scalar_type());
  const Tensor offsets = flatten_indices(mask._indices(), mask.sizes());
  const Tensor values =
      self.is_sparse() ? values_at(coalesced(self), offsets) : as_rows(self, mask).index_select(0, offsets);
  return make_coo(mask._indices().clone(), values, mask.sizes(), mask.is_coalesced());
}

// The entries of self, zero where the mask has none; or as often as the mask has them.
Tensor sparse_mask_projection(const Tensor& self, const Tensor& mask, bool accumulate_matches) {
  TORCH_CHECK(mask.sizes() == self.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ",
              self.sizes(), " but mask has size ", mask.sizes());
  const Tensor ones = at::ones_like(mask._values(), self._values().options());
  const Tensor counts = coalesced(make_coo(mask._indices(), ones, mask.sizes(), mask.is_coalesced()));
  Tensor factor = values_at(counts, flatten_indices(self._indices(), self.sizes()));
  if (!accumulate_matches) factor = factor.ne(0);
  return make_coo(self._indices().clone(), self._values().mul(factor), self.sizes(), self.is_coalesced());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("add.out", on_device<add_out>());
  m.impl("mul.out", on_device<mul_out>());
  m.impl("sparse_mask", on_device<sparse_mask>());
  m.impl("_sparse_mask_projection", on_device<sparse_mask_projection>());
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) { m.impl("add.out", on_device<add_out_compressed>()); }

}  // namespace torch_tpu
