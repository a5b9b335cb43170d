// Reductions over processes as a CPU transport can carry them out: of the dtypes and operators that
// it lacks, those that others can stand for.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace torch_tpu {

/// One reduction of tensors of `dtype` over `process_count` processes. Raises where none is defined, such
/// as the average of booleans.
class HostReduction {
 public:
  HostReduction(const c10d::ReduceOp& op, c10::ScalarType dtype, int process_count);

  /// What the transport reduces with.
  c10d::ReduceOp carried_op() const;
  /// A fresh flat CPU tensor for the transport to reduce in place. Element order is row-major; parts
  /// of equal size of the tensor are parts of equal size of the result.
  at::Tensor load(const at::Tensor& tensor) const;
  /// Writes the reduced `carried`, or a part of it, to `output`, which has as many elements.
  void store(const at::Tensor& carried, const at::Tensor& output) const;

 private:
  c10d::ReduceOp op_;
  c10::ScalarType dtype_;
  c10::ScalarType carried_dtype_;  // of complex tensors that of their parts
  int process_count_;
};

}  // namespace torch_tpu
