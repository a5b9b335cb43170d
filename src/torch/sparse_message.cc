// Products of CSR matrices and dense ones that are not sums over dense results: torch.sparse.sampled_addmm
// and torch.sparse.mm with a reduction, both entry by entry.
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "torch/sparse.h"

namespace torch_tpu {
namespace {

using at::Scalar;
using at::Tensor;

Tensor with_values(const Tensor& matrix, const Tensor& values) {
  return at::_sparse_compressed_tensor_unsafe(matrix.crow_indices(), matrix.col_indices(), values,
                                              matrix.sizes(), values.options().layout(matrix.layout()));
}

// --- sampled_addmm -------------------------------------------------------------------------------

void check_sampled(const Tensor& self, const Tensor& mat1, const Tensor& mat2) {
  TORCH_CHECK(self.layout() == at::kSparseCsr, "sampled_addmm: Expected self to be a CSR tensor, but got ",
              self.layout());
  TORCH_CHECK(mat1.layout() == at::kStrided, "sampled_addmm: Expected mat1 to have strided layout, but got ",
              mat1.layout());
  TORCH_CHECK(mat2.layout() == at::kStrided, "sampled_addmm: Expected mat2 to have strided layout, but got ",
              mat2.layout());
  for (const Tensor* matrix : {&mat1, &mat2}) {
    TORCH_CHECK(self.scalar_type() == matrix->scalar_type(),
                "sampled_addmm: Expected self and its factors to have the same dtype, but got ",
                self.scalar_type(), " and ", matrix->scalar_type());
    TORCH_CHECK(matrix->dim() >= 2 && matrix->dim() == self.dim(),
                "sampled_addmm: Expected matrices of the same number of dimensions, but got ", self.dim(),
                " and ", matrix->dim());
  }
  const auto batch = [](const Tensor& x) { return x.sizes().slice(0, x.dim() - 2); };
  TORCH_CHECK(batch(mat1) == batch(mat2) && batch(self) == batch(mat1),
              "sampled_addmm: Expected self, mat1 and mat2 to have the same batch size, but got ",
              batch(self), ", ", batch(mat1), " and ", batch(mat2));
  TORCH_CHECK(mat1.size(-1) == mat2.size(-2), "sampled_addmm: mat1 and mat2 shapes cannot be multiplied (",
              mat1.size(-2), "x", mat1.size(-1), " and ", mat2.size(-2), "x", mat2.size(-1), ")");
  TORCH_CHECK(self.size(-2) == mat1.size(-2) && self.size(-1) == mat2.size(-1), "sampled_addmm: self shape ",
              self.sizes(), " does not match the product's");
}

// Of each entry the dot product of a row of mat1 and a column of mat2.
Tensor sampled_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha) {
  check_sampled(self, mat1, mat2);
  const Tensor values = self.values();
  if (values.numel() == 0) return with_values(self, values.clone());
  const Tensor indices = at::_convert_indices_from_csr_to_coo(self.crow_indices(), self.col_indices());
  const auto batch_dims = self.sizes().slice(0, self.dim() - 2);
  Tensor batch = at::zeros({indices.size(1)}, indices.options());
  for (size_t dim = 0; dim < batch_dims.size(); ++dim) {
    batch = batch.mul(batch_dims[dim]).add(indices.select(0, static_cast<int64_t>(dim)));
  }
  const int64_t inner = mat1.size(-1);
  const c10::ScalarType dtype = compute_dtype(values.scalar_type());
  const auto lines = [&](const Tensor& matrix, int64_t index_row) {
    const Tensor line = batch.mul(matrix.size(-2)).add(indices.select(0, index_row));
    const int64_t count = c10::multiply_integers(batch_dims) * matrix.size(-2);
    return matrix.reshape({count, inner}).to(dtype).index_select(0, line);
  };
  const Tensor rows = lines(mat1, -2);
  const Tensor columns = lines(mat2.transpose(-2, -1), -1);
  Tensor products = rows.mul(columns).sum(1).mul(alpha).view(values.sizes());
  if (!beta.equal(0)) products = products.add(values.mul(beta));
  return with_values(self, products.to(values.scalar_type()));
}

Tensor& sampled_addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                          const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(out.layout() == at::kSparseCsr, "sampled_addmm: Expected result to be a CSR tensor, but got ",
              out.layout());
  assign_compressed(out, sampled_addmm(self, mat1, mat2, beta, alpha));
  return out;
}

// --- mm with a reduction -------------------------------------------------------------------------

/// The entries of a CSR matrix.
struct Entries {
  Tensor rows, columns, values;
  int64_t row_count;

  explicit Entries(const Tensor& matrix)
      : values(matrix.values().to(compute_dtype(matrix.scalar_type()))), row_count(matrix.size(0)) {
    const Tensor indices = at::_convert_indices_from_csr_to_coo(matrix.crow_indices(), matrix.col_indices());
    rows = indices.select(0, 0);
    columns = indices.select(0, 1);
  }

  Tensor row_sizes(const Tensor& like) const {
    return sum_by(rows, at::full({rows.size(0)}, 1, like.options()), row_count).clamp_min(1).unsqueeze(1);
  }
};

std::tuple<Tensor, Tensor> mm_reduce(const Tensor& self, const Tensor& other, std::string_view reduce) {
  TORCH_CHECK(self.layout() == at::kSparseCsr, "Expected input to be SparseCsr, but got ", self.layout());
  TORCH_CHECK(self.values().dim() == 1, "Expected non-hybrid sparse input, but got dense dims ",
              self.dense_dim());
  TORCH_CHECK(other.layout() == at::kStrided && other.dim() == 2, "Expected other to be a dense matrix");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "Expected input and other of the same dtype, but got ", self.scalar_type(), " and ",
              other.scalar_type());
  TORCH_CHECK(self.size(1) == other.size(0), "Expected self.size(1) == other.size(0), but got ", self.size(1),
              " and ", other.size(0));
  const bool is_extreme = reduce == "amax" || reduce == "amin";
  TORCH_CHECK(is_extreme || reduce == "sum" || reduce == "mean",
              "reduce argument must be either sum, mean, amax or amin, got ", reduce);
  const Entries entries(self);
  const c10::ScalarType dtype = entries.values.scalar_type();
  const Tensor messages = other.to(dtype).index_select(0, entries.columns).mul(entries.values.unsqueeze(1));
  Tensor winners = at::empty({0}, entries.columns.options());
  if (!is_extreme) {
    Tensor sums = sum_by(entries.rows, messages, entries.row_count);
    if (reduce == "mean") sums = sums.div(entries.row_sizes(sums));
    return {sums.to(other.scalar_type()), winners};
  }
  const int64_t count = messages.size(0);
  Tensor result = at::zeros({entries.row_count, other.size(1)}, messages.options());
  if (count > 0) result = result.index_reduce(0, entries.rows, messages, reduce, /*include_self=*/false);
  // The first entry whose message is the extreme one; the number of entries for a row without any.
  winners = at::full(result.sizes(), count, entries.columns.options());
  if (count > 0) {
    const Tensor wins = messages.eq(result.index_select(0, entries.rows)).logical_or(messages.isnan());
    const Tensor number = at::arange(count, entries.columns.options()).unsqueeze(1);
    const Tensor candidates = at::where(wins, number, at::full({}, count, number.options()));
    winners = winners.index_reduce(0, entries.rows, candidates, "amin", /*include_self=*/true);
  }
  return {result.to(other.scalar_type()), winners};
}

// The gradient of each message, [nnz, n].
Tensor message_gradients(const Entries& entries, const Tensor& grad, std::string_view reduce,
                         const Tensor& winners) {
  if (reduce == "sum") return grad.index_select(0, entries.rows);
  if (reduce == "mean") return grad.div(entries.row_sizes(grad)).index_select(0, entries.rows);
  const Tensor number = at::arange(entries.rows.size(0), winners.options()).unsqueeze(1);
  return grad.index_select(0, entries.rows).mul(winners.index_select(0, entries.rows).eq(number));
}

std::tuple<Tensor, Tensor> mm_reduce_backward(const Tensor& self, const Tensor& grad_out,
                                              const Tensor& weight, std::string_view reduce,
                                              const Tensor& arg_out, std::array<bool, 2> output_mask) {
  const Entries entries(self);
  const c10::ScalarType dtype = entries.values.scalar_type();
  const Tensor gradients = message_gradients(entries, grad_out.to(dtype), reduce, arg_out);
  Tensor grad_self;
  Tensor grad_other;
  if (output_mask[0]) {
    const Tensor sums = weight.to(dtype).index_select(0, entries.columns).mul(gradients).sum(1);
    grad_self = with_values(self, sums.to(self.scalar_type()));
  }
  if (output_mask[1]) {
    const Tensor sums = sum_by(entries.columns, gradients.mul(entries.values.unsqueeze(1)), weight.size(0));
    grad_other = sums.to(weight.scalar_type());
  }
  return {grad_self, grad_other};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_sparse_mm_reduce_impl", on_device<mm_reduce>());
  m.impl("_sparse_mm_reduce_impl_backward", on_device<mm_reduce_backward>());
  m.impl("sparse_sampled_addmm", on_device<sampled_addmm>());
  m.impl("sparse_sampled_addmm.out", on_device<sampled_addmm_out>());
}

}  // namespace torch_tpu
