// Meta kernels of the random operators that have none in ATen: without one, tracing a graph runs the operator
// to learn its shape, and the numbers drawn so are missing in the stream.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace torch_tpu {
namespace {

at::Tensor binomial(const at::Tensor& count, const at::Tensor& probability, std::optional<at::Generator>) {
  TORCH_CHECK(count.scalar_type() == probability.scalar_type(), "Found dtype ", probability.scalar_type(),
              " but expected ", count.scalar_type());
  const auto sizes = at::infer_size_symint(count.sym_sizes(), probability.sym_sizes());
  return at::detail::empty_symint_meta(sizes, count.scalar_type(), std::nullopt, std::nullopt, std::nullopt,
                                       std::nullopt);
}

at::Tensor sample_dirichlet(const at::Tensor& concentration, std::optional<at::Generator>) {
  return at::detail::empty_symint_meta(concentration.sym_sizes(), concentration.scalar_type(), std::nullopt,
                                       std::nullopt, std::nullopt, std::nullopt);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("binomial", binomial);
  m.impl("_sample_dirichlet", sample_dirichlet);
}

}  // namespace torch_tpu
