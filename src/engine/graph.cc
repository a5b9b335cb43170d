#include "engine/graph.h"

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
  sources.push_back(std::move(source));
  calls.push_back(call);
  nodes.push_back(node);
}

void Graph::resize(size_t count) {
  outputs.resize(outputs_before(count));
  references.resize(references_before(count));
  words.resize(words_before(count));
  sources.resize(count);
  calls.resize(count);
  nodes.resize(count);
}

}  // namespace torch_tpu::engine
