// Which form of scaled_dot_product_attention tensors of the device take.
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>

namespace torch_tpu {
namespace {

bool is_plain(const at::Tensor& x) {
  return x.dim() == 4 && !x.is_nested() && at::isFloatingType(x.scalar_type());
}

bool same_size(const at::Tensor& a, const at::Tensor& b, int64_t dim) {
  return a.sym_size(dim) == b.sym_size(dim);
}

// The operator of one call per layer where it can take the arguments, else ATen's composition of products.
int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double dropout, bool causal, std::optional<double>,
               bool) {
  constexpr auto kComposition = static_cast<int64_t>(at::SDPBackend::math);
  if (!is_plain(query) || !is_plain(key) || !is_plain(value) || dropout != 0.0) return kComposition;
  if (query.sym_numel() == 0 || key.sym_numel() == 0) return kComposition;
  if (!same_size(query, key, 0) || !same_size(key, value, 0) || !same_size(key, value, 1) ||
      !same_size(key, value, 2) || !same_size(query, key, 3) || !same_size(query, value, 3)) {
    return kComposition;
  }
  const bool gives_gradients = at::GradMode::is_enabled();
  if (mask.has_value() && (causal || (gives_gradients && mask->requires_grad()))) return kComposition;
  // Keys that several heads share would get gradients of the shape of the query.
  const bool shares_keys = !same_size(query, key, 1);
  const bool has_gradients =
      gives_gradients && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  if (shares_keys && has_gradients) return kComposition;
  return static_cast<int64_t>(at::SDPBackend::flash_attention);
}

}  // namespace
}  // namespace torch_tpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_tpu::choose)
}  // namespace at::native
