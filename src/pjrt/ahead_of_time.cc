#include "pjrt/ahead_of_time.h"

#include <charconv>
#include <utility>

namespace torch_tpu::pjrt {
namespace {

constexpr std::string_view kTensor = "tensor<";
constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kWidestElementBytes = 16;

Status refuse(std::string_view type, const std::string& reason) {
  return invalid_argument("the program has the type " + std::string(type) + ", " + reason);
}

/// The text from `start` to the bracket that closes `tensor<`; empty where none does on the line.
std::string_view type_at(std::string_view text, size_t start) {
  int depth = 0;
  for (size_t i = start + kTensor.size() - 1; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>' && --depth == 0) return text.substr(start, i + 1 - start);
    if (text[i] == '\n') break;
  }
  return {};
}

Status check_dimensions(std::string_view type) {
  std::string_view rest = type.substr(kTensor.size());
  int64_t bytes = kWidestElementBytes;
  bool is_empty = false;
  while (true) {
    const bool is_dynamic = rest.starts_with("?x");
    int64_t size = 1;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
    const auto digits = static_cast<size_t>(end - rest.data());
    if (!is_dynamic && (digits == 0 || digits >= rest.size() || rest[digits] != 'x')) return {};
    if (is_dynamic && type.find("bounds<") == std::string_view::npos) {
      return refuse(type, "and a dimension without a bound cannot be compiled for a TPU");
    }
    if (!is_dynamic) {
      is_empty |= size == 0;
      const bool overflows =
          error != std::errc() || (size > 0 && __builtin_mul_overflow(bytes, size, &bytes));
      if (!is_empty && (overflows || bytes > kMostBytes)) return refuse(type, "which no device can hold");
    }
    rest.remove_prefix((is_dynamic ? 1 : digits) + 1);
  }
}

}  // namespace

Status check_program(std::string_view stablehlo) {
  for (size_t at = stablehlo.find(kTensor); at != std::string_view::npos;
       at = stablehlo.find(kTensor, at + kTensor.size())) {
    const size_t line = stablehlo.rfind('\n', at) + 1;  // npos + 1 is 0
    if (stablehlo.substr(line).starts_with("//")) continue;
    const std::string_view type = type_at(stablehlo, at);
    if (!type.empty()) RETURN_IF_ERROR(check_dimensions(type));
  }
  return {};
}

AheadOfTimeExecutable::~AheadOfTimeExecutable() {
  PJRT_Executable_Destroy_Args args{};
  args.executable = handle_;
  (void)api_->call(&PJRT_Api::PJRT_Executable_Destroy, args, PJRT_Executable_Destroy_Args_STRUCT_SIZE);
}

Result<ExecutableMemory> AheadOfTimeExecutable::memory() const { return memory_of(*api_, handle_); }

Result<std::map<std::string, double>> AheadOfTimeExecutable::cost() const {
  PJRT_Executable_GetCostAnalysis_Args args{};
  args.executable = handle_;
  RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_Executable_GetCostAnalysis, args,
                             PJRT_Executable_GetCostAnalysis_Args_STRUCT_SIZE));
  std::map<std::string, double> cost;
  for (size_t i = 0; i < args.num_properties; ++i) {
    const PJRT_NamedValue& property = args.properties[i];
    if (property.type != PJRT_NamedValue_kFloat) continue;
    cost.emplace(std::string(property.name, property.name_size), property.float_value);
  }
  return cost;
}

Result<std::string> AheadOfTimeExecutable::serialize() const { return serialized(*api_, handle_); }

}  // namespace torch_tpu::pjrt
