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

/// In a dry run programs are written but neither compiled nor run: their results are buffers without content,
/// and nothing is copied to a device. Recording goes on until something asks for a result; the cut rule
/// rests.
bool is_dry_run();
/// Thread-safe; the caller has flushed what was recorded.
void set_dry_run(bool dry);

}  // namespace torch_tpu::engine
