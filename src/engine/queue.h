// The recorded ops of one device, in order, and their execution.
//
// record() appends a call to the pending graph; flush() turns the graph into one program, looks it
// up in the cache, compiles on a miss and runs it. Flushes come from host reads, synchronize(), the
// cut rule, and after every op in the strict and blocking modes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "cache/disk_cache.h"
#include "cache/program_cache.h"
#include "engine/cut.h"
#include "engine/tensor.h"
#include "hlo/builder.h"
#include "ops/call.h"
#include "pjrt/client.h"

namespace torch_tpu::engine {

/// When recorded ops run. kFused: many per program. kStrict: each its own program. kBlocking: each
/// its own, and the call waits for it.
enum class Mode { kFused, kStrict, kBlocking };
Mode mode();
void set_mode(Mode mode);

/// Whether a program that is neither in memory nor on disk is an error instead of a reason to compile.
bool cache_is_frozen();
void set_cache_frozen(bool frozen);

/// Called when TORCH_TPU_DEBUG is set, to name the user's line that records an op; may return "".
using SourceLine = std::string (*)();
void set_source_line(SourceLine function);

/// Thread-safe: calls from several threads are ordered by a lock.
class Queue {
 public:
  /// `disk` may be null: programs are then kept in memory only.
  Queue(std::shared_ptr<pjrt::Client> client, cache::ProgramCache& cache, int device_index,
        cache::DiskCache* disk = nullptr);

  int device_index() const { return device_index_; }
  int64_t memory_limit_bytes() const { return memory_limit_bytes_; }

  /// Records `call` on `inputs` (parallel to call->inputs; tensors of this queue). `words` holds the
  /// run-time numbers: one word per scalar (two for complex), then seed and offset for random ops.
  /// In fused mode errors of execution, and broken checks of values, show up at the next host read.
  Result<std::vector<TensorPtr>> record(const ops::CallPtr& call, std::span<const TensorPtr> inputs,
                                        std::span<const uint64_t> words);

  /// A tensor over an existing buffer of this device.
  TensorPtr adopt(std::shared_ptr<pjrt::Buffer> buffer);

  /// The ready buffer of `tensor`, after running whatever it waits for.
  Result<std::shared_ptr<pjrt::Buffer>> materialize(const TensorPtr& tensor);

  /// Runs everything recorded.
  Status flush();
  /// flush(), then waits for the device. Reports the first error since the last synchronize().
  Status synchronize();

  /// OutOfMemory when `bytes` more can never fit on the device.
  Status check_capacity(int64_t bytes) const;

 private:
  friend class Tensor;

  // An argument of a pending call: result `index` of the graph, or input -1 - `index` of it.
  using Reference = int32_t;

  struct Node {
    const ops::Call* call;
    uint32_t first_reference;
    uint32_t first_word;
    uint32_t first_output;
    Hash128 hash;  // of the graph up to and including this node
  };
  struct Leaf {
    std::shared_ptr<pjrt::Buffer> buffer;
    Status error;
    Tensor* tensor = nullptr;  // whose value this is; null once nobody holds it
  };
  /// The pending graph as flat arrays: appending allocates nothing but array growth.
  struct Graph {
    std::vector<Node> nodes;
    std::vector<Reference> references;
    std::vector<uint64_t> words;
    std::vector<Tensor*> outputs;     // null once nobody holds the result
    std::vector<uint32_t> producers;  // node of each output
    std::vector<Leaf> leaves;
    std::vector<std::string> sources;  // user lines, only when debugging
    std::vector<ops::CallPtr> calls;   // keeps the calls alive
  };
  /// What one flush runs.
  struct Program;

  static int word_count(const ops::Call& call);
  static bool checks_values_on(pjrt::Platform platform);
  Result<Reference> reference_to(const TensorPtr& tensor);
  void append(const ops::CallPtr& call, std::span<const Reference> references,
              std::span<const uint64_t> words, std::span<Tensor* const> outputs, std::string source);
  void forget(Tensor& tensor);
  Status flush_locked(size_t count);
  Status run(Program& program);
  Program plan(size_t count);
  void pair_donors(Program& program, std::span<const uint8_t> may_donate) const;
  Result<std::shared_ptr<pjrt::Executable>> executable_for(const Program& program);
  std::shared_ptr<pjrt::Executable> load_from_disk(const Hash128& key);
  Result<std::shared_ptr<pjrt::Executable>> compile(const Program& program);
  Status missing_program(const Program& program) const;
  Result<std::string> emit(const Program& program, pjrt::Platform platform) const;
  Result<std::vector<std::shared_ptr<pjrt::Buffer>>> pack_words(const Program& program) const;
  Status read_checks(const Program& program, const pjrt::Buffer& offenders);
  Status take_broken_check() { return std::exchange(broken_check_, Status()); }
  void settle(Program& program, const Status& status);

  const std::shared_ptr<pjrt::Client> client_;
  cache::ProgramCache& cache_;
  cache::DiskCache* const disk_;
  const int device_index_;
  const int64_t memory_limit_bytes_;
  const bool checks_values_;

  std::mutex mutex_;
  Graph graph_;
  uint64_t epoch_ = 1;
  CutRule cut_;
  Status first_error_;
  Status broken_check_;  // an assertion about values that a program found broken; raised once
  std::shared_ptr<pjrt::Buffer> last_result_;
};

}  // namespace torch_tpu::engine
