// Looking at programs while they run: what they hold, why they ended, where they came from, how long they
// took.
//
// Costs nothing but a check of a flag while nobody looks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/program.h"
#include "ops/call.h"
#include "pjrt/buffer.h"

namespace torch_tpu::engine {

/// Names the user's line that records an op now; may return "".
using SourceLine = std::string (*)();
void set_source_line(SourceLine function);
/// The user's line when TORCH_TPU_DEBUG or a trace asks for lines, "" otherwise. Not under a queue's lock.
std::string source_line();

/// Where the executable of a program was found.
enum class Origin : uint8_t { kMemory, kDisk, kCompiled };

/// One execution of a program.
struct Run {
  int device_index = 0;
  Ending ending;
  std::vector<ops::CallPtr> calls;   // what it computes, in order
  std::vector<std::string> sources;  // parallel to calls; empty texts where no lines were asked for
  int64_t unused = 0;                // recorded calls whose results nobody wanted
  Origin origin = Origin::kMemory;
  int64_t bound = 0;       // of a program for many sizes: the largest; 0 for one of its own
  std::string difference;  // of a compiled one: what no known program had (history.h)
  int64_t start_ns = 0;    // since the epoch of the system's clock
  int64_t prepare_ns = 0;  // until its executable was there
  int64_t execute_ns = 0;  // after that, until its results were

  /// "aten::mm..aten::tanh (21 ops)"
  std::string name() const;
};

/// Collects the runs of all queues that end during its life. Thread-safe.
class Trace {
 public:
  explicit Trace(bool with_sources);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// The runs so far, in the order in which they ended; forgets them. Programs in flight are not among them
  /// (Runtime::await_programs).
  std::vector<Run> take();

 private:
  friend class RunTimer;
  const bool with_sources_;
  std::vector<Run> runs_;
};

/// Whether a trace is on.
bool is_traced();

/// Follows one execution, and tells the traces of it in the end. Does nothing when no trace is on at the
/// start.
class RunTimer {
 public:
  RunTimer(const Program& program, int device_index);
  ~RunTimer();
  RunTimer(const RunTimer&) = delete;
  RunTimer& operator=(const RunTimer&) = delete;

  /// The executable is there. Executions without one are not told of.
  void found(Origin origin, int64_t bound, std::string difference);
  /// Waits for the results, so that the time is theirs.
  void await(std::span<const std::shared_ptr<pjrt::Buffer>> results);

 private:
  std::unique_ptr<Run> run_;  // null when no trace is on
  bool is_found_ = false;
};

}  // namespace torch_tpu::engine
