// The recorded ops of one device, in order, and their execution.
//
// record() appends a call to the pending graph; flush() turns the graph into one program, looks it
// up in the cache, compiles on a miss and runs it. Flushes come from host reads, synchronize(), the
// cut rule, and after every op in the strict and blocking modes. What the cut rule cuts off is compiled
// and run by a worker thread while recording goes on; the others wait for it, then run where they are
// asked for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/cut.h"
#include "engine/executor.h"
#include "engine/graph.h"
#include "engine/program.h"
#include "engine/tensor.h"
#include "ops/call.h"

namespace torch_tpu::engine {

/// When recorded ops run. kFused: many per program. kStrict: each its own program. kBlocking: each
/// its own, and the call waits for it.
enum class Mode { kFused, kStrict, kBlocking };
Mode mode();
void set_mode(Mode mode);

/// Whether what the calling thread records runs, where sizes change, in programs that many sizes share,
/// however often one of them comes.
bool uses_buckets();
void set_buckets(bool uses);

/// Thread-safe: calls from several threads are ordered by a lock.
class Queue {
 public:
  /// `disk` may be null: programs are then kept in memory only.
  Queue(std::shared_ptr<pjrt::Client> client, cache::ProgramCache& cache, int device_index,
        cache::DiskCache* disk = nullptr);
  /// Waits for the programs in flight.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  int device_index() const { return executor_.device_index(); }
  int64_t memory_limit_bytes() const { return executor_.memory_limit_bytes(); }

  /// Records `call` on `inputs` (parallel to call->inputs; tensors of this queue). `words` holds the
  /// run-time numbers: one word per scalar (two for complex), then seed and offset for random ops.
  /// In fused mode errors of execution, and broken checks of values, show up at the next host read.
  Result<std::vector<TensorPtr>> record(const ops::CallPtr& call, std::span<const TensorPtr> inputs,
                                        std::span<const uint64_t> words);

  /// Between start_graph() and finish_graph() what this thread records stays pending, and becomes one call.
  Status start_graph();
  struct RecordedGraph {
    ops::CallPtr call;
    std::vector<const Tensor*> inputs;  // parallel to call->inputs
    std::vector<Tensor*> results;       // all that are still held, parallel to call->outputs
    std::vector<uint64_t> words;
  };
  /// kUnimplemented where something ran meanwhile (a host read), another thread recorded too, or nothing was
  /// recorded: all is as without start_graph() then.
  Result<RecordedGraph> finish_graph();

  /// A tensor over an existing buffer of this device.
  TensorPtr adopt(std::shared_ptr<pjrt::Buffer> buffer);

  /// The ready buffer of `tensor`, after running whatever it waits for.
  Result<std::shared_ptr<pjrt::Buffer>> materialize(const TensorPtr& tensor);

  /// Runs everything recorded.
  Status flush();
  /// flush(), then waits for the device. Reports the first error since the last synchronize().
  Status synchronize();

  /// Waits until the programs cut off so far have run; what is pending stays so.
  void await_programs();
  /// Ends the worker after the programs in flight, for the end of the process. Later programs run where they
  /// are recorded.
  void stop_worker();

  /// OutOfMemory when `bytes` more do not fit on the device, after the programs in flight.
  Status check_capacity(int64_t bytes);

 private:
  friend class Tensor;
  using Execution = Result<Executor::Execution>;

  Result<Reference> reference_to(const TensorPtr& tensor);
  void forget(Tensor& tensor);
  Program cut(size_t count, Ending ending);
  Execution execute(Program& program);
  void settle(Program& program, Execution execution);
  Status run_pending(std::unique_lock<std::mutex>& lock, Ending ending);
  Status run_here(Program& program);
  void hand_off(size_t count, Ending ending, std::unique_lock<std::mutex>& lock);
  void cut_after(const ops::Call& call, std::unique_lock<std::mutex>& lock);
  bool start_worker();
  void work();
  void await_worker(std::unique_lock<std::mutex>& lock);
  Status take_broken_check() { return std::exchange(broken_check_, Status()); }

  Executor executor_;

  // Guards what follows, the tensors of this queue and their outcomes.
  std::mutex mutex_;
  Graph graph_;
  uint64_t epoch_ = 1;
  uint64_t recording_epoch_ = 0;  // the epoch in which a graph is recorded, 0 for none
  std::thread::id recording_thread_;
  CutRule cut_;
  Status first_error_;
  Status broken_check_;  // an assertion about values that a program found broken; raised once
  std::shared_ptr<pjrt::Buffer> last_result_;

  std::condition_variable progress_;  // a program was handed off or has run
  std::deque<Program> in_flight_;     // in order; the worker runs the first
  bool is_stopping_ = false;
  std::thread worker_;
};

}  // namespace torch_tpu::engine
