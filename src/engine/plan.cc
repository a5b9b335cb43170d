// Which of the pending ops a flush runs, and what they need.
#include <algorithm>

#include "engine/program.h"
#include "ops/op.h"

namespace torch_tpu::engine {

namespace {

constexpr int32_t kNone = -1;

// Per result of a call: the input that it updates, were the call in place. Results past the schema's go to
// the tensors that the op says it writes; of a list, each updates its own element; otherwise any may be.
std::vector<int32_t> updated_inputs(const ops::Call& call) {
  std::vector<int32_t> written;
  for (const int position : call.op->traits.writes) {
    const ops::Arg& arg = call.args[position];
    if (const auto* tensor = std::get_if<ops::TensorArg>(&arg)) written.push_back(tensor->input);
    if (const auto* list = std::get_if<ops::TensorListArg>(&arg))
      written.insert(written.end(), list->inputs.begin(), list->inputs.end());
  }
  const size_t count = call.outputs.size();
  std::vector<int32_t> inputs(count, kNone);
  for (size_t i = 0; i < count; ++i) inputs[i] = i < call.inputs.size() ? static_cast<int32_t>(i) : kNone;
  for (size_t i = 0; i < written.size() && i < count; ++i)
    inputs[count - 1 - i] = written[written.size() - 1 - i];
  return inputs;
}

// Whether a result may be computed in the memory of this input: where the op writes, it reads nothing else.
bool works_in_place(const ops::Call& call, int32_t input) {
  const ops::Traits& traits = call.op->traits;
  return !traits.distinct || std::any_of(traits.aligned.begin(), traits.aligned.end(), [&](int position) {
    const auto* tensor = std::get_if<ops::TensorArg>(&call.args[position]);
    return tensor != nullptr && tensor->input == input;
  });
}

}  // namespace

// Which result takes the memory of which input that only the program still holds. XLA puts them in one place
// without a copy when the input is not read once the result is written. So the pairs are those of in-place
// updates: a chain of ops leads from the input's last use to the result.
void Queue::pair_donors(Program& program, std::span<const uint8_t> may_donate) const {
  program.successors.assign(program.leaves.size(), kNone);
  if (std::find(may_donate.begin(), may_donate.end(), 1) == may_donate.end()) return;
  std::vector<int32_t> last_use(graph_.leaves.size(), kNone);
  for (size_t i = 0; i < program.count; ++i) {
    if (!program.needed[i]) continue;
    const Node& node = graph_.nodes[i];
    for (size_t k = 0; k < node.call->inputs.size(); ++k) {
      const Reference reference = graph_.references[node.first_reference + k];
      if (reference < 0) last_use[-1 - reference] = static_cast<int32_t>(i);
    }
  }

  std::vector<int32_t> origins(program.outputs_end, kNone);  // per output: the leaf that it updates
  for (size_t i = 0; i < program.count; ++i) {
    if (!program.needed[i]) continue;
    const Node& node = graph_.nodes[i];
    const ops::Call& call = *node.call;
    const auto update = [&](size_t output, int32_t input) {
      if (input == kNone || !(call.inputs[input] == call.outputs[output])) return false;
      const Reference reference = graph_.references[node.first_reference + input];
      int32_t leaf = kNone;
      if (reference >= 0) {
        leaf = origins[reference];
      } else if (may_donate[-1 - reference] && last_use[-1 - reference] == static_cast<int32_t>(i) &&
                 works_in_place(call, input)) {
        leaf = -1 - reference;
      }
      origins[node.first_output + output] = leaf;
      return leaf != kNone;
    };
    if (call.outputs.size() == 1) {
      for (size_t k = 0; k < call.inputs.size() && !update(0, static_cast<int32_t>(k)); ++k) continue;
      continue;
    }
    const std::vector<int32_t> inputs = updated_inputs(call);
    for (size_t output = 0; output < inputs.size(); ++output) update(output, inputs[output]);
  }

  std::vector<int32_t> successors(graph_.leaves.size(), kNone);
  for (size_t i = 0; i < program.results.size(); ++i) {
    const int32_t leaf = origins[program.results[i]];
    if (leaf != kNone && successors[leaf] == kNone) successors[leaf] = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < program.leaves.size(); ++i) program.successors[i] = successors[program.leaves[i]];
}

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
  std::vector<uint8_t> may_donate(leaf_needed.size());
  for (size_t i = 0; i < leaf_needed.size(); ++i) {
    if (!leaf_needed[i]) continue;
    const Leaf& leaf = graph_.leaves[i];
    // Only this graph still holds the buffer: its memory may become a result.
    may_donate[i] = leaf.buffer != nullptr && leaf.buffer.use_count() == 1 && !leaf_needed_later[i];
    program.leaves.push_back(static_cast<uint32_t>(i));
  }
  pair_donors(program, may_donate);
  for (const int32_t successor : program.successors)
    program.key.append(static_cast<uint64_t>(successor >= 0));
  return program;
}

}  // namespace torch_tpu::engine
