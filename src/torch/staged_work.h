// Collectives on device tensors that a CPU transport carries: it moves copies on the host, and the
// results are written to the device by the thread that waits.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace torch_tpu {

class StagedWork;

/// What a collective has started: the transport's works, and what to do once all of them are done.
struct Flight {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::vector<std::function<void()>> deliveries;  // write results; run once, in order
  std::vector<at::Tensor> outputs;                // what result() and the future show
};

/// The collectives of one group whose results are not written yet, oldest first. As on a device with
/// streams, who waits for one has waited for those before it, and a collective sees the results of
/// earlier ones without a wait. Thread-safe.
class PendingWorks {
 public:
  void add(c10::intrusive_ptr<StagedWork> work);
  /// Completes the works before `work`, and `work` itself.
  void complete_through(StagedWork& work, std::chrono::milliseconds timeout);
  /// Completes the oldest works as far as the transport is done with them; does not block.
  void complete_arrived();
  /// Completes all works up to the last one that writes into the tensor's storage.
  void complete_writers_of(const at::Tensor& tensor);
  /// Forgets all works, unfinished.
  void clear();

 private:
  c10::intrusive_ptr<StagedWork> front_if_pending(const StagedWork& work);
  void remove_front(const StagedWork& work);

  std::mutex mutex_;
  std::deque<c10::intrusive_ptr<StagedWork>> works_;
};

/// The handle of one collective. Errors of the transport and of the device are kept, and raised by
/// wait() and through the future.
class StagedWork final : public c10d::Work {
 public:
  /// `pending` may be null: the work is then ordered with no other (send and recv).
  StagedWork(int rank, c10d::OpType type, Flight flight, std::shared_ptr<PendingWorks> pending);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  /// Blocks until the work is complete: only then are the results on the device.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

  /// Waits for the transport and writes the results, unless that was done. Throws only when `timeout`
  /// ended the wait; any other error is kept.
  void complete(std::chrono::milliseconds timeout);
  /// Whether complete() would not block on the transport.
  bool has_arrived();
  /// Whether an output lies in the same storage as the tensor.
  bool writes_into_storage_of(const at::Tensor& tensor) const;

 private:
  void complete_in_order(std::chrono::milliseconds timeout);

  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<PendingWorks> pending_;
  std::mutex complete_mutex_;  // held while waiting and writing
  std::vector<std::function<void()>> deliveries_;
  std::atomic<bool> done_ = false;
  std::exception_ptr error_;  // constant once done_ is true
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// While it lives, operators on host copies are neither seen by autograd nor by Python's modes.
class HostScope {
 public:
  HostScope();

 private:
  at::AutoDispatchBelowADInplaceOrView autograd_;
  c10::impl::ExcludeDispatchKeyGuard python_;
};

}  // namespace torch_tpu
