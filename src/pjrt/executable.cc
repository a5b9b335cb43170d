#include "pjrt/executable.h"

#include <string_view>
#include <utility>

#include "base/inline_vector.h"
#include "pjrt/client.h"

namespace torch_tpu::pjrt {
namespace {

/// Before the plugin's own bytes in what serialize() writes; the last character says whether the
/// program declares donors.
constexpr std::string_view kSerializedDonating = "TTPU1d";
constexpr std::string_view kSerializedPlain = "TTPU1-";

std::string at_argument(size_t i) { return "argument " + std::to_string(i) + " of an execution "; }

}  // namespace

std::optional<SerializedProgram> split_serialized(std::string_view bytes) {
  for (const std::string_view header : {kSerializedDonating, kSerializedPlain}) {
    if (bytes.starts_with(header)) {
      return SerializedProgram{bytes.substr(header.size()), header == kSerializedDonating};
    }
  }
  return std::nullopt;
}

Result<ExecutableMemory> memory_of(const Api& api, PJRT_Executable* executable) {
  PJRT_Executable_GetCompiledMemoryStats_Args args{};
  args.executable = executable;
  args.peak_memory_in_bytes = -1;  // older plugins leave it
  RETURN_IF_ERROR(api.call(&PJRT_Api::PJRT_Executable_GetCompiledMemoryStats, args,
                           PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE));
  ExecutableMemory memory;
  memory.argument_bytes = args.argument_size_in_bytes;
  memory.output_bytes = args.output_size_in_bytes;
  memory.alias_bytes = args.alias_size_in_bytes;
  memory.temporary_bytes = args.temp_size_in_bytes;
  memory.code_bytes = args.generated_code_size_in_bytes;
  memory.peak_bytes = args.peak_memory_in_bytes;
  return memory;
}

Result<std::string> serialized(const Api& api, PJRT_Executable* executable, std::string_view prefix) {
  PJRT_Executable_Serialize_Args args{};
  args.executable = executable;
  RETURN_IF_ERROR(
      api.call(&PJRT_Api::PJRT_Executable_Serialize, args, PJRT_Executable_Serialize_Args_STRUCT_SIZE));
  std::string bytes(prefix);
  bytes.append(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

Result<std::shared_ptr<Executable>> Executable::adopt(std::shared_ptr<const Client> client,
                                                      PJRT_LoadedExecutable* loaded, bool may_donate) {
  std::shared_ptr<Executable> executable(new Executable(std::move(client), loaded, may_donate));
  RETURN_IF_ERROR(executable->read_outputs());
  return executable;
}

Executable::~Executable() {
  if (forked_after_use()) return;
  const Api& api = client_->api();
  if (executable_ != nullptr) {
    PJRT_Executable_Destroy_Args args{};
    args.executable = executable_;
    (void)api.call(&PJRT_Api::PJRT_Executable_Destroy, args, PJRT_Executable_Destroy_Args_STRUCT_SIZE);
  }
  PJRT_LoadedExecutable_Destroy_Args args{};
  args.executable = loaded_;
  (void)api.call(&PJRT_Api::PJRT_LoadedExecutable_Destroy, args,
                 PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE);
}

Status Executable::read_outputs() {
  const Api& api = client_->api();
  PJRT_LoadedExecutable_GetExecutable_Args get{};
  get.loaded_executable = loaded_;
  RETURN_IF_ERROR(api.call(&PJRT_Api::PJRT_LoadedExecutable_GetExecutable, get,
                           PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE));
  executable_ = get.executable;
  PJRT_Executable_NumOutputs_Args count{};
  count.executable = executable_;
  RETURN_IF_ERROR(
      api.call(&PJRT_Api::PJRT_Executable_NumOutputs, count, PJRT_Executable_NumOutputs_Args_STRUCT_SIZE));
  PJRT_Executable_OutputElementTypes_Args types{};
  types.executable = executable_;
  RETURN_IF_ERROR(api.call(&PJRT_Api::PJRT_Executable_OutputElementTypes, types,
                           PJRT_Executable_OutputElementTypes_Args_STRUCT_SIZE));
  PJRT_Executable_OutputDimensions_Args dims{};
  dims.executable = executable_;
  RETURN_IF_ERROR(api.call(&PJRT_Api::PJRT_Executable_OutputDimensions, dims,
                           PJRT_Executable_OutputDimensions_Args_STRUCT_SIZE));
  if (types.num_output_types != count.num_outputs || dims.num_outputs != count.num_outputs) {
    return internal_error("the PJRT plugin contradicts itself about the number of results of a program");
  }
  const int64_t* next = dims.dims;
  for (size_t i = 0; i < count.num_outputs; ++i) {
    hlo::Type type{dtype_of(types.output_types[i]), hlo::Dims(next, next + dims.dim_sizes[i])};
    next += dims.dim_sizes[i];
    if (type.dtype == hlo::DType::kInvalid) {
      return {Code::kUnimplemented, "result " + std::to_string(i) + " of a program has element type " +
                                        std::to_string(types.output_types[i]) +
                                        " of PJRT, which no tensor can have"};
    }
    output_bytes_ += type.bytes();
    outputs_.push_back(std::move(type));
  }
  return {};
}

Status Executable::check_arguments(std::span<Buffer* const> arguments, std::span<const uint8_t> donate,
                                   int device_index) const {
  RETURN_IF_ERROR(check_not_forked());
  RETURN_IF_ERROR(client_->check_device(device_index));
  if (!donate.empty() && donate.size() != arguments.size()) {
    return invalid_argument("an execution got " + std::to_string(arguments.size()) + " arguments but " +
                            std::to_string(donate.size()) + " donation flags");
  }
  int64_t donated_bytes = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Buffer* argument = arguments[i];
    if (argument == nullptr) return invalid_argument(at_argument(i) + "is null");
    if (argument->is_donated()) return invalid_argument(at_argument(i) + "was donated before");
    if (&argument->client() != client_.get()) {
      return invalid_argument(at_argument(i) + "belongs to another client");
    }
    if (argument->device_index() != device_index) {
      return invalid_argument(at_argument(i) + "is on device " + std::to_string(argument->device_index()) +
                              ", but the program runs on device " + std::to_string(device_index));
    }
    if (!donate.empty() && donate[i] != 0) donated_bytes += argument->type().bytes();
  }
  return client_->check_memory(output_bytes_ - donated_bytes, device_index);
}

Result<std::vector<std::shared_ptr<Buffer>>> Executable::execute(std::span<Buffer* const> arguments,
                                                                 std::span<const uint8_t> donate,
                                                                 int device_index) const {
  RETURN_IF_ERROR(check_arguments(arguments, donate, device_index));
  InlineVector<PJRT_Buffer*, 24> inputs;
  InlineVector<int64_t, 24> kept;
  inputs.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    inputs.push_back(arguments[i]->handle());
    if (may_donate_ && (donate.empty() || donate[i] == 0)) kept.push_back(static_cast<int64_t>(i));
  }
  InlineVector<PJRT_Buffer*, 16> produced(outputs_.size(), nullptr);

  PJRT_ExecuteOptions options{};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  PJRT_Buffer* const* const input_list = inputs.data();
  PJRT_Buffer** const output_list = produced.data();
  PJRT_LoadedExecutable_Execute_Args args{};
  args.executable = loaded_;
  args.options = &options;
  args.argument_lists = &input_list;
  args.num_devices = 1;
  args.num_args = inputs.size();
  args.output_lists = &output_list;
  args.execute_device = client_->devices()[static_cast<size_t>(device_index)].handle;
  Status status = client_->api().call(&PJRT_Api::PJRT_LoadedExecutable_Execute, args,
                                      PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE);
  if (may_donate_ && !donate.empty()) {
    // A failed execution may have consumed its inputs too.
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (donate[i] != 0 && arguments[i]->is_deleted()) arguments[i]->mark_donated();
    }
  }
  RETURN_IF_ERROR(status);

  std::vector<std::shared_ptr<Buffer>> results;
  results.reserve(outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    results.push_back(std::make_shared<Buffer>(client_, produced[i], outputs_[i], device_index));
  }
  // All results of one execution become ready together, so one of them tells of failure. It costs
  // nothing where the program ran on this thread.
  if (client_->platform() == Platform::kCpu && !results.empty()) RETURN_IF_ERROR(results.front()->await());
  return results;
}

Result<std::string> Executable::serialize() const {
  RETURN_IF_ERROR(check_not_forked());
  if (!origin_.empty()) return origin_;
  const std::string_view prefix = may_donate_ ? kSerializedDonating : kSerializedPlain;
  return serialized(client_->api(), executable_, prefix);
}

Result<ExecutableMemory> Executable::memory() const { return memory_of(client_->api(), executable_); }

std::string Executable::fingerprint() const {
  PJRT_Executable_Fingerprint_Args args{};
  args.executable = executable_;
  const Status status = client_->api().call(&PJRT_Api::PJRT_Executable_Fingerprint, args,
                                            PJRT_Executable_Fingerprint_Args_STRUCT_SIZE);
  if (!status.ok() || args.executable_fingerprint == nullptr) return {};
  return {args.executable_fingerprint, args.executable_fingerprint_size};
}

std::string Executable::debug_options() const {
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  PJRT_Executable_OptimizedProgram_Args args{};
  args.executable = executable_;
  args.program = &program;
  // The first call tells the size, the second fills the bytes.
  const auto ask = [&] {
    return client_->api().call(&PJRT_Api::PJRT_Executable_OptimizedProgram, args,
                               PJRT_Executable_OptimizedProgram_Args_STRUCT_SIZE);
  };
  if (!ask().ok() || std::string_view(program.format, program.format_size) != "hlo_with_config") return {};
  std::string code(program.code_size, '\0');
  program.code = code.data();
  if (!ask().ok()) return {};
  return std::string(debug_options_of(code));
}

}  // namespace torch_tpu::pjrt
