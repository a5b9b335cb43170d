#include "aot/service.h"

#include <time.h>

#include <charconv>
#include <chrono>
#include <string_view>
#include <utility>

#include "aot/json.h"

namespace torch_tpu::aot {
namespace {

struct Options {
  pjrt::AheadOfTimeOptions compile;
  bool serialize = false;
};

Status read_number(std::string_view name, std::string_view text, int64_t low, int64_t high, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= low && number <= high) return {};
  return invalid_argument("the compile option " + std::string(name) + " is a number from " +
                          std::to_string(low) + " to " + std::to_string(high) + ", not '" +
                          std::string(text) + "'");
}

Status read_option(std::string_view name, std::string_view value, Options& options) {
  constexpr int64_t kMostDevices = 1 << 20;
  if (name.starts_with("xla_")) {
    options.compile.overrides[std::string(name)] = value;
    return {};
  }
  if (name == "replicas") return read_number(name, value, 1, kMostDevices, options.compile.build.replicas);
  if (name == "partitions")
    return read_number(name, value, 1, kMostDevices, options.compile.build.partitions);
  int64_t number = 0;
  if (name == "level") {
    RETURN_IF_ERROR(read_number(name, value, 0, 3, number));
    options.compile.build.level = static_cast<int>(number);
    return {};
  }
  if (name == "serialize") {
    RETURN_IF_ERROR(read_number(name, value, 0, 1, number));
    options.serialize = number != 0;
    return {};
  }
  return invalid_argument("there is no compile option '" + std::string(name) + "'");
}

Result<Options> read_options(std::string_view lines) {
  Options options;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    const size_t equals = std::min(line.find('='), line.size());
    if (line.empty()) continue;
    RETURN_IF_ERROR(
        read_option(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())), options));
  }
  return options;
}

/// Of all threads of the process.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string_view reason(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kOutOfMemory:
      return "out_of_memory";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kNotFound:
      return "not_found";
    case Code::kUnavailable:
      return "unavailable";
    default:
      return "internal";
  }
}

JsonObject memory_of(const pjrt::ExecutableMemory& memory) {
  JsonObject json;
  json.number("argument_bytes", memory.argument_bytes)
      .number("output_bytes", memory.output_bytes)
      .number("alias_bytes", memory.alias_bytes)
      .number("temporary_bytes", memory.temporary_bytes)
      .number("code_bytes", memory.code_bytes)
      .number("peak_bytes", memory.peak_bytes);
  return json;
}

JsonObject cost_of(const std::map<std::string, double>& cost) {
  JsonObject json;
  // The other entries count single operands.
  for (const char* name : {"flops", "transcendentals", "bytes accessed", "optimal_seconds"}) {
    if (const auto found = cost.find(name); found != cost.end()) json.number(name, found->second);
  }
  return json;
}

JsonObject device_of(const pjrt::Topology& topology) {
  JsonObject json;
  json.number("count", static_cast<int64_t>(topology.devices().size()));
  if (topology.devices().empty()) return json;
  json.text("kind", topology.devices().front().kind);
  json.number("memory_bytes", topology.devices().front().memory_bytes);
  return json;
}

}  // namespace

Answer Service::greeting() const {
  JsonObject json;
  json.flag("ready", true).text("plugin", api_->description()).texts("topologies", pjrt::topology_names());
  return {json.json(), {}};
}

Answer failed_greeting(const Status& status) {
  JsonObject json;
  json.flag("ready", false).text("message", status.message());
  return {json.json(), {}};
}

Answer Service::compile(const Request& request) {
  Result<Answer> answer = try_compile(request);
  if (answer.ok()) return std::move(answer).value();
  JsonObject json;
  json.flag("accepted", false)
      .text("reason", reason(answer.status().code()))
      .text("message", answer.status().message());
  return {json.json(), {}};
}

Result<Answer> Service::try_compile(const Request& request) {
  ASSIGN_OR_RETURN(const Options options, read_options(request.options));
  ASSIGN_OR_RETURN(const auto target, topology(request.topology));
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  ASSIGN_OR_RETURN(const auto executable, target->compile(request.stablehlo, options.compile));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double cpu_end = cpu_seconds();
  ASSIGN_OR_RETURN(const auto memory, executable->memory());
  ASSIGN_OR_RETURN(const auto cost, executable->cost());
  Answer answer;
  if (options.serialize) {
    ASSIGN_OR_RETURN(answer.program, executable->serialize());
  }
  JsonObject json;
  json.flag("accepted", true)
      .number("seconds", seconds.count())
      .number("cpu_seconds", cpu_end - cpu_start)
      .object("memory", memory_of(memory))
      .object("cost", cost_of(cost))
      .object("device", device_of(*target));
  answer.json = json.json();
  return answer;
}

Result<std::shared_ptr<const pjrt::Topology>> Service::topology(const std::string& name) {
  if (const auto found = topologies_.find(name); found != topologies_.end()) return found->second;
  ASSIGN_OR_RETURN(auto created, pjrt::Topology::create(api_, name));
  topologies_.emplace(name, created);
  return created;
}

}  // namespace torch_tpu::aot
