#include "pjrt/api.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "base/hash.h"

namespace torch_tpu::pjrt {
namespace {

Code code_of(PJRT_Error_Code code) {
  switch (code) {
    case PJRT_Error_Code_INVALID_ARGUMENT:
    case PJRT_Error_Code_FAILED_PRECONDITION:
    case PJRT_Error_Code_OUT_OF_RANGE:
    case PJRT_Error_Code_ALREADY_EXISTS:
      return Code::kInvalidArgument;
    case PJRT_Error_Code_RESOURCE_EXHAUSTED:
      return Code::kOutOfMemory;
    case PJRT_Error_Code_UNIMPLEMENTED:
      return Code::kUnimplemented;
    case PJRT_Error_Code_NOT_FOUND:
      return Code::kNotFound;
    case PJRT_Error_Code_UNAVAILABLE:
    case PJRT_Error_Code_ABORTED:
    case PJRT_Error_Code_CANCELLED:
    case PJRT_Error_Code_DEADLINE_EXCEEDED:
    case PJRT_Error_Code_PERMISSION_DENIED:
    case PJRT_Error_Code_UNAUTHENTICATED:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

/// The plugin's message without the traces of its own source that some builds append, and only the
/// first of MLIR's diagnostics: the others repeat it or print the program.
std::string readable(std::string message) {
  const size_t trace = message.find("=== Source Location Trace");
  if (trace != std::string::npos) message.resize(trace);
  const size_t line_end = message.find('\n');
  if (line_end != std::string::npos && message.find(": error: ") < line_end) message.resize(line_end);
  const size_t end = message.find_last_not_of(" \t\r\n");
  message.resize(end == std::string::npos ? 0 : end + 1);
  return message;
}

/// Size, head, tail and evenly spaced blocks: enough to tell two builds apart without reading
/// hundreds of megabytes (the head of an ELF file holds its build id).
std::string sample_hash(const std::string& path) {
  constexpr int64_t kBlock = 4096;
  constexpr int64_t kBlocks = 64;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file.tellg());
  Hash128 hash;
  hash.append(static_cast<uint64_t>(size));
  std::string block(kBlock, '\0');
  for (int64_t i = 0; i < kBlocks; ++i) {
    file.clear();
    file.seekg(std::max<int64_t>(0, size - kBlock) * i / (kBlocks - 1));
    file.read(block.data(), kBlock);
    hash.append(std::string_view(block.data(), static_cast<size_t>(file.gcount())));
  }
  return hash.hex();
}

/// Opens the library and finds its table; loads nothing twice, as dlopen counts references.
Result<const PJRT_Api*> open_table(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return Status(Code::kNotFound, "there is no PJRT plugin at " + path);
  }
  // XLA reads its log level once, while the library loads; without it each client and each failing
  // call prints lines of its own.
  setenv("TF_CPP_MIN_LOG_LEVEL", "3", /*overwrite=*/0);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return Status(Code::kNotFound, "cannot load the PJRT plugin " + path + ": " +
                                       (reason != nullptr ? reason : "unknown reason"));
  }
  using GetApi = const PJRT_Api* (*)();
  const auto get_api = reinterpret_cast<GetApi>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    dlclose(library);
    return Status(Code::kNotFound, path + " is not a PJRT plugin: it has no function GetPjrtApi");
  }
  const PJRT_Api* table = get_api();
  if (table == nullptr) {
    return Status(Code::kUnavailable, "the PJRT plugin " + path + " returned no function table");
  }
  return table;
}

Status check_version(const std::string& path, const PJRT_Api_Version& version) {
  if (version.major_version == PJRT_API_MAJOR && version.minor_version >= Api::kMinimumMinor) return {};
  return {Code::kUnavailable,
          "the PJRT plugin " + path + " implements PJRT " + std::to_string(version.major_version) + "." +
              std::to_string(version.minor_version) + ", but " + std::to_string(PJRT_API_MAJOR) + "." +
              std::to_string(Api::kMinimumMinor) + " or newer is needed"};
}

}  // namespace

namespace {

// dlopen maps segments past the end of a file that was cut short, and touching them is a SIGBUS.
Status check_complete(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return {};  // dlopen says what it is
  }
  std::error_code failure;
  const auto size = std::filesystem::file_size(path, failure);
  uint64_t end = header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize;
  for (int i = 0; i < header.e_phnum && end <= size; ++i) {
    Elf64_Phdr segment{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + uint64_t(i) * header.e_phentsize));
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) break;
    end = std::max<uint64_t>(end, segment.p_offset + segment.p_filesz);
  }
  if (failure || end <= size) return {};
  return {Code::kNotFound, "cannot load the PJRT plugin " + path + ": the file is cut short"};
}

}  // namespace

Result<std::shared_ptr<const Api>> Api::load(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Api>> loaded;
  std::error_code failure;
  std::string key = std::filesystem::canonical(path, failure).string();
  if (failure) key = path;

  const std::lock_guard lock(mutex);
  if (const auto found = loaded.find(key); found != loaded.end()) return found->second;
  RETURN_IF_ERROR(check_complete(path));
  ASSIGN_OR_RETURN(const PJRT_Api* table, open_table(path));
  RETURN_IF_ERROR(check_version(path, table->pjrt_api_version));
  std::shared_ptr<Api> api(new Api(path, table));
  PJRT_Plugin_Initialize_Args args{};
  RETURN_IF_ERROR(api->call(&PJRT_Api::PJRT_Plugin_Initialize, args, PJRT_Plugin_Initialize_Args_STRUCT_SIZE)
                      .with_context("cannot initialise the PJRT plugin " + path));
  api->fingerprint_ = sample_hash(path);
  loaded.emplace(std::move(key), api);
  return std::shared_ptr<const Api>(std::move(api));
}

int Api::minor_version() const { return table_->pjrt_api_version.minor_version; }

std::string Api::description() const {
  std::string text =
      std::to_string(table_->pjrt_api_version.major_version) + "." + std::to_string(minor_version());
  PJRT_Plugin_Attributes_Args args{};
  if (call(&PJRT_Api::PJRT_Plugin_Attributes, args, PJRT_Plugin_Attributes_Args_STRUCT_SIZE).ok()) {
    for (size_t i = 0; i < args.num_attributes; ++i) {
      const PJRT_NamedValue& value = args.attributes[i];
      const std::string_view attribute(value.name, value.name_size);
      if (attribute != "stablehlo_current_version" || value.type != PJRT_NamedValue_kInt64List) continue;
      text += ", StableHLO ";
      for (size_t j = 0; j < value.value_size; ++j) {
        text += (j == 0 ? "" : ".") + std::to_string(value.int64_array_value[j]);
      }
    }
  }
  return text + ", " + path_;
}

const PJRT_Extension_Base* Api::extension(PJRT_Extension_Type type) const {
  const PJRT_Extension_Base* extension = table_->extension_start;
  while (extension != nullptr && extension->type != type) extension = extension->next;
  return extension;
}

Status Api::convert(PJRT_Error* error) const {
  if (error == nullptr) return {};
  PJRT_Error_GetCode_Args code{};
  code.struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE;
  code.error = error;
  // GetCode itself returns an error only for a malformed call, which this is not.
  const bool known = table_->PJRT_Error_GetCode(&code) == nullptr;
  PJRT_Error_Message_Args message{};
  message.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE;
  message.error = error;
  table_->PJRT_Error_Message(&message);
  std::string text = readable(std::string(message.message, message.message_size));
  if (text.empty()) text = "the PJRT plugin failed without a message";
  PJRT_Error_Destroy_Args destroy{};
  destroy.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  table_->PJRT_Error_Destroy(&destroy);
  return {known ? code_of(code.code) : Code::kInternal, std::move(text)};
}

Status Api::await(PJRT_Event* event) const {
  if (event == nullptr) return {};
  PJRT_Event_Await_Args wait{};
  wait.event = event;
  Status status = call(&PJRT_Api::PJRT_Event_Await, wait, PJRT_Event_Await_Args_STRUCT_SIZE);
  destroy_event(event);
  return status;
}

void Api::destroy_event(PJRT_Event* event) const {
  PJRT_Event_Destroy_Args destroy{};
  destroy.event = event;
  // Nothing can be done about an event that cannot be freed.
  (void)call(&PJRT_Api::PJRT_Event_Destroy, destroy, PJRT_Event_Destroy_Args_STRUCT_SIZE);
}

}  // namespace torch_tpu::pjrt
