#include "engine/queue.h"

#include "base/env.h"
#include "base/heap.h"
#include "engine/capture.h"
#include "engine/counters.h"
#include "engine/trace.h"
#include "ops/op.h"

namespace torch_tpu::engine {
namespace {

constexpr int64_t kPendingByteLimit = int64_t{2} << 30;
// A read of what has run already ends the program that is being recorded if it has so many ops: the device
// works while the reader thinks, and the programs of a loop that reads once a turn are those of its turn.
constexpr size_t kWorthAProgram = 16;

// Recording waits when so many programs wait for the worker: what they hold stays bounded.
constexpr size_t kMostProgramsInFlight = 4;

std::atomic<Mode>& mode_storage() {
  static std::atomic<Mode> instance = [] {
    const std::string name = env::text(env::kMode);
    return name == "strict" ? Mode::kStrict : name == "blocking" ? Mode::kBlocking : Mode::kFused;
  }();
  return instance;
}

/// What a recorded graph computes: its results are those that are still held.
ops::Body body_of(const Graph& recorded) {
  ops::Body body;
  for (size_t i = 0; i < recorded.nodes.size(); ++i) {
    const auto references = recorded.references_of(recorded.nodes[i]);
    body.steps.push_back({recorded.calls[i], {references.begin(), references.end()}, recorded.source_of(i)});
  }
  const std::vector<uint8_t> all_nodes(recorded.nodes.size(), 1);
  const std::vector<uint8_t> all_leaves(recorded.leaves.size(), 1);
  const std::vector<int32_t> updates = updated_leaves(recorded, all_nodes, all_leaves);
  for (size_t i = 0; i < recorded.outputs.size(); ++i) {
    if (recorded.outputs[i] == nullptr) continue;
    body.results.push_back(static_cast<uint32_t>(i));
    body.updates.push_back(updates[i]);
  }
  return body;
}

std::vector<hlo::Type> leaf_types(const Graph& recorded) {
  std::vector<hlo::Type> types(recorded.leaves.size());
  for (size_t i = 0; i < recorded.nodes.size(); ++i) {
    const auto references = recorded.references_of(recorded.nodes[i]);
    for (size_t k = 0; k < references.size(); ++k) {
      if (references[k] < 0) types[-1 - references[k]] = recorded.calls[i]->inputs[k];
    }
  }
  return types;
}

thread_local bool thread_uses_buckets = false;

}  // namespace

Mode mode() { return mode_storage(); }
void set_mode(Mode mode) { mode_storage() = mode; }

bool uses_buckets() { return thread_uses_buckets; }
void set_buckets(bool uses) { thread_uses_buckets = uses; }

Tensor::~Tensor() {
  // Without a look at output_: another thread may be settling this tensor right now.
  if (!pjrt::forked_after_use()) queue_->forget(*this);
}

Queue::Queue(std::shared_ptr<pjrt::Client> client, cache::ProgramCache& cache, int device_index,
             cache::DiskCache* disk)
    : executor_(std::move(client), cache, device_index, disk),
      cut_(static_cast<size_t>(std::max<int64_t>(1, env::integer(env::kCutWindow))), kPendingByteLimit) {}

Queue::~Queue() { stop_worker(); }

Status Queue::check_capacity(int64_t bytes) {
  if (executor_.check_capacity(bytes).ok()) return {};
  await_programs();  // what they free counts
  return executor_.check_capacity(bytes);
}

Result<Reference> Queue::reference_to(const TensorPtr& tensor) {
  if (tensor->output_ >= 0) return tensor->output_;
  if (!tensor->outcome_->error.ok()) return tensor->outcome_->error;
  if (tensor->leaf_epoch_ != epoch_) {
    tensor->leaf_epoch_ = epoch_;
    tensor->leaf_ = static_cast<int32_t>(graph_.leaves.size());
    graph_.leaves.push_back({tensor->outcome_, tensor.get()});
  }
  return -1 - tensor->leaf_;
}

Result<std::vector<TensorPtr>> Queue::record(const ops::CallPtr& call, std::span<const TensorPtr> inputs,
                                             std::span<const uint64_t> words) {
  const int64_t bytes = call->result_bytes();
  if (bytes > memory_limit_bytes() / 2) RETURN_IF_ERROR(check_capacity(bytes));
  std::string source = source_line();
  std::vector<TensorPtr> results;
  results.reserve(call->outputs.size());
  InlineVector<Tensor*, 8> outputs;
  for (const hlo::Type& type : call->outputs) {
    results.push_back(std::make_shared<Tensor>(this, type));
    outputs.push_back(results.back().get());
  }

  RETURN_IF_ERROR(pjrt::check_not_forked());
  std::unique_lock lock(mutex_);
  InlineVector<Reference, 8> references;
  for (const TensorPtr& input : inputs) {
    ASSIGN_OR_RETURN(const Reference reference, reference_to(input));
    references.push_back(reference);
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    outputs[i]->output_ = static_cast<int32_t>(graph_.outputs.size() + i);
  graph_.append(call, references, words, {outputs.data(), outputs.size()}, std::move(source));
  graph_.in_buckets |= thread_uses_buckets;
  ++counters().ops_recorded;
  if (mode() == Mode::kFused) {
    cut_after(*call, lock);
    return results;
  }
  RETURN_IF_ERROR(run_pending(lock, {Cause::kMode, ""}));
  RETURN_IF_ERROR(take_broken_check());
  if (mode() == Mode::kBlocking) {
    for (const TensorPtr& result : results) RETURN_IF_ERROR(result->outcome_->buffer->await());
  }
  return results;
}

// An error of the cut-off program stays with its results until somebody reads them.
void Queue::cut_after(const ops::Call& call, std::unique_lock<std::mutex>& lock) {
  if (recording_epoch_ == epoch_ && recording_thread_ == std::this_thread::get_id()) return;
  recording_epoch_ = 0;
  if (is_dry_run()) return;
  const size_t count = cut_.append(call.hash, call.result_bytes(), ops::operators_of(call));
  if (count > 0) hand_off(count, {cut_.cause(), ""}, lock);
}

Status Queue::start_graph() {
  RETURN_IF_ERROR(pjrt::check_not_forked());
  Ending ending{Cause::kFlush, source_line()};
  std::unique_lock lock(mutex_);
  const Status status = run_pending(lock, std::move(ending));
  recording_epoch_ = epoch_;
  recording_thread_ = std::this_thread::get_id();
  return status;
}

Result<Queue::RecordedGraph> Queue::finish_graph() {
  std::unique_lock lock(mutex_);
  const bool is_whole = std::exchange(recording_epoch_, 0) == epoch_;
  if (!is_whole || graph_.nodes.empty() || mode() != Mode::kFused) {
    // What the cut rule was not told of.
    if (is_whole && !graph_.nodes.empty()) hand_off(graph_.nodes.size(), {Cause::kGraph, ""}, lock);
    return Status(Code::kUnimplemented, "a graph that runs in parts");
  }
  const Graph recorded = std::exchange(graph_, Graph());
  ops::Body body = body_of(recorded);
  RecordedGraph graph;
  for (const uint32_t result : body.results) {
    recorded.outputs[result]->output_ = static_cast<int32_t>(graph.results.size());
    graph.results.push_back(recorded.outputs[result]);
  }
  std::vector<Reference> references;
  for (const Graph::Leaf& leaf : recorded.leaves) {
    references.push_back(-1 - static_cast<Reference>(references.size()));
    graph.inputs.push_back(leaf.tensor);
  }
  graph.call = std::make_shared<const ops::Call>(ops::graph_call(std::move(body), leaf_types(recorded)));
  graph.words = recorded.words;
  graph_.leaves = recorded.leaves;
  graph_.append(graph.call, references, graph.words, graph.results, "");
  cut_after(*graph.call, lock);
  return graph;
}

TensorPtr Queue::adopt(std::shared_ptr<pjrt::Buffer> buffer) {
  auto tensor = std::make_shared<Tensor>(this, buffer->type());
  tensor->outcome_ = std::make_shared<Outcome>();
  tensor->outcome_->settled = true;
  tensor->outcome_->buffer = std::move(buffer);
  return tensor;
}

Result<std::shared_ptr<pjrt::Buffer>> Queue::materialize(const TensorPtr& tensor) {
  RETURN_IF_ERROR(pjrt::check_not_forked());
  Ending ending{Cause::kHostRead, source_line()};
  std::unique_lock lock(mutex_);
  if (tensor->output_ >= 0) {
    (void)run_pending(lock, std::move(ending));  // the tensor itself carries its error
  } else if (graph_.nodes.size() >= kWorthAProgram && recording_epoch_ != epoch_) {
    cut_.reset();
    hand_off(graph_.nodes.size(), std::move(ending), lock);
  }
  const OutcomePtr outcome = tensor->outcome_;
  progress_.wait(lock, [&] { return outcome->settled; });
  RETURN_IF_ERROR(take_broken_check());
  if (!outcome->error.ok()) return outcome->error;
  return outcome->buffer;
}

Status Queue::flush() {
  RETURN_IF_ERROR(pjrt::check_not_forked());
  Ending ending{Cause::kFlush, source_line()};
  std::unique_lock lock(mutex_);
  return run_pending(lock, std::move(ending));
}

Status Queue::synchronize() {
  RETURN_IF_ERROR(pjrt::check_not_forked());
  Ending ending{Cause::kSynchronize, source_line()};
  std::shared_ptr<pjrt::Buffer> last;
  {
    std::unique_lock lock(mutex_);
    (void)run_pending(lock, std::move(ending));
    last = last_result_;
    if (!first_error_.ok()) return std::exchange(first_error_, Status());
    RETURN_IF_ERROR(take_broken_check());
  }
  return last ? last->await() : Status();
}

void Queue::await_programs() {
  if (pjrt::forked_after_use()) return;
  std::unique_lock lock(mutex_);
  await_worker(lock);
}

void Queue::forget(Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  if (tensor.output_ >= 0) graph_.outputs[tensor.output_] = nullptr;
  if (tensor.leaf_epoch_ == epoch_) graph_.leaves[tensor.leaf_].tensor = nullptr;
}

Program Queue::cut(size_t count, Ending ending) {
  Program program = Program::cut(graph_, count, executor_.checks_values(), ++epoch_);
  program.ending = std::move(ending);
  for (const uint32_t leaf : program.leaves) ++program.graph.leaves[leaf].outcome->programs;
  for (const uint32_t result : program.results) ++program.outcomes[result]->programs;
  return program;
}

Queue::Execution Queue::execute(Program& program) {
  try {
    program.leave_out_failures();
    if (program.is_empty()) return Executor::Execution();
    return executor_.run(program);
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

void Queue::settle(Program& program, Execution execution) {
  const Status status = execution.status();
  if (!status.ok() && first_error_.ok()) first_error_ = status;
  for (size_t i = 0; i < program.outcomes.size(); ++i) {
    Outcome* outcome = program.outcomes[i].get();
    if (outcome == nullptr) continue;
    const Status* failure = program.failure_of(i);
    outcome->error = failure != nullptr ? *failure : status;
    outcome->settled = true;
    --outcome->programs;
  }
  if (execution.ok()) {
    for (size_t i = 0; i < program.results.size(); ++i)
      program.outcomes[program.results[i]]->buffer = std::move(execution->buffers[i]);
    if (broken_check_.ok()) broken_check_ = execution->broken_check;
    if (executor_.client().platform() != pjrt::Platform::kCpu && !program.results.empty())
      last_result_ = program.outcomes[program.results.back()]->buffer;
  }
  for (const Graph::Leaf& leaf : program.graph.leaves) {
    if (leaf.outcome != nullptr) --leaf.outcome->programs;
  }
  program = Program();  // here, where nobody counts the holders of its values
}

Status Queue::run_pending(std::unique_lock<std::mutex>& lock, Ending ending) {
  await_worker(lock);
  cut_.reset();
  if (graph_.nodes.empty()) return {};
  Program program = cut(graph_.nodes.size(), std::move(ending));
  return run_here(program);
}

Status Queue::run_here(Program& program) {
  Execution execution = execute(program);
  const Status status = execution.status();
  settle(program, std::move(execution));
  return status;
}

void Queue::hand_off(size_t count, Ending ending, std::unique_lock<std::mutex>& lock) {
  Program program = cut(count, std::move(ending));
  // Waking a thread takes longer than running a small program.
  if ((in_flight_.empty() && executor_.runs_at_once(program)) || !start_worker()) {
    (void)run_here(program);
    return;
  }
  in_flight_.push_back(std::move(program));
  progress_.notify_all();
  progress_.wait(lock, [this] { return in_flight_.size() < kMostProgramsInFlight; });
}

bool Queue::start_worker() {
  if (is_stopping_) return false;
  if (worker_.joinable()) return true;
  try {
    worker_ = heap::start_thread([this] { work(); });
  } catch (const std::system_error&) {
    return false;  // as many threads as the system allows
  }
  return true;
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    progress_.wait(lock, [this] { return is_stopping_ || !in_flight_.empty(); });
    if (in_flight_.empty()) return;
    Program& program = in_flight_.front();  // a deque keeps it in place
    lock.unlock();
    Execution execution = execute(program);
    lock.lock();
    settle(program, std::move(execution));
    in_flight_.pop_front();
    progress_.notify_all();
  }
}

void Queue::await_worker(std::unique_lock<std::mutex>& lock) {
  progress_.wait(lock, [this] { return in_flight_.empty(); });
}

void Queue::stop_worker() {
  if (pjrt::forked_after_use()) return;  // the thread is the parent's
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  progress_.notify_all();
  if (worker_.joinable()) worker_.join();
}

}  // namespace torch_tpu::engine
