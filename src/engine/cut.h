// Where a stream of recorded ops is cut into programs.
//
// The rule looks at content only. Each op gets a hash of the last few signatures; when the pending ops
// fill the window, the cut comes after the op with the smallest hash. A loop shorter than the window
// therefore cuts at the same op of its body each time, and a longer one always cuts at its own
// minimum: from the second turn on the programs repeat, whatever the phase in which the loop was
// entered. This is winnowing (Schleimer, Wilkerson, Aiken, SIGMOD 2003) applied to programs.
//
// Equal hashes are told apart by what came before, further back: the layers of a network are equal, and
// only their distance from its first one says which is which. Those that look the same for two windows
// are turns of one short loop; the last of them counts.
//
// A large compiled graph is the body of a loop, or a part of it, whatever its size: the cut comes before it
// when it is met again.
//
// A short body that repeats gains nothing from a window full of turns, which costs compile time and
// memory: there a part of the window is enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash.h"

namespace torch_tpu::engine {

/// Why a program ends where it does.
enum class Cause : uint8_t {
  kHostRead,  // somebody reads a value
  kSynchronize,
  kFlush,       // everything recorded was asked to run
  kMode,        // strict and blocking: after each op
  kFullWindow,  // the rest are the rule's
  kRepetition,
  kByteLimit,
  kGraph,  // a compiled graph comes again
};

/// Not thread-safe; the queue that owns it locks.
class CutRule {
 public:
  /// `window`: the most ops a program holds. `byte_limit`: all pending ops are cut off once their
  /// results exceed it.
  CutRule(size_t window, int64_t byte_limit);

  /// Appends the next op, a graph if it stands for several `operators`; returns how many of the oldest
  /// pending ones form a program now (0: none). The caller runs them; the rest stay pending.
  size_t append(const Hash128& signature, int64_t result_bytes, size_t operators = 1);
  /// Everything pending was run for another reason (a host read): forget the history.
  void reset();
  /// Why append() cut last.
  Cause cause() const { return cause_; }

 private:
  static constexpr size_t kContent = 4;        // signatures in the hash of an op
  static constexpr size_t kShortWindow = 128;  // for bodies of half of it
  static constexpr size_t kLargeGraph = 64;    // operators
  static constexpr size_t kMostOperators = size_t{1} << 14;

  struct Pending {
    int64_t bytes;  // of results
    size_t operators;
  };
  size_t pending() const { return pending_.size(); }
  /// The hash of the `count` signatures before position `end` of the history.
  uint64_t hash_before(size_t end, size_t count) const {
    return prefix_[end] - prefix_[end - count] * power_[count];
  }
  /// Whether the pending ops are two turns or more of one body.
  bool repeats() const;
  /// Whether the last pending op is a large graph that is pending already.
  bool repeats_graph() const;
  /// Whether a cut at position `a` of the history is better than one at the later `b` of equal content.
  bool has_smaller_history(size_t a, size_t b) const;
  /// How many pending ops there are up to the smallest.
  size_t minimum() const;
  /// Cuts off so many; returns their number.
  size_t cut_off(size_t count, Cause cause);
  void forget_oldest();

  const size_t window_;
  const size_t depth_;  // of the history that tells equal places apart
  const int64_t byte_limit_;
  int64_t bytes_ = 0;  // of all pending ops
  size_t operators_ = 0;
  Cause cause_ = Cause::kFullWindow;
  std::vector<Pending> pending_;
  // The history, which ends with the pending ops. A cut at position i comes after the first i of it.
  std::vector<uint64_t> signatures_;
  std::vector<uint64_t> prefix_{0};  // prefix_[i]: a polynomial whose coefficients are the first i signatures
  std::vector<uint64_t> power_;      // of the polynomial's variable
};

}  // namespace torch_tpu::engine
