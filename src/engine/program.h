// What one flush runs: a prefix of the pending graph, what it reads and what it leaves.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/queue.h"

namespace torch_tpu::engine {

struct Queue::Program {
  size_t count = 0;                 // leading nodes of the graph
  size_t outputs_end = 0;           // their results
  std::vector<uint32_t> results;    // results that somebody still wants
  std::vector<uint8_t> needed;      // per node: a wanted result depends on it
  std::vector<uint32_t> leaves;     // inputs that needed nodes use
  std::vector<int32_t> successors;  // parallel to leaves: the result that takes its memory, or -1
  std::vector<int32_t> failed;      // per output: the failed leaf behind it or -1; empty when no leaf failed
  Hash128 key;
  std::vector<std::shared_ptr<pjrt::Buffer>> buffers;  // parallel to results, after run()
};

}  // namespace torch_tpu::engine
