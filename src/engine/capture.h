// Programs as another platform would get them, so that they can be compiled for it ahead of time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pjrt/client.h"

namespace torch_tpu::engine {

/// From now on every program that a queue of this process runs is also written as StableHLO for `platform`.
/// Thread-safe, as all of these.
void start_capture(pjrt::Platform platform);
/// Ends that; returns the programs in the order in which they ran, with repetitions.
std::vector<std::string> finish_capture();

/// The platform of the capture in force.
std::optional<pjrt::Platform> capture_platform();
void add_to_capture(std::string stablehlo);

}  // namespace torch_tpu::engine
