// A device value that may not exist yet: the result of a recorded call, or a buffer.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/outcome.h"
#include "hlo/types.h"

namespace torch_tpu::engine {

class Queue;
struct Program;

/// Immutable in value: a write makes a new Tensor. The queue guards all members but `type`; dropping
/// the last reference tells the queue that a pending result need not be kept.
class Tensor {
 public:
  Tensor(Queue* queue, hlo::Type type) : type(std::move(type)), queue_(queue) {}
  ~Tensor();
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  const hlo::Type type;
  Queue& queue() const { return *queue_; }

 private:
  friend class Queue;
  friend struct Program;
  Queue* const queue_;
  int32_t output_ = -1;      // index among the pending results, -1 when not pending
  uint64_t leaf_epoch_ = 0;  // the graph in which leaf_ is valid
  int32_t leaf_ = -1;        // index among the pending graph's inputs
  OutcomePtr outcome_;       // null while pending
};

using TensorPtr = std::shared_ptr<Tensor>;

}  // namespace torch_tpu::engine
