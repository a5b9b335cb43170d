// Arrangements of TPU chips by name, and compiling for them without a device (and so without a client).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "pjrt/ahead_of_time.h"
#include "pjrt/api.h"

namespace torch_tpu::pjrt {

/// Every name that Topology::create takes: "v5e:1x1", "v6e:2x2", "v5p:2x2x1", ...
std::vector<std::string> topology_names();

/// Makes this process fit for a libtpu without a TPU, before Api::load: no metadata server, no lock file,
/// no logs, no flags from the outside (a wrong one ends the process).
void prepare_environment_for_libtpu();

struct TopologyDevice {
  int64_t id = 0;
  std::string kind;          // "TPU v5 lite"
  int64_t memory_bytes = 0;  // 0 when unknown
};

/// Immutable; thread-safe.
class Topology {
 public:
  /// `name` is one of topology_names(); others are refused here, because libtpu guesses or crashes.
  static Result<std::shared_ptr<const Topology>> create(std::shared_ptr<const Api> api,
                                                        std::string_view name);
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<TopologyDevice>& devices() const { return devices_; }

  /// Compiles StableHLO text (a module with @main). The compiler's refusals are returned; what would make
  /// it abort is refused by check_program().
  Result<std::unique_ptr<AheadOfTimeExecutable>> compile(const std::string& stablehlo,
                                                         const AheadOfTimeOptions& options) const;

 private:
  Topology(std::shared_ptr<const Api> api, PJRT_TopologyDescription* handle, std::string_view name)
      : api_(std::move(api)), handle_(handle), name_(name) {}
  Status read_devices();

  std::shared_ptr<const Api> api_;
  PJRT_TopologyDescription* handle_;
  std::string name_;
  std::vector<TopologyDevice> devices_;
};

}  // namespace torch_tpu::pjrt
