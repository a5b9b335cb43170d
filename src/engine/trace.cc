#include "engine/trace.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

#include "base/env.h"
#include "ops/op.h"

namespace torch_tpu::engine {
namespace {

std::atomic<SourceLine> source_line_function{nullptr};
std::atomic<int> traces_on{0};
std::atomic<int> source_traces_on{0};

std::mutex& traces_mutex() {
  static std::mutex& instance = *new std::mutex;
  return instance;
}

std::vector<Trace*>& traces() {
  static std::vector<Trace*>& instance = *new std::vector<Trace*>;
  return instance;
}

int64_t now_ns() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count();
}

}  // namespace

void set_source_line(SourceLine function) { source_line_function = function; }

std::string source_line() {
  static const bool is_debugging = !env::text(env::kDebug).empty();
  if (!is_debugging && source_traces_on.load(std::memory_order_relaxed) == 0) return "";
  const SourceLine function = source_line_function;
  return function != nullptr ? function() : "";
}

std::string Run::name() const {
  if (calls.empty()) return "nothing";
  const std::string& first = calls.front()->op->name;
  if (calls.size() == 1) return first + " (1 op)";
  return first + ".." + calls.back()->op->name + " (" + std::to_string(calls.size()) + " ops)";
}

Trace::Trace(bool with_sources) : with_sources_(with_sources) {
  const std::lock_guard lock(traces_mutex());
  traces().push_back(this);
  ++traces_on;
  source_traces_on += with_sources_;
}

Trace::~Trace() {
  const std::lock_guard lock(traces_mutex());
  std::erase(traces(), this);
  --traces_on;
  source_traces_on -= with_sources_;
}

std::vector<Run> Trace::take() {
  const std::lock_guard lock(traces_mutex());
  return std::exchange(runs_, {});
}

bool is_traced() { return traces_on.load(std::memory_order_relaxed) > 0; }

RunTimer::RunTimer(const Program& program, int device_index) {
  if (!is_traced()) return;
  run_ = std::make_unique<Run>();
  run_->device_index = device_index;
  run_->ending = program.ending;
  for (size_t i = 0; i < program.graph.nodes.size(); ++i) {
    run_->unused += !program.needed[i];
    if (!program.needed[i]) continue;
    const ops::CallPtr& call = program.graph.calls[i];
    if (call->body == nullptr) {
      run_->calls.push_back(call);
      run_->sources.push_back(program.graph.source_of(i));
      continue;
    }
    for (const ops::Body::Step& step : call->body->steps) {
      run_->calls.push_back(step.call);
      run_->sources.push_back(step.source);
    }
  }
  run_->start_ns = now_ns();
}

void RunTimer::found(Origin origin, int64_t bound, std::string difference) {
  if (run_ == nullptr) return;
  is_found_ = true;
  run_->origin = origin;
  run_->bound = bound;
  run_->difference = std::move(difference);
  run_->prepare_ns = now_ns() - run_->start_ns;
}

void RunTimer::await(std::span<const std::shared_ptr<pjrt::Buffer>> results) {
  if (run_ == nullptr) return;
  for (const auto& result : results) (void)result->await();
}

RunTimer::~RunTimer() {
  if (!is_found_) return;
  run_->execute_ns = now_ns() - run_->start_ns - run_->prepare_ns;
  const std::lock_guard lock(traces_mutex());
  for (Trace* trace : traces()) trace->runs_.push_back(*run_);
}

}  // namespace torch_tpu::engine
