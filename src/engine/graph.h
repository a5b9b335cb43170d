// Recorded calls in order, as flat arrays: appending allocates nothing but array growth.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "engine/outcome.h"
#include "engine/tensor.h"
#include "ops/call.h"

namespace torch_tpu::engine {

/// An argument of a call: result `reference` of the graph, or input -1 - `reference` of it.
using Reference = int32_t;

struct Graph {
  struct Node {
    const ops::Call* call;
    uint32_t first_reference;
    uint32_t first_word;
    uint32_t first_output;
    Hash128 hash;  // of the graph up to and including this node
  };
  struct Leaf {
    OutcomePtr outcome;
    Tensor* tensor = nullptr;  // whose value this is; null once nobody holds it
  };

  /// `references` are parallel to call->inputs and `outputs` to call->outputs; the call is kept.
  void append(const ops::CallPtr& call, std::span<const Reference> references,
              std::span<const uint64_t> words, std::span<Tensor* const> outputs, std::string source);

  std::span<const Reference> references_of(const Node& node) const {
    return {references.data() + node.first_reference, node.call->inputs.size()};
  }
  /// How many outputs, references and words the first `count` nodes have.
  size_t outputs_before(size_t count) const {
    return count == nodes.size() ? outputs.size() : nodes[count].first_output;
  }
  size_t references_before(size_t count) const {
    return count == nodes.size() ? references.size() : nodes[count].first_reference;
  }
  size_t words_before(size_t count) const {
    return count == nodes.size() ? words.size() : nodes[count].first_word;
  }
  /// The user's line of a node, where it was asked for.
  const std::string& source_of(size_t node) const;
  /// Makes room for as much as `other` holds.
  void reserve(const Graph& other);
  /// Keeps the first `count` nodes and all leaves.
  void resize(size_t count);

  std::vector<Node> nodes;
  std::vector<Reference> references;
  std::vector<uint64_t> words;
  std::vector<Tensor*> outputs;  // null once nobody holds the result
  std::vector<Leaf> leaves;
  std::vector<std::string> sources;  // of the nodes up to the last that has one
  std::vector<ops::CallPtr> calls;   // keeps the calls alive
  bool in_buckets = false;           // a size never gets a program of its own for being met often
};

}  // namespace torch_tpu::engine
