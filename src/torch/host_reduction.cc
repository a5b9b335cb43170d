#include "torch/host_reduction.h"

#include <ATen/ATen.h>

#include "torch/copy.h"

namespace torch_tpu {
namespace {

using c10::ScalarType;
using c10d::ReduceOp;

bool is_sum(const ReduceOp& op) {
  return op.op_ == ReduceOp::SUM || op.op_ == ReduceOp::AVG || op.op_ == ReduceOp::PREMUL_SUM;
}

ScalarType carrier(ScalarType dtype, const ReduceOp& op) {
  switch (dtype) {
    case ScalarType::Bool:
      return ScalarType::Byte;
    case ScalarType::Short:
    case ScalarType::UInt16:
      return ScalarType::Int;
    case ScalarType::UInt32:
      return ScalarType::Long;
    case ScalarType::UInt64:
      TORCH_CHECK(op.op_ != ReduceOp::MIN && op.op_ != ReduceOp::MAX && op.op_ != ReduceOp::AVG,
                  "this reduction of uint64 tensors over processes is not supported");
      return ScalarType::Long;
    case ScalarType::Half:
    case ScalarType::BFloat16:
      // The sum of an average may exceed the dtype's range.
      return op.op_ == ReduceOp::AVG ? ScalarType::Float : dtype;
    default:
      if (c10::isFloat8Type(dtype)) return ScalarType::Float;
      return c10::isComplexType(dtype) ? c10::toRealValueType(dtype) : dtype;
  }
}

}  // namespace

HostReduction::HostReduction(const ReduceOp& op, ScalarType dtype, int process_count)
    : op_(op), dtype_(dtype), carried_dtype_(carrier(dtype, op)), process_count_(process_count) {
  TORCH_CHECK(dtype != ScalarType::Bool || op.op_ != ReduceOp::AVG, "boolean tensors have no average");
  TORCH_CHECK(!c10::isComplexType(dtype) || is_sum(op),
              "complex tensors can only be summed or averaged over processes");
  TORCH_CHECK(op.op_ != ReduceOp::PREMUL_SUM || op.supplement_ != nullptr, "PREMUL_SUM without a factor");
}

ReduceOp HostReduction::carried_op() const {
  if (dtype_ == ScalarType::Bool) {
    if (is_sum(op_)) return ReduceOp::MAX;
    if (op_.op_ == ReduceOp::PRODUCT) return ReduceOp::MIN;
  }
  return is_sum(op_) ? ReduceOp(ReduceOp::SUM) : op_;
}

at::Tensor HostReduction::load(const at::Tensor& tensor) const {
  at::Tensor host = empty_cpu(tensor.sizes(), dtype_);
  host.copy_(tensor);
  if (c10::isComplexType(dtype_)) host = at::view_as_real(host);
  host = host.flatten().to(carried_dtype_);
  if (op_.op_ != ReduceOp::PREMUL_SUM) return host;
  const auto& factor = static_cast<const c10d::PreMulSumSupplement&>(*op_.supplement_);
  const c10::Scalar number =
      factor.tensor_factor.defined() ? factor.tensor_factor.item() : c10::Scalar(factor.double_factor);
  return host.mul(number).to(carried_dtype_);
}

void HostReduction::store(const at::Tensor& carried, const at::Tensor& output) const {
  at::Tensor host = carried;
  if (op_.op_ == ReduceOp::AVG) {
    host = c10::isIntegralType(carried_dtype_, false) ? host.div(process_count_, "trunc")
                                                      : host.div(process_count_);
  }
  if (c10::isComplexType(dtype_)) host = at::view_as_complex(host.view({-1, 2}));
  at::Tensor(output).copy_(host.view(output.sizes()));
}

}  // namespace torch_tpu
