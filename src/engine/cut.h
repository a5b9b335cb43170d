// Where a stream of recorded ops is cut into programs.
//
// The rule looks at content only. Each op gets a rolling hash of the last few signatures; when the
// pending ops fill the window, the cut comes after the op with the smallest hash (the last such
// one). A loop shorter than the window therefore cuts at the same op of its body each time, and a
// longer one always cuts at its own minimum: from the second turn on the programs repeat, whatever
// the phase in which the loop was entered. This is winnowing (Schleimer, Wilkerson, Aiken,
// SIGMOD 2003) applied to programs.
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
};

/// Not thread-safe; the queue that owns it locks.
class CutRule {
 public:
  /// `window`: the most ops a program holds. `byte_limit`: all pending ops are cut off once their
  /// results exceed it.
  CutRule(size_t window, int64_t byte_limit) : window_(window), byte_limit_(byte_limit) {}

  /// Appends the next op; returns how many of the oldest pending ops form a program now (0: none).
  /// The caller runs them; the rest stay pending.
  size_t append(const Hash128& signature, int64_t result_bytes);
  /// Everything pending was run for another reason (a host read): forget the history.
  void reset();
  /// Why append() cut last.
  Cause cause() const { return cause_; }

 private:
  static constexpr size_t kHistory = 4;        // signatures in one rolling hash
  static constexpr size_t kShortWindow = 128;  // for bodies of half of it
  struct Pending {
    uint64_t content;  // the rolling hash at this op
    int64_t bytes;     // of its results
  };

  /// Whether the pending ops are two turns or more of one body.
  bool repeats() const;
  /// Cuts off the ops up to the last one with the smallest hash; returns how many these are.
  size_t cut_at_minimum();

  const size_t window_;
  const int64_t byte_limit_;
  int64_t bytes_ = 0;
  Cause cause_ = Cause::kFullWindow;
  std::vector<uint64_t> history_;
  std::vector<Pending> pending_;
};

}  // namespace torch_tpu::engine
