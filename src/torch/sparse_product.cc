// Matrix products with sparse matrices: rows of the dense matrix are gathered by the columns of the entries
// and summed by their rows.
#include <ATen/ops/cat.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "torch/sparse.h"

namespace torch_tpu {
namespace {

using at::Scalar;
using at::Tensor;

void check_matrices(const Tensor& a, const Tensor& b, const char* name) {
  TORCH_CHECK(a.device() == b.device(), name, ": expected all tensors to be on one device, but found ",
              a.device(), " and ", b.device());
  TORCH_CHECK(a.dim() == 2, name, ": 2-D matrices expected, got ", a.dim(), "D tensor");
  TORCH_CHECK(b.dim() == 2, name, ": 2-D matrices expected, got ", b.dim(), "D tensor");
  for (const Tensor* matrix : {&a, &b}) {
    if (matrix->layout() == at::kStrided) continue;
    TORCH_CHECK(matrix->dense_dim() == 0, name, ": scalar values expected, got ", matrix->dense_dim(),
                "D values");
  }
  TORCH_CHECK(a.size(1) == b.size(0), name, ": mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name, ": expected scalar type ", a.scalar_type(),
              " but found ", b.scalar_type());
}

// Entry by entry: values[i] * dense[columns[i]] summed into row rows[i].
Tensor sum_of_rows(const Tensor& rows, const Tensor& columns, const Tensor& values, const Tensor& dense,
                   int64_t count) {
  const c10::ScalarType dtype = compute_dtype(dense.scalar_type());
  const Tensor terms = dense.to(dtype).index_select(0, columns).mul(values.to(dtype).unsqueeze(1));
  return at::zeros({count, dense.size(1)}, terms.options()).index_add(0, rows, terms);
}

// sparse @ dense, in compute_dtype.
Tensor times_dense(const Tensor& sparse, const Tensor& dense) {
  const Tensor coo = as_coo(sparse);
  const Tensor indices = coo._indices();
  return sum_of_rows(indices.select(0, 0), indices.select(0, 1), coo._values(), dense, sparse.size(0));
}

// Every entry of a with every entry of b in the row of its column.
Tensor times_sparse(const Tensor& a, const Tensor& b) {
  const Tensor left = as_coo(a);
  const Tensor right = coalesced(as_coo(b));
  const Tensor rows = right._indices().select(0, 0).contiguous();
  const Tensor wanted = left._indices().select(0, 1).contiguous();
  const Tensor start = at::searchsorted(rows, wanted);
  const Tensor stop = at::searchsorted(rows, wanted, /*out_int32=*/false, /*right=*/true);
  const auto [source, number] = repeat(stop.sub(start));
  const Tensor target = start.index_select(0, source).add(number);
  const c10::ScalarType dtype = compute_dtype(a.scalar_type());
  const Tensor values =
      left._values().to(dtype).index_select(0, source).mul(right._values().to(dtype).index_select(0, target));
  const Tensor indices = at::stack({left._indices().select(0, 0).index_select(0, source),
                                    right._indices().select(0, 1).index_select(0, target)});
  const Tensor product = make_coo(indices, values, {a.size(0), b.size(1)}, false).coalesce();
  return make_coo(product._indices(), product._values().to(a.scalar_type()), product.sizes(), true);
}

Tensor sparse_sparse_matmul(const Tensor& self, const Tensor& other) {
  check_matrices(self, other, "sparse_matmul");
  return times_sparse(self, other);
}

// A product whose result is dense.
Tensor dense_product(const Tensor& a, const Tensor& b) {
  if (b.layout() == at::kStrided) return times_dense(a, b);
  if (a.layout() == at::kStrided) return times_dense(as_coo(b).t(), a.t()).t();
  return times_sparse(a, b).to_dense();
}

// beta * self + alpha * product. A beta of zero drops self, whatever it holds.
Tensor weighted_sum(const Tensor& self, const Tensor& product, const Scalar& beta, const Scalar& alpha) {
  Tensor sum = alpha.equal(1) ? product : product.mul(alpha);
  if (!beta.equal(0)) sum = sum.add(self.to(product.scalar_type()), beta);
  return sum;
}

void check_addend(const Tensor& self, const Tensor& mat1) {
  TORCH_CHECK(self.scalar_type() == mat1.scalar_type(), "addmm: expected scalar type ", mat1.scalar_type(),
              " but found ", self.scalar_type());
  TORCH_CHECK(self.device() == mat1.device(), "addmm: expected all tensors to be on one device, but found ",
              self.device(), " and ", mat1.device());
}

Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
             const Scalar& alpha) {
  check_matrices(mat1, mat2, "addmm");
  check_addend(self, mat1);
  const Tensor addend = self.expand({mat1.size(0), mat2.size(1)});
  return weighted_sum(addend, dense_product(mat1, mat2), beta, alpha).to(self.scalar_type());
}

Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  if (out.layout() == at::kStrided) {
    const Tensor result = addmm(self, mat1, mat2, beta, alpha);
    out.resize_(result.sizes());
    return out.copy_(result);
  }
  check_matrices(mat1, mat2, "addmm");
  TORCH_CHECK(mat1.layout() != at::kStrided && mat2.layout() != at::kStrided,
              "addmm: computation on CPU is not implemented for ", self.layout(), " + ", mat1.layout(), " @ ",
              mat2.layout(), " -> ", out.layout());
  Tensor sum = times_sparse(mat1, mat2).mul(alpha);
  if (!beta.equal(0) && self.layout() != at::kStrided) sum = as_coo(self).mul(beta).add(sum);
  if (out.is_sparse()) {
    assign_entries(out, sum);
  } else {
    assign_compressed(out, compressed_like(sum, out));
  }
  return out;
}

Tensor& addmm_(Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
               const Scalar& alpha) {
  check_matrices(mat1, mat2, "addmm");
  TORCH_CHECK(self.size(0) == mat1.size(0) && self.size(1) == mat2.size(1),
              "addmm: Argument #1 (t): Expected size ", mat1.size(0), "x", mat2.size(1), ", got ",
              self.sizes());
  return addmm_out(self, mat1, mat2, beta, alpha, self);
}

Tensor& addmv_out(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(mat.layout() != at::kSparseCsc, "addmv_out_sparse_csr: expected sparse CSR or BSR matrix");
  TORCH_CHECK(mat.dim() == 2 && vec.dim() == 1 && self.dim() <= 1, "vector + matrix @ vector expected, got ",
              self.dim(), ", ", mat.dim(), ", ", vec.dim());
  TORCH_CHECK(
      mat.size(1) == vec.size(0) && (self.dim() == 0 || self.numel() == 1 || self.size(0) == mat.size(0)),
      "size mismatch, got input (", self.dim() == 0 ? 1 : self.size(0), "), mat (", mat.size(0), "x",
      mat.size(1), "), vec (", vec.size(0), ")");
  const Tensor product = times_dense(mat, vec.unsqueeze(1)).squeeze(1);
  const Tensor result = weighted_sum(self.expand({mat.size(0)}), product, beta, alpha);
  out.resize_(result.sizes());
  return out.copy_(result);
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  TORCH_CHECK(self.is_sparse(), "bmm_sparse: Tensor 'self' must be sparse");
  TORCH_CHECK(!mat2.is_sparse(), "bmm_sparse: Tensor 'mat2' must be dense");
  TORCH_CHECK(self.dense_dim() == 0, "bmm_sparse: Tensor 'self' must have 0 dense dims, but has ",
              self.dense_dim());
  TORCH_CHECK(self.sparse_dim() == 3, "bmm_sparse: Tensor 'self' must have 3 sparse dims, but has ",
              self.sparse_dim());
  TORCH_CHECK(mat2.dim() == 3, "bmm_sparse: Tensor 'mat2' must have 3 dims, but has ", mat2.dim());
  TORCH_CHECK(self.size(0) == mat2.size(0), "bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match");
  TORCH_CHECK(self.size(2) == mat2.size(1), "bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match");
  const Tensor indices = self._indices();
  const Tensor batch = indices.select(0, 0);
  const Tensor rows = batch.mul(self.size(1)).add(indices.select(0, 1));
  const Tensor columns = batch.mul(self.size(2)).add(indices.select(0, 2));
  const Tensor product = sum_of_rows(rows, columns, self._values(), mat2.reshape({-1, mat2.size(2)}),
                                     self.size(0) * self.size(1));
  return product.view({self.size(0), self.size(1), mat2.size(2)}).to(mat2.scalar_type());
}

Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  const Tensor result = bmm(self, mat2);
  out.resize_(result.sizes());
  return out.copy_(result);
}

// sparse @ dense with the rows that have entries only: one sparse dimension, one dense.
Tensor hspmm(const Tensor& mat1, const Tensor& mat2) {
  check_matrices(mat1, mat2, "hspmm");
  TORCH_CHECK(mat1.sparse_dim() == 2, "hspmm: Argument #2: matrices expected, got ", mat1.sparse_dim(),
              "D tensor");
  const Tensor entries = coalesced(mat1);
  const Tensor rows = entries._indices().select(0, 0);
  if (entries._nnz() == 0) {
    return make_coo(at::zeros({1, 0}, rows.options()), at::zeros({0, mat2.size(1)}, mat2.options()),
                    {mat1.size(0), mat2.size(1)}, false);
  }
  const Groups groups = group_by(rows);
  const Tensor filled = rows.masked_select(groups.starts);
  const Tensor sums =
      sum_of_rows(groups.group, entries._indices().select(0, 1), entries._values(), mat2, filled.size(0));
  return make_coo(filled.unsqueeze(0), sums.to(mat2.scalar_type()), {mat1.size(0), mat2.size(1)}, false);
}

Tensor& hspmm_out(const Tensor& mat1, const Tensor& mat2, Tensor& out) {
  assign_entries(out, hspmm(mat1, mat2));
  return out;
}

// beta * self + alpha * (sparse @ dense), as a sparse matrix with whole rows.
Tensor& sspaddmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha, Tensor& out) {
  // smm() passes an empty `self` of no particular shape.
  const Tensor product = hspmm(mat1, mat2);
  const Tensor rows = product._indices().select(0, 0);
  const int64_t width = mat2.size(1);
  const Tensor columns = at::zeros({rows.size(0), width}, rows.options());
  const Tensor row_of = columns.add(rows.unsqueeze(1)).reshape(-1);
  const Tensor column_of = columns.add(1).cumsum(1).sub(1).reshape(-1);
  Tensor indices = at::stack({row_of, column_of});
  Tensor values = product._values().reshape(-1).mul(alpha);
  if (self._nnz() > 0) {
    TORCH_CHECK(self.sizes() == product.sizes(), "sspaddmm: Argument #1: Expected size ", product.sizes(),
                ", got ", self.sizes());
    indices = at::cat({self._indices(), indices}, 1);
    values = at::cat({self._values().mul(beta), values});
  }
  assign_entries(out, make_coo(indices, values, product.sizes(), false));
  return out;
}

Tensor& sspaddmm_out_dense(const Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&,
                           Tensor&) {
  TORCH_CHECK(false, "tensor.sspaddmm(...) can only be called on sparse tensors");
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_sparse_matmul", on_device<sparse_sparse_matmul>());
  m.impl("addmm", on_device<addmm>());
  m.impl("addmm.out", on_device<addmm_out>());
  m.impl("addmm_", on_device<addmm_>());
  m.impl("bmm", on_device<bmm>());
  m.impl("bmm.out", on_device<bmm_out>());
  m.impl("hspmm", on_device<hspmm>());
  m.impl("hspmm.out", on_device<hspmm_out>());
  m.impl("sspaddmm.out", on_device<sspaddmm_out>());
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("addmm.out", on_device<addmm_out>());
  m.impl("addmv.out", on_device<addmv_out>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("sspaddmm.out", on_device<sspaddmm_out_dense>()); }

}  // namespace torch_tpu
