// Programs and their execution on one device: found in memory, loaded from disk or compiled, then run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/disk_cache.h"
#include "cache/program_cache.h"
#include "engine/family.h"
#include "engine/program.h"
#include "engine/trace.h"
#include "pjrt/client.h"

namespace torch_tpu::engine {

/// Whether a program that is neither in memory nor on disk is an error instead of a reason to compile.
bool cache_is_frozen();
void set_cache_frozen(bool frozen);

/// Immutable after creation; thread-safe.
class Executor {
 public:
  /// `disk` may be null: programs are then kept in memory only.
  Executor(std::shared_ptr<pjrt::Client> client, cache::ProgramCache& cache, int device_index,
           cache::DiskCache* disk);

  pjrt::Client& client() const { return *client_; }
  int device_index() const { return device_index_; }
  int64_t memory_limit_bytes() const { return memory_limit_bytes_; }
  /// Whether programs compute what their checks assert.
  bool checks_values() const { return target_.checks_values; }

  struct Execution {
    std::vector<std::shared_ptr<pjrt::Buffer>> buffers;  // parallel to Program::results
    Status broken_check;  // the first assertion about values that does not hold
  };
  /// Whether a program is known and small, so that it takes no longer to run than to hand on.
  bool runs_at_once(const Program& program);
  /// Runs a program whose leaves have buffers.
  Result<Execution> run(const Program& program);

  /// OutOfMemory when `bytes` more do not fit on the device now.
  Status check_capacity(int64_t bytes) const;

 private:
  static bool checks_values_on(pjrt::Platform platform);
  /// What runs a program: one of its own, or one for many sizes.
  struct Found {
    std::shared_ptr<pjrt::Executable> executable;
    Families::Match bounded;
    Origin origin = Origin::kMemory;
    std::string difference;  // of a compiled one, while traced: what no known program had
  };
  Result<Found> executable_for(const Program& program);
  /// Without an executable when there can be none.
  Found bounded_executable(const Program& program, const Families::Match& match);
  /// `found` was compiled or loaded for `program`.
  static void remember(const Program& program, Found& found);
  std::shared_ptr<pjrt::Executable> load(const Hash128& key);
  Result<std::shared_ptr<pjrt::Executable>> compile(const Program& program, const Hash128& key,
                                                    const std::string& stablehlo);
  /// The arguments of an execution; `temporary` holds those that the program does not.
  struct Inputs {
    std::vector<pjrt::Buffer*> arguments;
    std::vector<uint8_t> donate;
    std::vector<std::shared_ptr<pjrt::Buffer>> temporary;
  };
  Result<Inputs> inputs_of(const Program& program, const Families::Match& bounded) const;
  /// Writes the program for the capture in force, if any.
  Status capture(const Program& program) const;
  /// What a dry run gives for the results.
  std::vector<std::shared_ptr<pjrt::Buffer>> results_without_content(const Program& program) const;
  Status crop(const Program& program, std::vector<std::shared_ptr<pjrt::Buffer>>& results) const;
  Status missing_program(const Program& program) const;
  Result<std::vector<std::shared_ptr<pjrt::Buffer>>> pack_words(const Program& program) const;
  /// `broken`: the first check that an offender breaks.
  Status read_checks(const Program& program, const pjrt::Buffer& offenders, Status& broken) const;

  const std::shared_ptr<pjrt::Client> client_;
  cache::ProgramCache& cache_;
  cache::DiskCache* const disk_;
  const int device_index_;
  const int64_t memory_limit_bytes_;
  const Target target_;
  Families families_;
};

}  // namespace torch_tpu::engine
