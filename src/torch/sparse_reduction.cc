// Sums and softmax along dimensions of sparse tensors, and selections of their entries.
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/_sparse_sum_native.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "torch/sparse.h"

namespace torch_tpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

// The offsets of the entries in the tensor of the sparse dimensions `dims` alone.
Tensor offsets_in(const Tensor& sparse, IntArrayRef dims) {
  const Tensor indices = sparse._indices();
  Tensor offsets = at::zeros({sparse._nnz()}, indices.options());
  for (const int64_t dim : dims) offsets = offsets.mul(sparse.size(dim)).add(indices.select(0, dim));
  return offsets;
}

// --- sum -----------------------------------------------------------------------------------------

// ATen's sums along dimensions, of which the last one rounds.
Tensor sparse_sum(const Tensor& self, IntArrayRef dims) {
  const Tensor wide = self.to(compute_dtype(self.scalar_type()));
  return at::native::_sparse_sum(wide, dims).to(self.scalar_type());
}

// The gradient has the entries of the input, each with the gradient of the sum that it went into.
Tensor sparse_sum_backward(const Tensor& grad, const Tensor& self, IntArrayRef summed) {
  const Tensor input = coalesced(self);
  const int64_t sparse_dim = input.sparse_dim();
  const auto is_summed = at::dim_list_to_bitset(summed, input.dim());
  std::vector<int64_t> kept;
  for (int64_t dim = 0; dim < sparse_dim; ++dim) {
    if (!is_summed[dim]) kept.push_back(dim);
  }
  Tensor rows;
  if (kept.empty()) {
    TORCH_CHECK(!grad.is_sparse(),
                "_sparse_sum_backward: expected a dense gradient, all sparse dimensions are summed");
    rows = grad.unsqueeze(0);
  } else {
    TORCH_CHECK(grad.is_sparse(), "_sparse_sum_backward: expected a sparse gradient, but got a dense one");
    rows = values_at(coalesced(grad), offsets_in(input, kept));
  }
  for (int64_t dim = sparse_dim; dim < input.dim(); ++dim) {
    if (is_summed[dim]) rows = rows.unsqueeze(dim - sparse_dim + 1);
  }
  const Tensor values = rows.expand(input._values().sizes()).clone(at::MemoryFormat::Contiguous);
  return make_coo(input._indices().clone(), values, input.sizes(), true);
}

// --- softmax -------------------------------------------------------------------------------------

// The entries of a tensor that softmax along a sparse dimension takes together.
struct Pools {
  Tensor of_entry;  // s64[nnz]
  int64_t count;    // an upper bound, so that nothing is read on the host

  Pools(const Tensor& sparse, int64_t dim) : count(sparse._nnz()) {
    std::vector<int64_t> others;
    for (int64_t d = 0; d < sparse.sparse_dim(); ++d) {
      if (d != dim) others.push_back(d);
    }
    const Groups groups = group_by(offsets_in(sparse, others));
    of_entry = at::zeros_like(groups.group).index_copy(0, groups.order, groups.group);
  }

  Tensor sum(const Tensor& values) const { return spread(sum_by(of_entry, values, count)); }
  Tensor maximum(const Tensor& values) const {
    std::vector<int64_t> shape = values.sizes().vec();
    shape[0] = count;
    const Tensor start = at::zeros(shape, values.options());
    return spread(start.index_reduce(0, of_entry, values, "amax", /*include_self=*/false));
  }
  Tensor spread(const Tensor& of_pool) const { return of_pool.index_select(0, of_entry); }
};

// Entries that are not there count as minus infinity.
Tensor softmax(const Tensor& self, int64_t wrapped_dim, bool half_to_float, bool log) {
  TORCH_CHECK(!half_to_float, "softmax with half to float conversion is not supported on sparse tensors");
  const Tensor input = coalesced(self);
  const int64_t dim = at::maybe_wrap_dim(wrapped_dim, input.dim());
  const Tensor values = input._values();
  Tensor result;
  if (values.numel() == 0) {
    result = values.clone();
  } else if (dim >= input.sparse_dim()) {
    const int64_t dense = dim - input.sparse_dim() + 1;
    result = log ? at::log_softmax(values, dense) : at::softmax(values, dense);
  } else {
    const Pools pools(input, dim);
    const Tensor shifted = values.sub(pools.maximum(values));
    const Tensor exponentials = shifted.exp();
    const Tensor sums = pools.sum(exponentials);
    result = log ? shifted.sub(sums.log()) : exponentials.div(sums);
  }
  return make_coo(input._indices().clone(), result, input.sizes(), true);
}

Tensor sparse_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax(self, dim, half_to_float, false);
}
Tensor sparse_log_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax(self, dim, half_to_float, true);
}

Tensor softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t wrapped_dim, bool log) {
  const Tensor result = coalesced(output);
  const int64_t dim = at::maybe_wrap_dim(wrapped_dim, result.dim());
  const Tensor y = result._values();
  const Tensor grad = values_at(coalesced(grad_output), flatten_indices(result._indices(), result.sizes()))
                          .to(y.scalar_type());
  const auto total = [&](const Tensor& terms) {
    if (dim >= result.sparse_dim()) return terms.sum(dim - result.sparse_dim() + 1, /*keepdim=*/true);
    return Pools(result, dim).sum(terms);
  };
  Tensor values;
  if (y.numel() == 0) {
    values = y.clone();
  } else if (log) {
    values = grad.sub(y.exp().mul(total(grad)));
  } else {
    values = y.mul(grad.sub(total(grad.mul(y))));
  }
  return make_coo(result._indices().clone(), values, result.sizes(), true);
}

Tensor sparse_softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim, const Tensor&) {
  return softmax_backward(grad_output, output, dim, false);
}
Tensor sparse_log_softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim,
                                   const Tensor&) {
  return softmax_backward(grad_output, output, dim, true);
}

// --- reductions of compressed matrices -----------------------------------------------------------

// Reduces rows, columns or both of a CSR matrix to size one; only entries count.
Tensor reduce_csr(const Tensor& self, IntArrayRef dims, bool keepdim, std::optional<c10::ScalarType> dtype,
                  bool product) {
  TORCH_CHECK(self.layout() == at::kSparseCsr && self.dim() == 2 && self.values().dim() == 1,
              "reductions of compressed tensors are implemented for CSR matrices, but got ", self.layout(),
              " with ", self.dim(), " dimensions");
  TORCH_CHECK(keepdim, "reduction operations on CSR tensors with keepdim=False is unsupported");
  const auto is_reduced = at::dim_list_to_bitset(dims, 2);
  const c10::ScalarType given = self.scalar_type();
  const bool widens = c10::isIntegralType(given, /*includeBool=*/true);
  const c10::ScalarType result_dtype = dtype.value_or(widens ? at::kLong : given);
  const Tensor coo = self.to_sparse();
  if (dims.empty()) return self.to(result_dtype);
  Tensor indices = coo._indices().clone();
  std::vector<int64_t> sizes = self.sizes().vec();
  for (int64_t dim = 0; dim < 2; ++dim) {
    if (!is_reduced[dim]) continue;
    indices.select(0, dim).zero_();
    sizes[dim] = 1;
  }
  const Tensor values = coo._values().to(result_dtype);
  if (values.size(0) == 0) return compressed_like(make_coo(indices, values, sizes, true), self);
  const Groups groups = group_by(flatten_indices(indices, sizes));
  const Tensor heads = groups.order.masked_select(groups.starts);
  const Tensor sorted = values.index_select(0, groups.order);
  const Tensor reduced = product ? at::zeros({heads.size(0)}, values.options())
                                       .fill_(1)
                                       .index_reduce(0, groups.group, sorted, "prod")
                                 : sum_by(groups.group, sorted, heads.size(0));
  return compressed_like(make_coo(indices.index_select(1, heads), reduced, sizes, true), self);
}

Tensor sparse_csr_sum(const Tensor& self, IntArrayRef dims, bool keepdim,
                      std::optional<c10::ScalarType> dtype) {
  return reduce_csr(self, dims, keepdim, dtype, false);
}
Tensor sparse_csr_prod(const Tensor& self, IntArrayRef dims, bool keepdim,
                       std::optional<c10::ScalarType> dtype) {
  return reduce_csr(self, dims, keepdim, dtype, true);
}

// --- selection -----------------------------------------------------------------------------------

// Entry by entry of `index`, the entries of self whose coordinate it names.
Tensor index_select(const Tensor& self, int64_t wrapped_dim, const Tensor& index) {
  TORCH_CHECK_INDEX(self.dim() > 0, "index_select() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK_INDEX(index.dim() == 1 && index.scalar_type() == at::kLong && index.layout() == at::kStrided,
                    "index_select() argument index must be 1-D long-tensor.");
  const int64_t dim = at::maybe_wrap_dim(wrapped_dim, self.dim());
  const int64_t size = self.size(dim);
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[dim] = index.size(0);
  const Tensor outside = index.lt(-size).logical_or(index.ge(size));
  if (index.size(0) > 0 && outside.any().item<bool>()) {
    TORCH_CHECK_INDEX(false, "index_select(): index contains ",
                      index.masked_select(outside).select(0, 0).item<int64_t>(),
                      " that is out of range for tensor of size ", size, " at dimension ", dim);
  }
  const Tensor wanted = index.add(index.lt(0).mul(size));
  const int64_t sparse_dim = self.sparse_dim();
  if (dim >= sparse_dim) {
    return make_coo(self._indices().clone(), self._values().index_select(dim - sparse_dim + 1, wanted), sizes,
                    self.is_coalesced());
  }
  const auto [sorted, order] = self._indices().select(0, dim).sort(/*stable=*/true, 0, /*descending=*/false);
  const Tensor start = at::searchsorted(sorted, wanted);
  const Tensor stop = at::searchsorted(sorted, wanted, /*out_int32=*/false, /*right=*/true);
  const auto [source, number] = repeat(stop.sub(start));
  const Tensor entry = order.index_select(0, start.index_select(0, source).add(number));
  Tensor indices = self._indices().index_select(1, entry);
  indices.select(0, dim).copy_(source);
  return make_coo(indices, self._values().index_select(0, entry), sizes, false);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_log_softmax", on_device<sparse_log_softmax>());
  m.impl("_sparse_log_softmax_backward_data", on_device<sparse_log_softmax_backward>());
  m.impl("_sparse_softmax", on_device<sparse_softmax>());
  m.impl("_sparse_softmax_backward_data", on_device<sparse_softmax_backward>());
  m.impl("_sparse_sum.dim", on_device<sparse_sum>());
  m.impl("_sparse_sum_backward", on_device<sparse_sum_backward>());
  m.impl("index_select", on_device<index_select>());
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_sparse_csr_prod.dim_dtype", on_device<sparse_csr_prod>());
  m.impl("_sparse_csr_sum.dim_dtype", on_device<sparse_csr_sum>());
}

}  // namespace torch_tpu
