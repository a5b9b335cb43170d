// What one flush runs: calls cut off the pending graph, what they read and what they leave.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/cut.h"
#include "engine/graph.h"
#include "hlo/builder.h"
#include "pjrt/client.h"

namespace torch_tpu::engine {

/// Where a program ends and why; `source` is the user's line that asked for it, when lines are recorded.
struct Ending {
  Cause cause = Cause::kFlush;
  std::string source;
};

/// Owned by one thread at a time.
struct Program {
  /// Cuts the first `count` nodes off `pending`. Results that a tensor or the rest of it holds get outcomes,
  /// and the tensors become those of graph `next_epoch`. `checks_values` keeps calls that assert something,
  /// whoever wants their results. The caller holds the queue's lock.
  static Program cut(Graph& pending, size_t count, bool checks_values, uint64_t next_epoch);

  /// Leaves out what depends on inputs that could not be computed. Before it runs: by then they are settled.
  void leave_out_failures();
  bool is_empty() const;
  /// Parallel to `results`.
  std::vector<hlo::Type> result_types() const;
  /// Why output `output` is not computed; null when it is. For the life of the leaves.
  const Status* failure_of(size_t output) const;

  Graph graph;                       // these calls alone; its outputs are null
  std::vector<OutcomePtr> outcomes;  // parallel to graph.outputs; null where nobody wants the result
  bool checks_values = false;
  Ending ending;
  std::vector<uint8_t> may_donate;  // parallel to graph.leaves: nobody else will read it

  // Chosen from these.
  std::vector<int32_t> failed;      // per output: the failed leaf behind it or -1; empty when no leaf failed
  std::vector<uint32_t> results;    // outputs to compute
  std::vector<uint8_t> needed;      // per node: a result depends on it
  std::vector<uint32_t> leaves;     // inputs that needed nodes use
  std::vector<int32_t> successors;  // parallel to leaves: the result that takes its memory, or -1
  Hash128 key;

 private:
  Graph rest_after(size_t count, uint64_t epoch) const;
  void select();
  void pair_donors();
};

/// Per result of the graph: the leaf whose memory it may take, or -1. `needed` is parallel to the nodes,
/// `may_donate` to the leaves.
std::vector<int32_t> updated_leaves(const Graph& graph, std::span<const uint8_t> needed,
                                    std::span<const uint8_t> may_donate);

/// What a program is written for.
struct Target {
  pjrt::Platform platform = pjrt::Platform::kCpu;
  /// Whether the last result are the offenders of the calls' checks.
  bool checks_values = false;
  hlo::Products products = hlo::Products::kCompiler;
};

/// Appends the needed calls, given as `calls` (parallel to the nodes): parameters for the leaves, then the
/// packed integers and floats, where there are any. The builder decides about products.
Result<hlo::Values> append(hlo::Builder& builder, const Program& program, std::span<const ops::CallPtr> calls,
                           std::span<const hlo::Type> leaf_types, const Target& target);
/// The StableHLO of the needed calls. The leaves must have buffers.
Result<std::string> emit(const Program& program, const Target& target);

}  // namespace torch_tpu::engine
