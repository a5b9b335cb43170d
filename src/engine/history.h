// Which programs were compiled or loaded, so that one can tell why another one had to be.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "engine/program.h"

namespace torch_tpu::engine {

/// Names an argument of an op by its position in the op's schema; may return "".
using ArgumentName = std::string (*)(const std::string& op, int position);
void set_argument_name(ArgumentName function);

/// Holds the programs that were added last. Thread-safe.
class History {
 public:
  /// The one of this process.
  static History& of_process();

  void add(const Program& program);
  /// What `program` has that the nearest known one has not, in words: "argument mat2 of aten::mm (operator
  /// 3): tensor<8x16xf32> was tensor<4x16xf32>". Nearest is the one with the fewest differences among those
  /// of the same operators in the same order.
  std::string difference(const Program& program) const;

 private:
  static constexpr size_t kMostCalls = size_t{1} << 16;

  /// What the key of a program is made of.
  struct Description {
    explicit Description(const Program& program);
    Hash128 key;
    std::vector<ops::CallPtr> calls;
    std::vector<Reference> references;  // of all calls, one after the other
    std::vector<uint32_t> results;
    std::vector<uint32_t> given_away;  // inputs
  };
  class Comparison;

  mutable std::mutex mutex_;
  std::deque<Description> known_;  // the latest last
  size_t known_calls_ = 0;
};

}  // namespace torch_tpu::engine
