// Convolutions that programs on the CPU platform leave to the library that torch computes with there.
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/convolution_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>

#include <span>
#include <string>
#include <vector>

#include "hlo/builder.h"
#include "torch/host_kernel_part.h"

namespace torch_tpu {
namespace {

using pjrt::HostCall;

struct Windows {
  std::vector<int64_t> stride, padding, dilation;

  explicit Windows(const HostCall& call) {
    const size_t rank = call.results()[0].type.dims.size() - 2;
    for (size_t i = 0; i < rank; ++i) {
      const std::string number = std::to_string(i);
      stride.push_back(call.attribute("stride" + number));
      padding.push_back(call.attribute("padding" + number));
      dilation.push_back(call.attribute("dilation" + number));
    }
  }
};

at::Tensor forward(const at::Tensor& x, const at::Tensor& w, const Windows& windows) {
  const std::vector<int64_t> none(windows.stride.size());
  return at::compositeexplicitautograd::convolution(x, w, {}, windows.stride, windows.padding,
                                                    windows.dilation, false, none, 1);
}

/// The gradient of x, or of w.
at::Tensor gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w, const Windows& windows,
                    bool of_weights) {
  const std::vector<int64_t> none(windows.stride.size());
  auto [dx, dw, db] = at::compositeexplicitautograd::convolution_backward(
      dy, x, w, {}, windows.stride, windows.padding, windows.dilation, false, none, 1,
      {!of_weights, of_weights, false});
  return of_weights ? dw : dx;
}

/// Calls `compute(begin, count)` for parts of `size` places.
Status over_parts(const HostCall& call, int64_t size, const std::function<void(int64_t, int64_t)>& compute) {
  constexpr int64_t kStep = 16;  // the blocks of channels that oneDNN computes
  const int64_t wanted = std::min(call.threads(), size);
  return run_torch_parts(call, size, wanted, size > wanted * kStep ? kStep : 1, compute);
}

/// Whether parts of the channels are computed rather than parts of the batch, each of which reads all
/// weights.
bool splits_channels(const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) {
  return x.size(0) < 2 || w.numel() > x.numel() + y.numel();
}

Status convolution(const HostCall& call) {
  const Windows windows(call);
  at::Tensor y = tensor_over(call.results()[0]);
  const at::Tensor x = tensor_over(call.inputs()[0]);
  const at::Tensor w = tensor_over(call.inputs()[1]);
  if (splits_channels(x, w, y)) {
    return over_parts(call, w.size(0), [&](int64_t begin, int64_t count) {
      y.narrow(1, begin, count).copy_(forward(x, w.narrow(0, begin, count), windows));
    });
  }
  return over_parts(call, x.size(0), [&](int64_t begin, int64_t count) {
    y.narrow(0, begin, count).copy_(forward(x.narrow(0, begin, count), w, windows));
  });
}

Status input_gradient(const HostCall& call) {
  const Windows windows(call);
  at::Tensor dx = tensor_over(call.results()[0]);
  const at::Tensor dy = tensor_over(call.inputs()[0]);
  const at::Tensor w = tensor_over(call.inputs()[1]);
  const int64_t dim = splits_channels(dx, w, dy) ? 1 : 0;
  return over_parts(call, dx.size(dim), [&](int64_t begin, int64_t count) {
    at::Tensor part = dx.narrow(dim, begin, count);
    const at::Tensor x =
        dim == 0 ? part : at::empty_like(part, at::MemoryFormat::Contiguous);  // for its sizes
    part.copy_(dim == 0 ? gradient(dy.narrow(0, begin, count), x, w, windows, false)
                        : gradient(dy, x, w.narrow(1, begin, count).contiguous(), windows, false));
  });
}

Status weight_gradient(const HostCall& call) {
  const Windows windows(call);
  at::Tensor dw = tensor_over(call.results()[0]);
  const at::Tensor x = tensor_over(call.inputs()[0]);
  const at::Tensor dy = tensor_over(call.inputs()[1]);
  if (splits_channels(x, dw, dy)) {
    return over_parts(call, dw.size(0), [&](int64_t begin, int64_t count) {
      at::Tensor part = dw.narrow(0, begin, count);
      part.copy_(gradient(dy.narrow(1, begin, count).contiguous(), x, part, windows, true));
    });
  }
  std::vector<at::Tensor> parts(static_cast<size_t>(x.size(0)));
  const Status status = over_parts(call, x.size(0), [&](int64_t begin, int64_t count) {
    parts[static_cast<size_t>(begin)] =
        gradient(dy.narrow(0, begin, count), x.narrow(0, begin, count), dw, windows, true);
  });
  if (!status.ok()) return status;
  const c10::InferenceMode guard;
  dw.copy_(parts[0]);
  for (const at::Tensor& part : std::span(parts).subspan(1)) {
    if (part.defined()) dw.add_(part);
  }
  return {};
}

const bool registered = [] {
  pjrt::add_host_kernel(hlo::kConvolution, &pjrt::host_kernel_handler<&convolution>);
  pjrt::add_host_kernel(hlo::kConvolutionInputGradient, &pjrt::host_kernel_handler<&input_gradient>);
  pjrt::add_host_kernel(hlo::kConvolutionWeightGradient, &pjrt::host_kernel_handler<&weight_gradient>);
  return true;
}();

}  // namespace
}  // namespace torch_tpu
