// Operators on sparse tensors whose at::native functions are written in dense operators: they need no more
// than their names on our dispatch keys.
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_pin_memory_native.h>
#include <ATen/ops/_sparse_broadcast_to_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_to_dense_native.h>
#include <ATen/ops/_to_sparse_bsc_native.h>
#include <ATen/ops/_to_sparse_bsr_native.h>
#include <ATen/ops/_to_sparse_csc_native.h>
#include <ATen/ops/_to_sparse_csr_native.h>
#include <ATen/ops/_to_sparse_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/addmm_native.h>
#include <ATen/ops/any_native.h>
#include <ATen/ops/cat_native.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/div_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/fill_native.h>
#include <ATen/ops/floor_divide_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/is_pinned_native.h>
#include <ATen/ops/mm_native.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/mv_native.h>
#include <ATen/ops/narrow_copy_native.h>
#include <ATen/ops/native_norm_native.h>
#include <ATen/ops/norm_native.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/permute_native.h>
#include <ATen/ops/pow_native.h>
#include <ATen/ops/resize_as_sparse_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/select_copy_native.h>
#include <ATen/ops/select_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_mask_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/sub_native.h>
#include <ATen/ops/sum_native.h>
#include <ATen/ops/threshold_backward_native.h>
#include <ATen/ops/unsqueeze_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/zero_native.h>
#include <ATen/ops/zeros_native.h>
#include <torch/library.h>

#include "torch/sparse.h"

namespace torch_tpu {
namespace {

namespace native = at::native;
using at::IntArrayRef;
using at::Scalar;
using at::Tensor;
using Dim = std::optional<int64_t>;
using DType = std::optional<c10::ScalarType>;
using RoundingMode = std::optional<std::string_view>;
using ToSparse = Tensor(const Tensor&, std::optional<c10::Layout>, at::OptionalIntArrayRef, Dim);
using ToSparseDim = Tensor(const Tensor&, int64_t);
using Binary = Tensor(const Tensor&, const Tensor&);
using BinaryInPlace = Tensor&(Tensor&, const Tensor&);
using BinaryOut = Tensor&(const Tensor&, const Tensor&, Tensor&);
using Divide = Tensor(const Tensor&, const Tensor&, RoundingMode);
using DivideInPlace = Tensor&(Tensor&, const Tensor&, RoundingMode);
using DivideOut = Tensor&(const Tensor&, const Tensor&, RoundingMode, Tensor&);
using Norm = Tensor(const Tensor&, const Scalar&);
using NormOfDims = Tensor(const Tensor&, const std::optional<Scalar>&, IntArrayRef, bool, DType);

/// Picks one of the overloads of an at::native function.
template <typename Signature, Signature* function>
constexpr auto overload() {
  return on_device<function>();
}

void register_coo_entries(torch::Library& m) {
  m.impl("_coalesced_", on_device<native::_coalesced_sparse_>());
  m.impl("_dimI", on_device<native::sparse_dim_sparse>());
  m.impl("_dimV", on_device<native::dense_dim_sparse>());
  m.impl("_indices", on_device<native::_indices_sparse>());
  m.impl("_nnz", on_device<native::_nnz_sparse>());
  m.impl("_values", on_device<native::_values_sparse>());
  m.impl("dense_dim", on_device<native::dense_dim_sparse>());
  m.impl("indices", on_device<native::indices_sparse>());
  m.impl("is_coalesced", on_device<native::is_coalesced_sparse>());
  m.impl("sparse_dim", on_device<native::sparse_dim_sparse>());
  m.impl("values", on_device<native::values_sparse>());
}

void register_coo_creation(torch::Library& m) {
  m.impl("_pin_memory", on_device<native::_pin_memory_sparse_coo>());
  m.impl("_sparse_coo_tensor_with_dims", on_device<native::new_with_dims_sparse>());
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         on_device<native::new_with_dims_and_tensor_sparse_symint>());
  m.impl("clone", on_device<native::clone_sparse>());
  m.impl("copy_", on_device<native::copy_sparse_wrapper_>());
  m.impl("copy_sparse_to_sparse_", on_device<native::copy_sparse_>());
  m.impl("empty.memory_format", on_device<native::empty_sparse_symint>());
  m.impl("empty_like", on_device<native::empty_like_sparse_coo>());
  m.impl("is_pinned", on_device<native::is_pinned_sparse_coo>());
  m.impl("resize_as_sparse_", on_device<native::resize_as_sparse_>());
  m.impl("sparse_resize_", on_device<native::sparse_resize_>());
  m.impl("sparse_resize_and_clear_", on_device<native::sparse_resize_and_clear_>());
  m.impl("zero_", on_device<native::zero_sparse_>());
  m.impl("zeros.out", on_device<native::zeros_sparse_out>());
}

void register_coo_conversion(torch::Library& m) {
  m.impl("_to_dense", on_device<native::sparse_to_dense>());
  m.impl("_to_sparse", overload<ToSparse, native::sparse_coo_to_sparse>());
  m.impl("_to_sparse.sparse_dim", overload<ToSparseDim, native::sparse_coo_to_sparse>());
  m.impl("_to_sparse_bsc", on_device<native::coo_to_sparse_bsc>());
  m.impl("_to_sparse_bsr", on_device<native::coo_to_sparse_bsr>());
  m.impl("_to_sparse_csc", on_device<native::coo_to_sparse_csc>());
  m.impl("_to_sparse_csr", on_device<native::coo_to_sparse_csr>());
}

void register_coo_shape(torch::Library& m) {
  m.impl("_sparse_broadcast_to", on_device<native::sparse_broadcast_to>());
  m.impl("cat", on_device<native::cat_sparse>());
  m.impl("narrow_copy", on_device<native::narrow_copy_sparse>());
  m.impl("permute", on_device<native::permute_sparse_coo>());
  m.impl("unsqueeze", on_device<native::unsqueeze_sparse>());
  m.impl("view_as_complex", on_device<native::view_as_complex_sparse>());
  m.impl("view_as_real", on_device<native::view_as_real_sparse>());
}

void register_coo_arithmetic(torch::Library& m) {
  m.impl("add.Tensor", on_device<native::add_sparse>());
  m.impl("add_.Tensor", on_device<native::add_sparse_>());
  m.impl("any", on_device<native::any_sparse>());
  m.impl("div.Tensor", overload<Binary, native::div_sparse>());
  m.impl("div.Tensor_mode", overload<Divide, native::div_sparse>());
  m.impl("div.out", overload<BinaryOut, native::div_out_sparse_zerodim>());
  m.impl("div.out_mode", overload<DivideOut, native::div_out_sparse_zerodim>());
  m.impl("div_.Tensor", overload<BinaryInPlace, native::div_sparse_>());
  m.impl("div_.Tensor_mode", overload<DivideInPlace, native::div_sparse_>());
  m.impl("floor_divide", on_device<native::floor_divide_sparse>());
  m.impl("floor_divide.out", on_device<native::floor_divide_out_sparse_zerodim>());
  m.impl("floor_divide_.Tensor", on_device<native::floor_divide_sparse_>());
  m.impl("mul.Tensor", on_device<native::mul_sparse>());
  m.impl("mul_.Tensor", on_device<native::mul_sparse_>());
  m.impl("native_norm", overload<Norm, native::norm_sparse>());
  m.impl("native_norm.ScalarOpt_dim_dtype", overload<NormOfDims, native::norm_sparse>());
  m.impl("norm.ScalarOpt_dim", on_device<native::sparse_norm>());
  m.impl("norm.ScalarOpt_dim_dtype", on_device<native::sparse_dtype_norm>());
  m.impl("pow.Tensor_Scalar", on_device<native::pow_sparse_scalar>());
  m.impl("pow.Tensor_Scalar_out", on_device<native::pow_out_sparse_scalar>());
  m.impl("sub.Tensor", on_device<native::sub_sparse>());
  m.impl("sub.out", on_device<native::sub_out_sparse>());
  m.impl("sub_.Tensor", on_device<native::sub_sparse_>());
  m.impl("sum", on_device<native::sum_coo>());
  m.impl("sum.dim_IntList", on_device<native::sum_sparse_coo>());
  m.impl("threshold_backward", on_device<native::threshold_backward_sparse>());
  m.impl("threshold_backward.grad_input", on_device<native::threshold_backward_sparse_out>());
}

void register_coo_product(torch::Library& m) {
  m.impl("mm", overload<Binary, native::_sparse_mm>());
  m.impl("mm.out", on_device<native::_sparse_mm_out>());
  m.impl("mv", on_device<native::mv_sparse>());
}

void register_compressed_creation(torch::Library& m) {
  m.impl("_nnz", on_device<native::_nnz_sparse_csr>());
  m.impl("_pin_memory", on_device<native::_pin_memory_sparse_compressed>());
  m.impl("ccol_indices", on_device<native::ccol_indices_sparse_csr>());
  m.impl("clone", on_device<native::clone_sparse_compressed>());
  m.impl("col_indices", on_device<native::col_indices_sparse_csr>());
  m.impl("copy_", on_device<native::copy_sparse_compressed_>());
  m.impl("crow_indices", on_device<native::crow_indices_sparse_csr>());
  m.impl("dense_dim", on_device<native::dense_dim_sparse_csr>());
  m.impl("empty.memory_format", on_device<native::empty_sparse_compressed_symint>());
  m.impl("empty_like", on_device<native::empty_like_sparse_csr>());
  m.impl("fill_.Scalar", on_device<native::fill_sparse_csr_>());
  m.impl("is_pinned", on_device<native::is_pinned_sparse_compressed>());
  m.impl("normal_", on_device<native::normal_sparse_csr_>());
  m.impl("resize_", on_device<native::resize_sparse_csr_>());
  m.impl("resize_as_sparse_", on_device<native::resize_as_sparse_compressed_>());
  m.impl("row_indices", on_device<native::row_indices_sparse_csr>());
  m.impl("select.int", on_device<native::select_sparse_csr>());
  m.impl("select_copy.int", on_device<native::select_copy_sparse_csr>());
  m.impl("sparse_dim", on_device<native::sparse_dim_sparse_csr>());
  m.impl("values", on_device<native::values_sparse_csr>());
  m.impl("zero_", on_device<native::zero_sparse_csr_>());
}

void register_compressed_conversion(torch::Library& m) {
  m.impl("_to_dense", on_device<native::sparse_compressed_to_dense>());
  m.impl("_to_sparse", overload<ToSparse, native::sparse_compressed_to_sparse>());
  m.impl("_to_sparse.sparse_dim", overload<ToSparseDim, native::sparse_compressed_to_sparse>());
  m.impl("_to_sparse_bsc", on_device<native::sparse_compressed_to_sparse_bsc>());
  m.impl("_to_sparse_bsr", on_device<native::sparse_compressed_to_sparse_bsr>());
  m.impl("_to_sparse_csc", on_device<native::sparse_compressed_to_sparse_csc>());
  m.impl("_to_sparse_csr", on_device<native::sparse_compressed_to_sparse_csr>());
  m.impl("sparse_mask", on_device<native::sparse_mask_sparse_compressed>());
}

void register_compressed_arithmetic(torch::Library& m) {
  m.impl("add.Tensor", on_device<native::add_sparse_csr>());
  m.impl("add_.Tensor", on_device<native::add_sparse_csr_>());
  m.impl("addmm", on_device<native::addmm_sparse_compressed_dense>());
  m.impl("mm", on_device<native::_sparse_csr_mm>());
  m.impl("mm.out", on_device<native::_sparse_csr_mm_out>());
  m.impl("mul.Scalar", on_device<native::mul_scalar_sparse_csr>());
  m.impl("mul.Tensor", on_device<native::mul_sparse_csr>());
  m.impl("mul.out", on_device<native::mul_out_sparse_csr>());
  m.impl("mul_.Scalar", on_device<native::mul__scalar_sparse_csr>());
  m.impl("mul_.Tensor", on_device<native::mul_sparse_csr_>());
  m.impl("sum", on_device<native::sum_csr>());
  m.impl("sum.dim_IntList", on_device<native::sum_sparse_compressed>());
  m.impl("threshold_backward", on_device<native::threshold_backward_sparse_compressed>());
  m.impl("threshold_backward.grad_input", on_device<native::threshold_backward_sparse_compressed_out>());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  register_coo_entries(m);
  register_coo_creation(m);
  register_coo_conversion(m);
  register_coo_shape(m);
  register_coo_arithmetic(m);
  register_coo_product(m);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  register_compressed_creation(m);
  register_compressed_conversion(m);
  register_compressed_arithmetic(m);
}

}  // namespace torch_tpu
