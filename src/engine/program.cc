#include "engine/program.h"

#include <algorithm>

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
  if (call.body != nullptr) return call.body->updates;
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

// XLA puts a result in the memory of an input without a copy when the input is not read once the result is
// written. So the pairs are those of in-place updates: a chain of ops leads from the input's last use to the
// result.
std::vector<int32_t> updated_leaves(const Graph& graph, std::span<const uint8_t> needed,
                                    std::span<const uint8_t> may_donate) {
  std::vector<int32_t> last_use(graph.leaves.size(), kNone);
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    const Graph::Node& node = graph.nodes[i];
    for (const Reference reference : graph.references_of(node)) {
      if (reference < 0) last_use[-1 - reference] = static_cast<int32_t>(i);
    }
  }

  std::vector<int32_t> origins(graph.outputs.size(), kNone);
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    const Graph::Node& node = graph.nodes[i];
    const ops::Call& call = *node.call;
    const auto update = [&](size_t output, int32_t input) {
      if (input == kNone || !(call.inputs[input] == call.outputs[output])) return false;
      const Reference reference = graph.references[node.first_reference + input];
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
    if (call.outputs.size() == 1 && call.body == nullptr) {
      for (size_t k = 0; k < call.inputs.size() && !update(0, static_cast<int32_t>(k)); ++k) continue;
      continue;
    }
    const std::vector<int32_t> inputs = updated_inputs(call);
    for (size_t output = 0; output < inputs.size(); ++output) update(output, inputs[output]);
  }
  return origins;
}

// Which result takes the memory of which input that only the program still holds.
void Program::pair_donors() {
  successors.assign(leaves.size(), kNone);
  if (std::find(may_donate.begin(), may_donate.end(), 1) == may_donate.end()) return;
  const std::vector<int32_t> origins = updated_leaves(graph, needed, may_donate);
  std::vector<int32_t> successor_of(graph.leaves.size(), kNone);
  for (size_t i = 0; i < results.size(); ++i) {
    const int32_t leaf = origins[results[i]];
    if (leaf != kNone && successor_of[leaf] == kNone) successor_of[leaf] = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < leaves.size(); ++i) successors[i] = successor_of[leaves[i]];
}

void Program::select() {
  // Backwards: a node is needed when one of its results is wanted or feeds a needed node.
  const auto has_failed = [this](size_t output) { return !failed.empty() && failed[output] != kNone; };
  std::vector<uint8_t> wanted(outcomes.size());
  results.clear();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    wanted[i] = outcomes[i] != nullptr && !has_failed(i);
    if (wanted[i]) results.push_back(static_cast<uint32_t>(i));
  }
  needed.assign(graph.nodes.size(), 0);
  std::vector<uint8_t> leaf_needed(graph.leaves.size());
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Graph::Node& node = graph.nodes[i];
    for (size_t k = node.first_output; k < graph.outputs_before(i + 1); ++k) needed[i] |= wanted[k];
    // What it asserts must be looked at, even when nobody wants its results.
    if (checks_values && !has_failed(node.first_output)) needed[i] |= !node.call->checks.empty();
    if (!needed[i]) continue;
    for (const Reference reference : graph.references_of(node)) {
      if (reference < 0) {
        leaf_needed[-1 - reference] = 1;
      } else {
        wanted[reference] = 1;
      }
    }
  }
  leaves.clear();
  for (size_t i = 0; i < leaf_needed.size(); ++i) {
    if (leaf_needed[i]) leaves.push_back(static_cast<uint32_t>(i));
  }
  pair_donors();

  key = graph.nodes.empty() ? Hash128() : graph.nodes.back().hash;
  for (const uint32_t result : results) key.append(uint64_t{result});
  for (const int32_t successor : successors) key.append(static_cast<uint64_t>(successor >= 0));
}

// What the graph holds beyond its first `count` nodes, as a graph of its own: it reads their results as
// leaves.
Graph Program::rest_after(size_t count, uint64_t epoch) const {
  Graph rest;
  rest.reserve(graph);  // the next program is often as long
  rest.in_buckets = graph.in_buckets && count < graph.nodes.size();
  const auto outputs_end = static_cast<Reference>(outcomes.size());
  std::vector<int32_t> leaf_of_output(outcomes.size(), kNone);
  std::vector<int32_t> leaf_of_leaf(graph.leaves.size(), kNone);
  for (size_t i = count; i < graph.nodes.size(); ++i) {
    const Graph::Node& node = graph.nodes[i];
    InlineVector<Reference, 8> references;
    for (const Reference reference : graph.references_of(node)) {
      if (reference >= outputs_end) {
        references.push_back(reference - outputs_end);
        continue;
      }
      int32_t& leaf = reference < 0 ? leaf_of_leaf[-1 - reference] : leaf_of_output[reference];
      if (leaf == kNone) {
        leaf = static_cast<int32_t>(rest.leaves.size());
        rest.leaves.push_back(reference < 0 ? graph.leaves[-1 - reference]
                                            : Graph::Leaf{outcomes[reference], graph.outputs[reference]});
        if (Tensor* tensor = rest.leaves.back().tensor) {
          tensor->leaf_epoch_ = epoch;
          tensor->leaf_ = leaf;
        }
      }
      references.push_back(-1 - leaf);
    }
    const size_t words_end = graph.words_before(i + 1);
    const size_t outputs_begin = node.first_output;
    for (size_t k = outputs_begin; k < graph.outputs_before(i + 1); ++k) {
      if (Tensor* tensor = graph.outputs[k])
        tensor->output_ = static_cast<int32_t>(rest.outputs.size() + k - outputs_begin);
    }
    rest.append(graph.calls[i], references,
                {graph.words.data() + node.first_word, words_end - node.first_word},
                {graph.outputs.data() + outputs_begin, node.call->outputs.size()}, graph.source_of(i));
  }
  return rest;
}

Program Program::cut(Graph& pending, size_t count, bool checks_values, uint64_t next_epoch) {
  Program program;
  program.checks_values = checks_values;
  program.graph = std::move(pending);
  Graph& all = program.graph;
  const auto outputs_end = static_cast<Reference>(all.outputs_before(count));

  std::vector<uint8_t> needed_later(all.leaves.size());
  std::vector<uint8_t> wanted(static_cast<size_t>(outputs_end));
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = all.outputs[i] != nullptr;
  for (size_t i = all.references_before(count); i < all.references.size(); ++i) {
    const Reference reference = all.references[i];
    if (reference < 0) needed_later[-1 - reference] = 1;
    if (reference >= 0 && reference < outputs_end) wanted[reference] = 1;
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    program.outcomes.push_back(wanted[i] ? std::make_shared<Outcome>() : nullptr);
    if (Tensor* tensor = all.outputs[i]) {
      tensor->output_ = -1;
      tensor->outcome_ = program.outcomes[i];
    }
  }
  // Only this graph and programs that run before still hold the value: its memory may become a result.
  for (size_t i = 0; i < all.leaves.size(); ++i) {
    const OutcomePtr& outcome = all.leaves[i].outcome;
    program.may_donate.push_back(outcome.use_count() == 1 + outcome->programs &&
                                 outcome->buffer.use_count() <= 1 && !needed_later[i]);
  }
  pending = program.rest_after(count, next_epoch);
  all.resize(count);
  all.outputs.assign(all.outputs.size(), nullptr);
  program.select();
  std::vector<uint8_t> used(all.leaves.size());
  for (const uint32_t leaf : program.leaves) used[leaf] = 1;
  for (size_t i = 0; i < used.size(); ++i) {
    all.leaves[i].tensor = nullptr;
    if (!used[i]) all.leaves[i].outcome.reset();
  }
  return program;
}

std::vector<hlo::Type> Program::result_types() const {
  std::vector<hlo::Type> types;
  auto node = graph.nodes.begin();
  for (const uint32_t result : results) {
    while (result >= node->first_output + node->call->outputs.size()) ++node;
    types.push_back(node->call->outputs[result - node->first_output]);
  }
  return types;
}

bool Program::is_empty() const { return std::find(needed.begin(), needed.end(), 1) == needed.end(); }

const Status* Program::failure_of(size_t output) const {
  const bool has_failed = !failed.empty() && failed[output] != kNone;
  return has_failed ? &graph.leaves[failed[output]].outcome->error : nullptr;
}

void Program::leave_out_failures() {
  const auto has_failed = [this](uint32_t leaf) { return !graph.leaves[leaf].outcome->error.ok(); };
  if (std::none_of(leaves.begin(), leaves.end(), has_failed)) return;
  failed.assign(outcomes.size(), kNone);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!needed[i]) continue;
    const Graph::Node& node = graph.nodes[i];
    int32_t cause = kNone;
    for (const Reference reference : graph.references_of(node)) {
      if (reference >= 0) cause = std::max(cause, failed[reference]);
      if (reference < 0 && has_failed(-1 - reference)) cause = -1 - reference;
    }
    std::fill_n(failed.begin() + node.first_output, node.call->outputs.size(), cause);
  }
  select();
}

}  // namespace torch_tpu::engine
