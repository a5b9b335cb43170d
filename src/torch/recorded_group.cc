#include "torch/recorded_group.h"

#include <ATen/ops/cat.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "torch/record.h"
#include "torch/staged_work.h"

PYBIND11_DECLARE_HOLDER_TYPE(T, c10::intrusive_ptr<T>, true)  // as torch's own module

namespace torch_tpu {
namespace {

using c10d::OpType;
using c10d::ReduceOp;
using c10d::Work;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<Work>;

int64_t code_of(const ReduceOp& op) {
  switch (op.op_) {
    case ReduceOp::SUM:
    case ReduceOp::AVG:
      return static_cast<int64_t>(hlo::Reduction::kSum);
    case ReduceOp::PRODUCT:
      return static_cast<int64_t>(hlo::Reduction::kProduct);
    case ReduceOp::MIN:
      return static_cast<int64_t>(hlo::Reduction::kMin);
    case ReduceOp::MAX:
      return static_cast<int64_t>(hlo::Reduction::kMax);
    case ReduceOp::BAND:
      return static_cast<int64_t>(hlo::Reduction::kAnd);
    case ReduceOp::BOR:
      return static_cast<int64_t>(hlo::Reduction::kOr);
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "this reduction is not available in a recorded program");
  }
}

/// The tensors' elements one after the other.
at::Tensor flat(const Tensors& tensors) {
  Tensors parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(tensor.reshape({-1}));
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

/// Fills the tensors with the elements of `all`, in order.
void spread(const Tensors& tensors, const at::Tensor& all) {
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor(tensor).copy_(all.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

class RecordedBackend final : public c10d::Backend {
 public:
  RecordedBackend(int rank, int size, std::vector<int64_t> replicas, std::string name)
      : Backend(rank, size), replicas_(std::move(replicas)), name_(std::move(name)) {}

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return c10::make_intrusive<Options>(name_); }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return 0; }
  void startCoalescing() override {}
  WorkPtr endCoalescing() override { return done(OpType::COALESCED, {}); }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return done(OpType::BARRIER, {}); }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return reduce_all(OpType::ALLREDUCE, tensors, opts.reduceOp);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return reduce_all(OpType::ALLREDUCE_COALESCED, tensors, opts.reduceOp);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return reduce_all(OpType::REDUCE, tensors, opts.reduceOp);
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    const HostScope scope;
    spread(tensors, record("tpu::broadcast_from", flat(tensors), int64_t{opts.rootRank}));
    return done(OpType::BROADCAST, tensors);
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    gather(outputs.at(0), inputs);
    return done(OpType::ALLGATHER, outputs[0]);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    gather({output}, {input});
    return done(OpType::_ALLGATHER_BASE, {output});
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions&) override {
    for (size_t i = 0; i < inputs.size(); ++i) gather({outputs.at(i)}, {inputs[i]});
    return done(OpType::COALESCED, outputs);
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    scatter_reduced(outputs.at(0), inputs.at(0), opts.reduceOp);
    return done(OpType::REDUCE_SCATTER, outputs);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override {
    scatter_reduced(output, {input}, opts.reduceOp);
    return done(OpType::_REDUCE_SCATTER_BASE, {output});
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    for (size_t i = 0; i < inputs.size(); ++i) scatter_reduced(outputs.at(i), {inputs[i]}, opts.reduceOp);
    return done(OpType::REDUCE_SCATTER_TENSOR_COALESCED, outputs);
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions&) override {
    const auto is_even = [](const std::vector<int64_t>& splits) {
      return std::adjacent_find(splits.begin(), splits.end(), std::not_equal_to<>()) == splits.end();
    };
    TORCH_CHECK_NOT_IMPLEMENTED(is_even(output_splits) && is_even(input_splits),
                                "all_to_all_single with uneven parts is not available in a recorded program");
    exchange({output}, {input});
    return done(OpType::ALLTOALL_BASE, {output});
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    for (const at::Tensor& tensor : inputs) {
      TORCH_CHECK_NOT_IMPLEMENTED(tensor.numel() == inputs[0].numel(),
                                  "all_to_all with uneven parts is not available in a recorded program");
    }
    exchange(outputs, inputs);
    return done(OpType::ALLTOALL, outputs);
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override {
    TORCH_CHECK_NOT_IMPLEMENTED(rank_ == opts.rootRank,
                                "scatter from another process is not available in a recorded program");
    const HostScope scope;
    spread(outputs, record("tpu::scatter_from", flat(inputs.at(0)), int64_t{opts.rootRank}));
    return done(OpType::SCATTER, outputs);
  }

 private:
  /// The flat result of an operator on the flat `operand`; `detail` is the argument before the groups, if
  /// any.
  at::Tensor record(std::string_view op, const at::Tensor& operand,
                    std::optional<int64_t> detail = std::nullopt) const {
    std::vector<ops::Arg> args;
    args.reserve(4);
    args.emplace_back(ops::TensorArg{0});
    if (detail) args.emplace_back(*detail);
    args.emplace_back(replicas_);
    args.emplace_back(int64_t{size_});
    return make_tensor(record_internal(op, {read(operand)}, std::move(args)));
  }

  at::Tensor averaged(const at::Tensor& sum, const ReduceOp& op) const {
    return op.op_ == ReduceOp::AVG ? sum.div(size_).to(sum.scalar_type()) : sum;
  }

  WorkPtr reduce_all(OpType type, const Tensors& tensors, const ReduceOp& op) {
    const HostScope scope;
    for (const at::Tensor& tensor : tensors)
      spread({tensor}, averaged(record("tpu::all_reduce", flat({tensor}), code_of(op)), op));
    return done(type, tensors);
  }

  void gather(const Tensors& outputs, const Tensors& inputs) {
    const HostScope scope;
    spread(outputs, record("tpu::all_gather", flat(inputs)));
  }

  void scatter_reduced(const at::Tensor& output, const Tensors& inputs, const ReduceOp& op) {
    const HostScope scope;
    spread({output}, averaged(record("tpu::reduce_scatter", flat(inputs), code_of(op)), op));
  }

  void exchange(const Tensors& outputs, const Tensors& inputs) {
    const HostScope scope;
    spread(outputs, record("tpu::all_to_all", flat(inputs)));
  }

  WorkPtr done(OpType type, Tensors outputs) const {
    Flight flight;
    flight.outputs = std::move(outputs);
    return c10::make_intrusive<StagedWork>(rank_, type, std::move(flight), nullptr);
  }

  const std::vector<int64_t> replicas_;
  const std::string name_;
};

}  // namespace

void register_recorded_group(pybind11::module_& m) {
  m.def("recorded_group", [](int rank, int size, std::vector<int64_t> replicas, std::string name) {
    c10::intrusive_ptr<c10d::Backend> backend =
        c10::make_intrusive<RecordedBackend>(rank, size, std::move(replicas), std::move(name));
    return backend;
  });
}

}  // namespace torch_tpu
