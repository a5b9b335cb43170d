// Which of the pending ops a flush runs, and what they need.
#include <algorithm>

#include "engine/program.h"
#include "ops/op.h"

namespace torch_tpu::engine {

Queue::Program Queue::plan(size_t count) {
  Program program;
  program.count = count;
  const size_t total = graph_.nodes.size();
  program.outputs_end = count == total ? graph_.outputs.size() : graph_.nodes[count].first_output;
  const size_t references_end =
      count == total ? graph_.references.size() : graph_.nodes[count].first_reference;

  // What needs an input that could not be computed fails with it; the rest runs.
  const auto has_failed = [](const Leaf& leaf) { return !leaf.error.ok(); };
  if (std::any_of(graph_.leaves.begin(), graph_.leaves.end(), has_failed)) {
    program.failed.assign(program.outputs_end, -1);
    for (size_t i = 0; i < count; ++i) {
      const Node& node = graph_.nodes[i];
      int32_t cause = -1;
      for (size_t k = 0; k < node.call->inputs.size(); ++k) {
        const Reference reference = graph_.references[node.first_reference + k];
        if (reference >= 0) cause = std::max(cause, program.failed[reference]);
        if (reference < 0 && has_failed(graph_.leaves[-1 - reference])) cause = -1 - reference;
      }
      std::fill_n(program.failed.begin() + node.first_output, node.call->outputs.size(), cause);
    }
  }

  std::vector<uint8_t> wanted(program.outputs_end);
  for (size_t i = 0; i < program.outputs_end; ++i) wanted[i] = graph_.outputs[i] != nullptr;
  std::vector<uint8_t> leaf_needed_later(graph_.leaves.size());
  for (size_t i = references_end; i < graph_.references.size(); ++i) {
    const Reference reference = graph_.references[i];
    if (reference < 0) leaf_needed_later[-1 - reference] = 1;
    if (reference >= 0 && static_cast<size_t>(reference) < program.outputs_end) wanted[reference] = 1;
  }
  for (size_t i = 0; i < program.outputs_end; ++i) {
    if (!program.failed.empty() && program.failed[i] >= 0) wanted[i] = 0;
    if (wanted[i]) program.results.push_back(static_cast<uint32_t>(i));
  }

  // Backwards: a node is needed when one of its results is wanted or feeds a needed node.
  program.needed.assign(count, 0);
  std::vector<uint8_t> leaf_needed(graph_.leaves.size());
  for (size_t i = count; i-- > 0;) {
    const Node& node = graph_.nodes[i];
    const size_t last_output = i + 1 < total ? graph_.nodes[i + 1].first_output : graph_.outputs.size();
    for (size_t k = node.first_output; k < last_output; ++k) program.needed[i] |= wanted[k];
    // What it asserts must be looked at, even when nobody wants its results.
    const bool failed = !program.failed.empty() && program.failed[node.first_output] >= 0;
    if (checks_values_ && !failed) program.needed[i] |= !node.call->checks.empty();
    if (!program.needed[i]) continue;
    for (size_t k = 0; k < node.call->inputs.size(); ++k) {
      const Reference reference = graph_.references[node.first_reference + k];
      if (reference < 0) {
        leaf_needed[-1 - reference] = 1;
      } else {
        wanted[reference] = 1;
      }
    }
  }

  program.key = count > 0 ? graph_.nodes[count - 1].hash : Hash128();
  for (const uint32_t result : program.results) program.key.append(uint64_t{result});
  for (size_t i = 0; i < leaf_needed.size(); ++i) {
    if (!leaf_needed[i]) continue;
    const Leaf& leaf = graph_.leaves[i];
    // Only this graph still holds the buffer: its memory may become a result.
    const bool donate = leaf.buffer != nullptr && leaf.buffer.use_count() == 1 && !leaf_needed_later[i];
    program.leaves.push_back(static_cast<uint32_t>(i));
    program.donate.push_back(donate);
    program.key.append(uint64_t{donate});
  }
  return program;
}

}  // namespace torch_tpu::engine
