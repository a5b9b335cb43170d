#include "pjrt/compile_options.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>

namespace torch_tpu::pjrt {
namespace {

// Wire types and the field numbers of xla/pjrt/proto/compile_options.proto, xla/xla.proto and
// xla/service/hlo.proto that are used here.
constexpr uint64_t kVarint = 0;
constexpr uint64_t kFixed64 = 1;
constexpr uint64_t kBytes = 2;
constexpr uint64_t kFixed32 = 5;
constexpr uint64_t kOptionsBuild = 3;
constexpr uint64_t kOptionsPortable = 4;
constexpr uint64_t kOptionsOverrides = 7;
constexpr uint64_t kOverrideString = 1;
constexpr uint64_t kBuildDeviceOrdinal = 1;
constexpr uint64_t kBuildDebugOptions = 3;
constexpr uint64_t kBuildReplicas = 4;
constexpr uint64_t kBuildPartitions = 5;
constexpr uint64_t kBuildLevel = 24;
constexpr uint64_t kModuleConfig = 2;
constexpr uint64_t kConfigDebugOptions = 14;
constexpr uint64_t kDebugExtraOptions = 500;
constexpr uint64_t kEntryKey = 1;
constexpr uint64_t kEntryValue = 2;

constexpr char kExtraOptions[] = "xla_backend_extra_options";
constexpr char kLegacyEmitters[] = "xla_cpu_disable_new_fusion_emitters";

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void append_number(std::string& out, uint64_t field, uint64_t value) {
  append_varint(out, field << 3 | kVarint);
  append_varint(out, value);
}

void append_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  append_varint(out, field << 3 | kBytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

bool read_varint(std::string_view& in, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(in.front());
    in.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

/// The first length-delimited field with that number; empty where there is none.
std::string_view find_bytes(std::string_view message, uint64_t field) {
  uint64_t tag = 0;
  uint64_t value = 0;
  while (read_varint(message, tag)) {
    uint64_t size = 0;
    switch (tag & 7) {
      case kVarint:
        if (!read_varint(message, value)) return {};
        break;
      case kFixed64:
        size = 8;
        break;
      case kFixed32:
        size = 4;
        break;
      case kBytes:
        if (!read_varint(message, size)) return {};
        break;
      default:
        return {};
    }
    if (size > message.size()) return {};
    if (tag == (field << 3 | kBytes)) return message.substr(0, size);
    message.remove_prefix(size);
  }
  return {};
}

/// The compiler parses overrides by the type of the field; it spells booleans as Python does.
std::string_view spelling(std::string_view value) {
  return value == "true" ? "True" : value == "false" ? "False" : value;
}

/// Completes `overrides` for XLA:CPU and returns the backend's extra options, separated by commas:
/// a map field cannot be an override, its entries travel in a copy of the DebugOptions.
std::string choose_on_cpu(const CompileOptions& options, bool can_copy,
                          std::map<std::string, std::string>& overrides) {
  const auto extra = overrides.extract(kExtraOptions);
  std::string keys = extra.empty() ? "" : extra.mapped();
  // The fast forms of maximum and minimum lose NaNs.
  overrides.emplace("xla_cpu_enable_fast_min_max", "false");
  // Every operator rounds its result to its dtype, as ATen does. LLVM may still drop the rounding of float16
  // between fused ones.
  overrides.emplace("xla_allow_excess_precision", "false");
  if (options.effort == Effort::kQuick) {
    overrides.emplace("xla_backend_optimization_level", "0");
    // The new emitters cost 25 ms a kernel whatever the level. Without the copy, single operations
    // at least can be kept away from them.
    if (can_copy) {
      keys += (keys.empty() ? "" : ",") + std::string(kLegacyEmitters);
    } else {
      overrides.emplace("xla_disable_hlo_passes", "fusion-wrapper");
    }
  }
  return keys;
}

}  // namespace

std::string encode_compile_options(const std::map<std::string, std::string>& overrides,
                                   std::string_view debug_options, const BuildOptions& build_options) {
  // The enumeration of levels, O0 to O3, leaves room between its values.
  constexpr int kLowestLevel = 9;
  constexpr int kLevelStep = 10;
  std::string build;
  append_number(build, kBuildDeviceOrdinal, static_cast<uint64_t>(int64_t{-1}));
  if (!debug_options.empty()) append_bytes(build, kBuildDebugOptions, debug_options);
  append_number(build, kBuildReplicas, static_cast<uint64_t>(build_options.replicas));
  append_number(build, kBuildPartitions, static_cast<uint64_t>(build_options.partitions));
  if (build_options.level >= 0) {
    append_number(build, kBuildLevel, static_cast<uint64_t>(kLowestLevel + kLevelStep * build_options.level));
  }

  std::string options;
  append_bytes(options, kOptionsBuild, build);
  append_number(options, kOptionsPortable, 1);
  for (const auto& [name, value] : overrides) {
    std::string content;
    append_bytes(content, kOverrideString, spelling(value));
    std::string entry;
    append_bytes(entry, kEntryKey, name);
    append_bytes(entry, kEntryValue, content);
    append_bytes(options, kOptionsOverrides, entry);
  }
  return options;
}

std::string_view debug_options_of(std::string_view module_with_config) {
  return find_bytes(find_bytes(module_with_config, kModuleConfig), kConfigDebugOptions);
}

std::string with_backend_extra_options(std::string_view debug_options, std::string_view keys) {
  std::string extended(debug_options);
  for (size_t start = 0; start < keys.size();) {
    const size_t end = std::min(keys.find(',', start), keys.size());
    std::string entry;
    append_bytes(entry, kEntryKey, keys.substr(start, end - start));
    append_bytes(entry, kEntryValue, "");
    append_bytes(extended, kDebugExtraOptions, entry);
    start = end + 1;
  }
  return extended;
}

bool CompilePolicy::needs_debug_options(const CompileOptions& options) const {
  if (options.effort != Effort::kQuick && !options.overrides.contains(kExtraOptions)) return false;
  const std::lock_guard lock(mutex_);
  return !debug_options_.has_value();
}

void CompilePolicy::set_debug_options(std::string bytes) {
  const std::lock_guard lock(mutex_);
  if (!debug_options_.has_value()) debug_options_ = std::move(bytes);
}

CompilePolicy::Attempt CompilePolicy::attempt(const CompileOptions& options, bool is_cpu) const {
  const std::lock_guard lock(mutex_);
  Attempt attempt;
  attempt.overrides = options.overrides;
  std::string debug_options;
  if (is_cpu) {
    const bool can_copy = debug_options_.has_value() && !debug_options_->empty();
    const std::string extra = choose_on_cpu(options, can_copy, attempt.overrides);
    if (can_copy && !extra.empty()) debug_options = with_backend_extra_options(*debug_options_, extra);
  }
  for (const std::string& name : refused_) attempt.overrides.erase(name);
  attempt.bytes = encode_compile_options(attempt.overrides, debug_options);
  attempt.sends_debug_options = !debug_options.empty();
  return attempt;
}

bool CompilePolicy::learn_refusal(const Attempt& attempt, const Status& failure) {
  if (failure.message().find("No such compile option") == std::string::npos) return false;
  const std::lock_guard lock(mutex_);
  bool learned = false;
  for (const auto& [name, value] : attempt.overrides) {
    const size_t at = failure.message().find(name);
    if (at == std::string::npos) continue;
    // One name may be the beginning of another.
    const size_t end = at + name.size();
    const char next = end < failure.message().size() ? failure.message()[end] : ' ';
    if (next == '_' || std::isalnum(static_cast<unsigned char>(next))) continue;
    refused_.insert(name);
    learned = true;
  }
  return learned;
}

bool CompilePolicy::is_on_trial(const Attempt& attempt) const {
  const std::lock_guard lock(mutex_);
  return attempt.sends_debug_options && !debug_options_proven_;
}

void CompilePolicy::conclude_trial(bool accepted) {
  const std::lock_guard lock(mutex_);
  if (accepted) {
    debug_options_proven_ = true;
  } else if (!debug_options_proven_) {
    debug_options_ = "";
  }
}

}  // namespace torch_tpu::pjrt
