// The quantiles of ATen check their probabilities on the CPU only, where the numbers are at hand.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_assert_async_ops.h>
#include <ATen/ops/nanquantile_native.h>
#include <ATen/ops/quantile_native.h>
#include <torch/library.h>

namespace torch_tpu {
namespace {

using at::Tensor;
using Dim = std::optional<int64_t>;

// By dispatched operators, which graphs can hold.
void check_probabilities(const Tensor& q) {
  if (!q.is_floating_point()) return;  // refused by what follows
  const Tensor numbers = q.detach();
  at::_ops::_assert_async_msg::call(numbers.ge(0).logical_and_(numbers.le(1)).all(),
                                    "quantile() q values must be in the range [0, 1]");
}

Tensor quantile(const Tensor& self, const Tensor& q, Dim dim, bool keepdim, c10::string_view interpolation) {
  check_probabilities(q);
  return at::native::quantile(self, q, dim, keepdim, interpolation);
}

Tensor& quantile_out(const Tensor& self, const Tensor& q, Dim dim, bool keepdim,
                     c10::string_view interpolation, Tensor& out) {
  check_probabilities(q);
  return at::native::quantile_out(self, q, dim, keepdim, interpolation, out);
}

Tensor nanquantile(const Tensor& self, const Tensor& q, Dim dim, bool keepdim,
                   c10::string_view interpolation) {
  check_probabilities(q);
  return at::native::nanquantile(self, q, dim, keepdim, interpolation);
}

Tensor& nanquantile_out(const Tensor& self, const Tensor& q, Dim dim, bool keepdim,
                        c10::string_view interpolation, Tensor& out) {
  check_probabilities(q);
  return at::native::nanquantile_out(self, q, dim, keepdim, interpolation, out);
}

void implement(torch::Library& library) {
  library.impl("quantile", quantile);
  library.impl("quantile.out", quantile_out);
  library.impl("nanquantile", nanquantile);
  library.impl("nanquantile.out", nanquantile_out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { implement(m); }
// What they call is differentiable; they are not.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { implement(m); }

}  // namespace torch_tpu
