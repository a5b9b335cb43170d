#define AT_PER_OPERATOR_HEADERS  // or the next two headers bring all of ATen
#include "torch/sparse.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace at::native {
// As in ATen/native/sparse/SparseStubs.h, which is not installed.
DECLARE_DISPATCH(Tensor (*)(const Tensor&, IntArrayRef), flatten_indices_stub)
}  // namespace at::native

namespace torch_tpu {

using at::Tensor;
using c10::IntArrayRef;

Tensor make_coo(const Tensor& indices, const Tensor& values, IntArrayRef sizes, bool coalesced) {
  return at::_sparse_coo_tensor_unsafe(indices, values, sizes, values.options().layout(at::kSparse),
                                       coalesced);
}

Tensor coalesced(const Tensor& sparse) { return sparse.is_coalesced() ? sparse : sparse.coalesce(); }

void assign_entries(const Tensor& target, const Tensor& source) {
  auto* impl = static_cast<at::SparseTensorImpl*>(target.unsafeGetTensorImpl());
  impl->raw_resize_(source.sparse_dim(), source.dense_dim(), source.sizes());
  impl->set_indices_and_values_unsafe(source._indices(), source._values().to(target.scalar_type()));
  impl->set_coalesced(source.is_coalesced());
}

bool is_compressed(const Tensor& tensor) {
  return tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseCsc ||
         tensor.layout() == at::kSparseBsr || tensor.layout() == at::kSparseBsc;
}

namespace {

at::SparseCsrTensorImpl* compressed_impl(const Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

bool has_blocks(const Tensor& tensor) {
  return tensor.layout() == at::kSparseBsr || tensor.layout() == at::kSparseBsc;
}

}  // namespace

void assign_compressed(const Tensor& target, const Tensor& source) {
  const auto* from = compressed_impl(source);
  auto* to = compressed_impl(target);
  to->set_layout(source.layout());
  to->set_member_tensors(from->compressed_indices(), from->plain_indices(),
                         from->values().to(target.scalar_type()), source.sizes());
}

Tensor compressed_like(const Tensor& coo, const Tensor& example) {
  const Tensor values = example.values();
  const int64_t block = example.dim() - example.dense_dim() - 1;  // the first dimension of a block in values
  const Tensor made = has_blocks(example)
                          ? coo.to_sparse(example.layout(), values.sizes().slice(block, 2), std::nullopt)
                          : coo.to_sparse(example.layout(), std::nullopt, std::nullopt);
  const c10::ScalarType index_dtype = compressed_impl(example)->plain_indices().scalar_type();
  auto* impl = compressed_impl(made);
  impl->set_member_tensors(impl->compressed_indices().to(index_dtype), impl->plain_indices().to(index_dtype),
                           impl->values(), made.sizes());
  return made;
}

Tensor as_coo(const Tensor& sparse) { return sparse.is_sparse() ? sparse : sparse.to_sparse(); }

Tensor flatten_indices(const Tensor& indices, IntArrayRef sizes) {
  if (indices.size(0) == 0) return at::zeros({indices.size(1)}, indices.options());
  Tensor flat = indices.select(0, 0);
  for (int64_t dim = 1; dim < indices.size(0); ++dim) flat = flat.mul(sizes[dim]).add(indices.select(0, dim));
  return flat;
}

std::vector<int64_t> rows_shape(const Tensor& sparse, int64_t rows) {
  std::vector<int64_t> shape{rows};
  const IntArrayRef dense = sparse.sizes().slice(sparse.sparse_dim());
  shape.insert(shape.end(), dense.begin(), dense.end());
  return shape;
}

Tensor as_rows(const Tensor& dense, const Tensor& sparse) {
  const IntArrayRef sizes = sparse.sizes().slice(0, sparse.sparse_dim());
  return dense.reshape(rows_shape(sparse, c10::multiply_integers(sizes)));
}

Groups group_by(const Tensor& keys) {
  const auto [sorted, order] = keys.sort(/*stable=*/true, 0, /*descending=*/false);
  const int64_t count = keys.size(0);
  Tensor starts = at::ones({count}, keys.options().dtype(at::kBool));
  if (count > 1) {
    const Tensor differs = sorted.narrow(0, 1, count - 1).ne(sorted.narrow(0, 0, count - 1));
    starts = at::cat({starts.narrow(0, 0, 1), differs});
  }
  return {order, starts, starts.cumsum(0).sub(1)};
}

Tensor sum_by(const Tensor& index, const Tensor& values, int64_t rows) {
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = rows;
  const bool logical = values.scalar_type() == at::kBool;
  const Tensor numbers = logical ? values.to(at::kInt) : values;
  const Tensor sums = at::zeros(shape, numbers.options()).index_add(0, index, numbers);
  return logical ? sums.ne(0) : sums;
}

Places find_sorted(const Tensor& sorted, const Tensor& wanted) {
  const Tensor place = at::searchsorted(sorted, wanted).clamp_max(sorted.size(0) - 1);
  return {place, sorted.index_select(0, place).eq(wanted)};
}

Tensor values_at(const Tensor& sparse, const Tensor& wanted) {
  const Tensor values = sparse._values();
  const std::vector<int64_t> shape = rows_shape(sparse, wanted.size(0));
  if (values.size(0) == 0) return at::zeros(shape, values.options());
  const auto [place, found] = find_sorted(flatten_indices(sparse._indices(), sparse.sizes()), wanted);
  std::vector<int64_t> column(shape.size(), 1);
  column[0] = shape[0];
  return values.index_select(0, place).masked_fill(found.logical_not().view(column), 0);
}

Repetition repeat(const Tensor& counts) {
  const Tensor ends = counts.cumsum(0);
  const int64_t total = counts.size(0) == 0 ? 0 : ends.select(0, -1).item<int64_t>();
  const Tensor place = at::arange(total, counts.options());
  const Tensor source = at::searchsorted(ends, place, /*out_int32=*/false, /*right=*/true);
  return {source, place.sub(ends.sub(counts).index_select(0, source))};
}

c10::ScalarType compute_dtype(c10::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

void check_can_cast(c10::ScalarType from, c10::ScalarType to, const char* operation) {
  TORCH_CHECK(c10::canCast(from, to), "Can't convert result type ", from, " to output ", to, " in ",
              operation, " operation");
}

namespace {

Tensor coalesce(const Tensor& self) {
  const Tensor indices = self._indices();
  const Tensor values = self._values();
  if (self._nnz() < 2) return make_coo(indices.clone(), values.clone(), self.sizes(), true);
  const Groups groups = group_by(flatten_indices(indices, self.sizes()));
  const Tensor heads = groups.order.masked_select(groups.starts);
  const Tensor sums = sum_by(groups.group, values.index_select(0, groups.order), heads.size(0));
  return make_coo(indices.index_select(1, heads), sums, self.sizes(), true);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) { m.impl("_coalesce", coalesce); }

}  // namespace torch_tpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &torch_tpu::flatten_indices)
}  // namespace at::native
