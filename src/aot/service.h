// Compile requests in, answers out: the work of the process torch_tpu_compile.
//
// A request is three strings: the name of a topology; options, one "name=value" a line; StableHLO text.
// Options: level (0 to 3), replicas, partitions, serialize (1: the answer carries the program), and
// overrides of the compiler, whose names begin with xla_. An answer is two strings: a JSON object, and
// the serialised program or nothing.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "pjrt/topology.h"

namespace torch_tpu::aot {

struct Request {
  std::string topology;
  std::string options;
  std::string stablehlo;
};

struct Answer {
  std::string json;
  std::string program;
};

/// Not thread-safe.
class Service {
 public:
  explicit Service(std::shared_ptr<const pjrt::Api> api) : api_(std::move(api)) {}

  /// {"ready": true, "plugin": ..., "topologies": [...]}
  Answer greeting() const;
  /// {"accepted": true, "seconds": ..., "cpu_seconds": ..., "memory": {...}, "cost": {...},
  /// "device": {...}}, or {"accepted": false, "reason": ..., "message": ...}
  Answer compile(const Request& request);

 private:
  Result<Answer> try_compile(const Request& request);
  Result<std::shared_ptr<const pjrt::Topology>> topology(const std::string& name);

  std::shared_ptr<const pjrt::Api> api_;
  std::map<std::string, std::shared_ptr<const pjrt::Topology>> topologies_;
};

/// {"ready": false, "message": ...}
Answer failed_greeting(const Status& status);

}  // namespace torch_tpu::aot
