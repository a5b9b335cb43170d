// Matrix products that programs on the CPU platform leave to the library that torch computes with there.
#include <ATen/core/Tensor.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/core/InferenceMode.h>

#include "hlo/builder.h"
#include "torch/host_kernel_part.h"

namespace torch_tpu {
namespace {

using pjrt::HostArray;
using pjrt::HostCall;

/// The matrices of an array [batches..., rows, columns], which stays where it is: of rank 2 without batches,
/// of rank 3 with any number of them.
at::Tensor matrices(const HostArray& array) {
  const at::Tensor all = tensor_over(array);
  return all.dim() > 3 ? all.flatten(0, -3) : all;
}

void multiply(at::Tensor& result, const at::Tensor& lhs, const at::Tensor& rhs) {
  if (result.dim() == 2) {
    at::cpu::mm_out(result, lhs, rhs);
  } else {
    at::cpu::bmm_out(result, lhs, rhs);
  }
}

Status matrix_product(const HostCall& call) {
  constexpr int64_t kProductsOfPart = int64_t{1} << 22;  // waking a thread takes as long as so many
  constexpr int64_t kStep = 16;
  const c10::InferenceMode guard;
  at::Tensor result = matrices(call.results()[0]);
  const at::Tensor lhs = matrices(call.inputs()[0]).transpose(-2, -1);
  at::Tensor rhs = matrices(call.inputs()[1]);
  if (call.attribute("transpose_rhs") != 0) rhs = rhs.transpose(-2, -1);
  const int64_t products = result.numel() * lhs.size(-1);
  const int64_t wanted = std::min(call.threads(), products / kProductsOfPart);
  if (wanted < 2) {
    return run_torch_parts(call, 1, 1, 1, [&](int64_t, int64_t) { multiply(result, lhs, rhs); });
  }
  // Parts of the batches, or of the longer side of the result.
  const int64_t dim = result.dim() == 3 || result.size(0) >= result.size(1) ? 0 : 1;
  const bool has_rows = result.dim() == 3 || dim == 0;
  const int64_t step = result.dim() == 3 ? 1 : kStep;
  return run_torch_parts(call, result.size(dim), wanted, step, [&](int64_t begin, int64_t count) {
    at::Tensor part = result.narrow(dim, begin, count);
    multiply(part, has_rows ? lhs.narrow(0, begin, count) : lhs,
             dim == 1 || result.dim() == 3 ? rhs.narrow(dim, begin, count) : rhs);
  });
}

const bool registered = [] {
  pjrt::add_host_kernel(hlo::kMatrixProduct, &pjrt::host_kernel_handler<&matrix_product>);
  return true;
}();

}  // namespace
}  // namespace torch_tpu
