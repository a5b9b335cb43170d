#include "engine/capture.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace torch_tpu::engine {
namespace {

struct Capture {
  std::mutex mutex;
  std::optional<pjrt::Platform> platform;
  std::vector<std::string> programs;
};

Capture& capture() {
  static Capture& instance = *new Capture;
  return instance;
}

std::atomic<bool> dry{false};

}  // namespace

bool is_dry_run() { return dry.load(std::memory_order_relaxed); }
void set_dry_run(bool value) { dry = value; }

void start_capture(pjrt::Platform platform) {
  const std::lock_guard lock(capture().mutex);
  capture().platform = platform;
  capture().programs.clear();
}

std::vector<std::string> finish_capture() {
  const std::lock_guard lock(capture().mutex);
  capture().platform.reset();
  return std::exchange(capture().programs, {});
}

std::optional<pjrt::Platform> capture_platform() {
  const std::lock_guard lock(capture().mutex);
  return capture().platform;
}

void add_to_capture(std::string stablehlo) {
  const std::lock_guard lock(capture().mutex);
  if (capture().platform.has_value()) capture().programs.push_back(std::move(stablehlo));
}

}  // namespace torch_tpu::engine
