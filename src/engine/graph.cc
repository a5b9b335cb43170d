#include "engine/graph.h"

#include <algorithm>

namespace torch_tpu::engine {

void Graph::append(const ops::CallPtr& call, std::span<const Reference> call_references,
                   std::span<const uint64_t> call_words, std::span<Tensor* const> call_outputs,
                   std::string source) {
  Node node{call.get(), static_cast<uint32_t>(references.size()), static_cast<uint32_t>(words.size()),
            static_cast<uint32_t>(outputs.size()), nodes.empty() ? Hash128() : nodes.back().hash};
  node.hash.append(call->hash);
  for (const Reference reference : call_references) node.hash.append(static_cast<uint64_t>(reference));
  references.insert(references.end(), call_references.begin(), call_references.end());
  words.insert(words.end(), call_words.begin(), call_words.end());
  outputs.insert(outputs.end(), call_outputs.begin(), call_outputs.end());
  if (!source.empty()) {
    sources.resize(nodes.size());
    sources.push_back(std::move(source));
  }
  calls.push_back(call);
  nodes.push_back(node);
}

const std::string& Graph::source_of(size_t node) const {
  static const std::string& none = *new std::string;
  return node < sources.size() ? sources[node] : none;
}

void Graph::reserve(const Graph& other) {
  nodes.reserve(other.nodes.size());
  references.reserve(other.references.size());
  words.reserve(other.words.size());
  outputs.reserve(other.outputs.size());
  leaves.reserve(other.leaves.size());
  calls.reserve(other.calls.size());
}

void Graph::resize(size_t count) {
  outputs.resize(outputs_before(count));
  references.resize(references_before(count));
  words.resize(words_before(count));
  sources.resize(std::min(sources.size(), count));
  calls.resize(count);
  nodes.resize(count);
}

}  // namespace torch_tpu::engine
