// What becomes of a result once a program was made for it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "pjrt/buffer.h"

namespace torch_tpu::engine {

/// A buffer or an error once settled. Written once, by whoever runs the program; the queue guards it.
struct Outcome {
  std::shared_ptr<pjrt::Buffer> buffer;
  Status error;
  bool settled = false;
  int32_t programs = 0;  // that have not run yet and hold this
};

using OutcomePtr = std::shared_ptr<Outcome>;

}  // namespace torch_tpu::engine
