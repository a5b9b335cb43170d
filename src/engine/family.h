// Programs that differ in one size, such as the length of a sequence, and the programs that serve all sizes.
//
// Each distinct size of a program costs a compilation. When the same calls came with several sizes, and all
// their dimensions and integer arguments are linear functions of one of them, the next size is served by a
// bounded program (hlo/bounded.h), whose bound is a power of two: inputs are padded to it, results are
// cropped.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "engine/program.h"
#include "hlo/bounded.h"
#include "ops/call.h"

namespace torch_tpu::engine {

/// How a program runs for all sizes up to a bound.
struct BoundedProgram {
  Hash128 key;
  int64_t bound;
  std::vector<hlo::Extent> extents;   // of the integers of the program
  std::vector<hlo::Type> leaf_types;  // parallel to Program::leaves, at the bound
};

/// The StableHLO of `bounded`, which Families::find gave for `program`: it takes what the program takes, at
/// the bound, and after it the size as tensor<i32>.
Result<std::string> emit(const Program& program, const BoundedProgram& bounded, const Target& target);

/// Thread-safe.
class Families {
 public:
  /// So many sizes of a family are compiled on their own; 0 stands for all.
  explicit Families(int64_t own_sizes) : own_sizes_(own_sizes) {}

  /// What serves `program` and at which size, when its family is known well enough; learns of it otherwise.
  /// The leaves must have buffers.
  struct Match {
    std::shared_ptr<const BoundedProgram> program;
    int64_t size = 0;
  };
  Match find(const Program& program);

  /// `program` ran as what find() gave: a size that takes much time gets a program of its own after all.
  void spend(const Program& program, double seconds);
  /// What find() gave for `program` could not be compiled: its family gets nothing more.
  void give_up(const Program& program);

 private:
  using Numbers = std::vector<int64_t>;
  /// The integers of a family as functions of integer `base`; dimensions are among those that vary.
  struct Line {
    size_t base;
    std::vector<hlo::Extent> extents;
    std::map<int64_t, std::shared_ptr<const BoundedProgram>> by_bound;
  };
  struct Family {
    std::vector<Numbers> members;  // the latest
    std::vector<Line> lines;
    bool is_hopeless = false;
  };

  static bool lies_on(const Line& line, const Numbers& numbers);
  static std::optional<Line> line_through(const Numbers& a, const Numbers& b, const Numbers& c,
                                          std::span<const uint8_t> is_dimension);
  Line* learn(Family& family, const Numbers& numbers, std::span<const uint8_t> is_dimension);

  const int64_t own_sizes_;
  std::mutex mutex_;
  std::unordered_map<Hash128, Family> families_;
  std::unordered_map<Hash128, double> spent_seconds_;  // by program key
};

}  // namespace torch_tpu::engine
