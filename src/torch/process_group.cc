#include "torch/process_group.h"

#include <pybind11/pybind11.h>

#include <numeric>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "torch/copy.h"
#include "torch/host_reduction.h"
#include "torch/record.h"
#include "torch/staged_work.h"

PYBIND11_DECLARE_HOLDER_TYPE(T, c10::intrusive_ptr<T>, true)  // as torch's own module

namespace torch_tpu {
namespace {

using c10d::OpType;
using c10d::Work;
using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<Work>;

bool on_host(const Tensors& tensors) {
  return std::none_of(tensors.begin(), tensors.end(),
                      [](const at::Tensor& tensor) { return is_tpu(tensor); });
}

bool on_host(const TensorLists& lists) {
  return std::all_of(lists.begin(), lists.end(), [](const Tensors& list) { return on_host(list); });
}

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

int64_t bytes_of(const Tensors& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const at::Tensor& tensor) { return sum + bytes_of(tensor); });
}

// Data that is only moved travels as bytes: every dtype does.
at::Tensor host_bytes(int64_t count) { return empty_cpu({count}, at::kByte); }

// The part of `bytes` at `offset` with the dtype and shape of `like`.
at::Tensor typed_part(const at::Tensor& bytes, int64_t offset, const at::Tensor& like) {
  return bytes.narrow(0, offset, bytes_of(like)).view(like.scalar_type()).view(like.sizes());
}

void check_strided(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.layout() == at::kStrided, "collectives on device \"tpu\" take strided tensors, not ",
                tensor.layout());
  }
}

const at::Tensor& single(const Tensors& tensors, const char* function) {
  TORCH_CHECK(tensors.size() == 1, function, " takes one tensor per process, got ", tensors.size());
  check_strided(tensors);
  return tensors.front();
}

// Checks the `count` parts of `whole`, for the functions that split or join tensors.
void check_parts(const Tensors& parts, size_t count, const at::Tensor& whole, const char* function) {
  TORCH_CHECK(parts.size() == count, function, " takes one tensor for each of the ", count,
              " processes, got ", parts.size());
  check_strided(parts);
  for (const at::Tensor& part : parts) {
    TORCH_CHECK(part.scalar_type() == whole.scalar_type() && part.numel() == whole.numel(), function,
                " takes tensors of one dtype and size, got ", part.scalar_type(), " ", part.sizes(), " and ",
                whole.scalar_type(), " ", whole.sizes());
  }
}

void check_multiple(const at::Tensor& large, const at::Tensor& small, int64_t count, const char* function) {
  TORCH_CHECK(large.scalar_type() == small.scalar_type() && large.numel() == count * small.numel(), function,
              " with ", count, " processes needs a tensor ", count,
              " times the other's size and of its dtype, got ", large.scalar_type(), " ", large.sizes(),
              " and ", small.scalar_type(), " ", small.sizes());
}

// The sizes in bytes of what each process gets of `tensor`, cut along dimension 0.
std::vector<int64_t> split_bytes(const at::Tensor& tensor, const std::vector<int64_t>& splits, int count) {
  TORCH_CHECK(tensor.dim() > 0, "all_to_all_single takes tensors with at least one dimension");
  const int64_t rows = tensor.size(0);
  int64_t row = static_cast<int64_t>(tensor.element_size());
  for (int64_t i = 1; i < tensor.dim(); ++i) row *= tensor.size(i);
  if (splits.empty()) {
    TORCH_CHECK(rows % count == 0, "all_to_all_single: dimension 0 of ", tensor.sizes(),
                " does not divide equally among ", count, " processes");
    return std::vector<int64_t>(count, rows / count * row);
  }
  TORCH_CHECK(splits.size() == static_cast<size_t>(count) &&
                  std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows,
              "all_to_all_single: the ", splits.size(), " split sizes do not sum up to dimension 0 of ",
              tensor.sizes());
  std::vector<int64_t> bytes;
  for (const int64_t split : splits) bytes.push_back(split * row);
  return bytes;
}

class StagedBackend final : public c10d::Backend {
 public:
  StagedBackend(c10::intrusive_ptr<c10d::Backend> transport, std::string name)
      : Backend(transport->getRank(), transport->getSize()),
        transport_(std::move(transport)),
        name_(std::move(name)) {}
  ~StagedBackend() override { pending_->clear(); }

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>(name_, transport_->getBackendOptions()->timeout);
  }
  void setTimeout(milliseconds timeout) override { transport_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { transport_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return transport_->getSequenceNumberForGroup(); }
  void abort() override { transport_->abort(); }
  void shutdown() override { transport_->shutdown(); }

  void startCoalescing() override {
    TORCH_CHECK(coalesced_ == nullptr, "coalescing has already started");
    coalesced_ = std::make_unique<Flight>();
  }

  WorkPtr endCoalescing() override {
    TORCH_CHECK(coalesced_ != nullptr, "coalescing has not started");
    Flight flight = std::move(*coalesced_);
    coalesced_.reset();
    return c10::make_intrusive<StagedWork>(rank_, OpType::COALESCED, std::move(flight), nullptr);
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    if (on_host(tensors)) return transport_->broadcast(tensors, opts);
    const at::Tensor tensor = single(tensors, "broadcast");
    Flight flight;
    const HostScope scope;
    const at::Tensor bytes = host_bytes(bytes_of(tensor));
    if (rank_ == opts.rootRank) read_into(bytes, 0, tensor);
    if (bytes.numel() > 0) flight.works.push_back(start(&Backend::broadcast, {bytes}, opts));
    if (rank_ != opts.rootRank) deliver(flight, bytes, 0, tensor);
    flight.outputs = {tensor};
    return launch(OpType::BROADCAST, std::move(flight));
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    if (on_host(tensors)) return transport_->allreduce(tensors, opts);
    return reduce_all(OpType::ALLREDUCE, tensors, opts);
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    if (on_host(tensors)) return transport_->allreduce_coalesced(tensors, opts);
    return reduce_all(OpType::ALLREDUCE_COALESCED, tensors, opts);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    if (on_host(tensors)) return transport_->reduce(tensors, opts);
    const at::Tensor tensor = single(tensors, "reduce");
    const HostReduction reduction(opts.reduceOp, tensor.scalar_type(), size_);
    Flight flight;
    const HostScope scope;
    const at::Tensor operand = load(reduction, tensor);
    if (operand.numel() > 0) {
      c10d::ReduceOptions carried = opts;
      carried.reduceOp = reduction.carried_op();
      flight.works.push_back(start(&Backend::reduce, {operand}, carried));
      if (rank_ == opts.rootRank) flight.deliveries.push_back([=] { reduction.store(operand, tensor); });
    }
    flight.outputs = {tensor};
    return launch(OpType::REDUCE, std::move(flight));
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    if (on_host(inputs) && on_host(outputs)) return transport_->allgather(outputs, inputs, opts);
    const at::Tensor& input = single(inputs, "all_gather");
    TORCH_CHECK(outputs.size() == 1, "all_gather takes one list of tensors");
    check_parts(outputs[0], size_, input, "all_gather");
    Flight flight;
    gather_all(flight, outputs[0], input, opts);
    return launch(OpType::ALLGATHER, std::move(flight));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override {
    if (on_host({output, input})) return transport_->_allgather_base(output, input, opts);
    check_multiple(output, input, size_, "all_gather_into_tensor");
    Flight flight;
    gather_all(flight, {output}, input, opts);
    return launch(OpType::_ALLGATHER_BASE, std::move(flight));
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override {
    if (on_host(outputs) && on_host(inputs)) {
      return transport_->allgather_into_tensor_coalesced(outputs, inputs, opts);
    }
    TORCH_CHECK(outputs.size() == inputs.size(),
                "all_gather_into_tensor_coalesced takes lists of equal length");
    Flight flight;
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_multiple(outputs[i], inputs[i], size_, "all_gather_into_tensor_coalesced");
      gather_all(flight, {outputs[i]}, inputs[i], opts);
    }
    return launch(OpType::COALESCED, std::move(flight));
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    if (on_host(outputs) && on_host(inputs)) return transport_->reduce_scatter(outputs, inputs, opts);
    const at::Tensor& output = single(outputs, "reduce_scatter");
    TORCH_CHECK(inputs.size() == 1, "reduce_scatter takes one list of tensors");
    check_parts(inputs[0], size_, output, "reduce_scatter");
    Flight flight;
    scatter_reduced(flight, output, inputs[0], opts);
    return launch(OpType::REDUCE_SCATTER, std::move(flight));
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override {
    if (on_host({output, input})) return transport_->_reduce_scatter_base(output, input, opts);
    check_multiple(input, output, size_, "reduce_scatter_tensor");
    Flight flight;
    scatter_reduced(flight, output, {input}, opts);
    return launch(OpType::_REDUCE_SCATTER_BASE, std::move(flight));
  }

  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    if (on_host(outputs) && on_host(inputs)) {
      return transport_->reduce_scatter_tensor_coalesced(outputs, inputs, opts);
    }
    TORCH_CHECK(outputs.size() == inputs.size(),
                "reduce_scatter_tensor_coalesced takes lists of equal length");
    Flight flight;
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_multiple(inputs[i], outputs[i], size_, "reduce_scatter_tensor_coalesced");
      scatter_reduced(flight, outputs[i], {inputs[i]}, opts);
    }
    return launch(OpType::REDUCE_SCATTER_TENSOR_COALESCED, std::move(flight));
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override {
    if (on_host({output, input})) {
      return transport_->alltoall_base(output, input, output_splits, input_splits, opts);
    }
    TORCH_CHECK(output.scalar_type() == input.scalar_type(),
                "all_to_all_single takes tensors of one dtype, got ", output.scalar_type(), " and ",
                input.scalar_type());
    return exchange(OpType::ALLTOALL_BASE, {output}, {input}, split_bytes(output, output_splits, size_),
                    split_bytes(input, input_splits, size_), opts);
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    if (on_host(outputs) && on_host(inputs)) return transport_->alltoall(outputs, inputs, opts);
    const auto count = static_cast<size_t>(size_);
    TORCH_CHECK(outputs.size() == count && inputs.size() == count,
                "all_to_all takes one tensor for each of the ", count, " processes, got ", outputs.size(),
                " and ", inputs.size());
    std::vector<int64_t> output_bytes;
    std::vector<int64_t> input_bytes;
    for (const at::Tensor& output : outputs) output_bytes.push_back(bytes_of(output));
    for (const at::Tensor& input : inputs) input_bytes.push_back(bytes_of(input));
    return exchange(OpType::ALLTOALL, outputs, inputs, std::move(output_bytes), std::move(input_bytes), opts);
  }

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    if (on_host(inputs) && on_host(outputs)) return transport_->gather(outputs, inputs, opts);
    const at::Tensor& input = single(inputs, "gather");
    const HostScope scope;
    Flight flight;
    Tensors sent{read_bytes({input})};
    TensorLists received;
    if (rank_ == opts.rootRank) {
      TORCH_CHECK(outputs.size() == 1, "gather takes one list of tensors where they arrive");
      check_parts(outputs[0], size_, input, "gather");
      received.emplace_back();
      for (const at::Tensor& output : outputs[0]) {
        received[0].push_back(host_bytes(bytes_of(input)));
        deliver(flight, received[0].back(), 0, output);
      }
      flight.outputs = outputs[0];
    }
    if (input.numel() > 0) flight.works.push_back(transport_->gather(received, sent, opts));
    return launch(OpType::GATHER, std::move(flight));
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override {
    if (on_host(outputs) && on_host(inputs)) return transport_->scatter(outputs, inputs, opts);
    const at::Tensor& output = single(outputs, "scatter");
    const HostScope scope;
    Flight flight;
    Tensors received{host_bytes(bytes_of(output))};
    TensorLists sent;
    if (rank_ == opts.rootRank) {
      TORCH_CHECK(inputs.size() == 1, "scatter takes one list of tensors where they come from");
      check_parts(inputs[0], size_, output, "scatter");
      sent.emplace_back();
      for (const at::Tensor& input : inputs[0]) sent[0].push_back(read_bytes({input}));
    }
    if (output.numel() > 0) flight.works.push_back(transport_->scatter(received, sent, opts));
    deliver(flight, received[0], 0, output);
    flight.outputs = {output};
    return launch(OpType::SCATTER, std::move(flight));
  }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    if (on_host(tensors)) return transport_->send(tensors, destination, tag);
    const HostScope scope;
    Tensors sent{read_bytes({single(tensors, "send")})};
    Flight flight;
    if (sent[0].numel() > 0) flight.works.push_back(transport_->send(sent, destination, tag));
    return launch(OpType::SEND, std::move(flight));
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    if (on_host(tensors)) return transport_->recv(tensors, source, tag);
    return receive(OpType::RECV, single(tensors, "recv"),
                   [&](Tensors& bytes) { return transport_->recv(bytes, source, tag); });
  }

  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    if (on_host(tensors)) return transport_->recvAnysource(tensors, tag);
    return receive(OpType::RECVANYSOURCE, single(tensors, "recv"),
                   [&](Tensors& bytes) { return transport_->recvAnysource(bytes, tag); });
  }

  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    Flight flight;
    flight.works.push_back(transport_->barrier(opts));
    return launch(OpType::BARRIER, std::move(flight));
  }

  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override {
    transport_->monitoredBarrier(opts, wait_all_ranks);
  }

 private:
  template <typename Method, typename Opts>
  WorkPtr start(Method method, Tensors tensors, const Opts& opts) {
    return ((*transport_).*method)(tensors, opts);
  }

  /// Copies a tensor of any device to `bytes` at `offset`, with what earlier collectives write to it.
  void read_into(const at::Tensor& bytes, int64_t offset, const at::Tensor& tensor) {
    pending_->complete_writers_of(tensor);
    if (tensor.numel() > 0) typed_part(bytes, offset, tensor).copy_(tensor);
  }

  at::Tensor read_bytes(const Tensors& tensors) {
    at::Tensor bytes = host_bytes(bytes_of(tensors));
    int64_t offset = 0;
    for (const at::Tensor& tensor : tensors) {
      read_into(bytes, offset, tensor);
      offset += bytes_of(tensor);
    }
    return bytes;
  }

  at::Tensor load(const HostReduction& reduction, const at::Tensor& tensor) {
    pending_->complete_writers_of(tensor);
    return reduction.load(tensor);
  }

  static void deliver(Flight& flight, const at::Tensor& bytes, int64_t offset, const at::Tensor& output) {
    if (output.numel() == 0) return;
    flight.deliveries.push_back([=] { at::Tensor(output).copy_(typed_part(bytes, offset, output)); });
  }

  WorkPtr launch(OpType type, Flight flight) {
    pending_->complete_arrived();
    const bool point_to_point = c10d::isP2POp(type);
    auto outputs = flight.outputs;
    auto work =
        c10::make_intrusive<StagedWork>(rank_, type, std::move(flight), point_to_point ? nullptr : pending_);
    if (!point_to_point) pending_->add(work);
    if (coalesced_ != nullptr) {
      coalesced_->works.push_back(work);
      coalesced_->outputs.insert(coalesced_->outputs.end(), outputs.begin(), outputs.end());
    }
    return work;
  }

  WorkPtr reduce_all(OpType type, const Tensors& tensors, const c10d::AllreduceOptions& opts) {
    check_strided(tensors);
    const HostScope scope;
    Flight flight;
    for (const at::Tensor& tensor : tensors) {
      const HostReduction reduction(opts.reduceOp, tensor.scalar_type(), size_);
      const at::Tensor operand = load(reduction, tensor);
      if (operand.numel() == 0) continue;
      c10d::AllreduceOptions carried = opts;
      carried.reduceOp = reduction.carried_op();
      flight.works.push_back(start(&Backend::allreduce, {operand}, carried));
      flight.deliveries.push_back([=] { reduction.store(operand, tensor); });
    }
    flight.outputs = tensors;
    return launch(type, std::move(flight));
  }

  // Every process' input, in order, fills `outputs`.
  void gather_all(Flight& flight, const Tensors& outputs, const at::Tensor& input,
                  const c10d::AllgatherOptions& opts) {
    check_strided(outputs);
    check_strided({input});
    const HostScope scope;
    at::Tensor sent = read_bytes({input});
    at::Tensor received = host_bytes(bytes_of(outputs));
    if (sent.numel() > 0) flight.works.push_back(transport_->_allgather_base(received, sent, opts));
    int64_t offset = 0;
    for (const at::Tensor& output : outputs) {
      deliver(flight, received, offset, output);
      offset += bytes_of(output);
      flight.outputs.push_back(output);
    }
  }

  // Reduces the concatenation of `inputs` on all processes; each keeps its part.
  void scatter_reduced(Flight& flight, const at::Tensor& output, const Tensors& inputs,
                       const c10d::ReduceScatterOptions& opts) {
    check_strided(inputs);
    check_strided({output});
    const HostScope scope;
    const HostReduction reduction(opts.reduceOp, output.scalar_type(), size_);
    Tensors operands;
    for (const at::Tensor& input : inputs) operands.push_back(load(reduction, input));
    const at::Tensor operand = operands.size() == 1 ? operands[0] : at::cat(operands);
    flight.outputs.push_back(output);
    if (operand.numel() == 0) return;
    c10d::AllreduceOptions carried;
    carried.reduceOp = reduction.carried_op();
    carried.timeout = opts.timeout;
    flight.works.push_back(start(&Backend::allreduce, {operand}, carried));
    const int64_t count = operand.numel() / size_;
    const at::Tensor part = operand.narrow(0, rank_ * count, count);
    flight.deliveries.push_back([=] { reduction.store(part, output); });
  }

  WorkPtr exchange(OpType type, const Tensors& outputs, const Tensors& inputs,
                   std::vector<int64_t> output_bytes, std::vector<int64_t> input_bytes,
                   const c10d::AllToAllOptions& opts) {
    check_strided(outputs);
    check_strided(inputs);
    const HostScope scope;
    Flight flight;
    at::Tensor sent = read_bytes(inputs);
    at::Tensor received = host_bytes(bytes_of(outputs));
    flight.works.push_back(transport_->alltoall_base(received, sent, output_bytes, input_bytes, opts));
    int64_t offset = 0;
    for (const at::Tensor& output : outputs) {
      deliver(flight, received, offset, output);
      offset += bytes_of(output);
    }
    flight.outputs = outputs;
    return launch(type, std::move(flight));
  }

  template <typename Receive>
  WorkPtr receive(OpType type, const at::Tensor& tensor, Receive start_receive) {
    const HostScope scope;
    Flight flight;
    Tensors bytes{host_bytes(bytes_of(tensor))};
    if (tensor.numel() > 0) flight.works.push_back(start_receive(bytes));
    deliver(flight, bytes[0], 0, tensor);
    flight.outputs = {tensor};
    return launch(type, std::move(flight));
  }

  const c10::intrusive_ptr<c10d::Backend> transport_;
  const std::string name_;
  const std::shared_ptr<PendingWorks> pending_ = std::make_shared<PendingWorks>();
  std::unique_ptr<Flight> coalesced_;  // while coalescing: the works since its start
};

}  // namespace

void register_process_group(pybind11::module_& m) {
  m.def("process_group", [](const c10::intrusive_ptr<c10d::Backend>& transport, std::string name) {
    return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<StagedBackend>(transport, std::move(name)));
  });
}

}  // namespace torch_tpu
