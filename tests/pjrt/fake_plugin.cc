// A PJRT plugin for tests: host memory, no compiler, the same answers every time. A program's results
// are zeros, or a copy of the first argument of the same type.
//
// Read when used: FAKE_PJRT_MINOR (pretended API version), FAKE_PJRT_PLATFORM ("cpu" unless set),
// FAKE_PJRT_FAIL (compile | execute | oom), FAKE_PJRT_REFUSE_OPTION (name of a client option to refuse),
// FAKE_PJRT_REFUSE_OVERRIDE (name of a compile option to refuse).
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fake_program.h"
#include "pjrt/pjrt_c_api.h"

using namespace torch_tpu::testing;

namespace {

std::atomic<int64_t> compiles{0};
std::atomic<int64_t> executes{0};
std::atomic<int64_t> live_buffers{0};
std::mutex options_mutex;
std::string last_options;

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct FakeError : PJRT_Error {
  PJRT_Error_Code code;
  std::string message;
};

PJRT_Error* failure(PJRT_Error_Code code, std::string message) {
  auto* error = new FakeError;
  error->vtable = nullptr;
  error->code = code;
  error->message = std::move(message);
  return error;
}

/// Becomes ready once; callbacks registered later run at once.
class Signal {
 public:
  void on_ready(PJRT_Event_OnReadyCallback callback, void* argument) {
    {
      const std::lock_guard lock(mutex_);
      if (!ready_) {
        waiting_.emplace_back(callback, argument);
        return;
      }
    }
    callback(nullptr, argument);
  }
  void fire() {
    std::vector<std::pair<PJRT_Event_OnReadyCallback, void*>> waiting;
    {
      const std::lock_guard lock(mutex_);
      ready_ = true;
      waiting.swap(waiting_);
    }
    for (const auto& [callback, argument] : waiting) callback(nullptr, argument);
  }
  bool ready() const {
    const std::lock_guard lock(mutex_);
    return ready_;
  }

 private:
  mutable std::mutex mutex_;
  bool ready_ = false;
  std::vector<std::pair<PJRT_Event_OnReadyCallback, void*>> waiting_;
};

}  // namespace

struct PJRT_Event {
  std::shared_ptr<Signal> signal;
};

struct PJRT_DeviceDescription {
  int id;
};

struct PJRT_Device {
  PJRT_DeviceDescription description;
};

struct PJRT_Client {
  std::string platform;
  std::vector<std::unique_ptr<PJRT_Device>> devices;
  std::vector<PJRT_Device*> handles;
};

struct PJRT_Buffer {
  PJRT_Buffer(TensorType type, PJRT_Device* device) : type(std::move(type)), device(device) {
    ++live_buffers;
  }
  ~PJRT_Buffer() {
    drop();
    --live_buffers;
  }
  void drop() {
    content.reset();
    if (borrowed != nullptr) lender->fire();
    borrowed = nullptr;
    deleted = true;
  }
  const void* data() const { return borrowed != nullptr ? borrowed : content->data(); }
  void own(const void* source) {
    content = std::make_shared<std::vector<char>>(static_cast<size_t>(bytes_of(type)), '\0');
    if (source != nullptr && !content->empty()) std::memcpy(content->data(), source, content->size());
  }

  TensorType type;
  PJRT_Device* device;
  std::shared_ptr<std::vector<char>> content;
  const void* borrowed = nullptr;
  std::shared_ptr<Signal> lender;
  bool deleted = false;
};

struct PJRT_Executable {
  std::shared_ptr<const Program> program;
  std::vector<PJRT_Buffer_Type> types;
  std::vector<int64_t> dims;
  std::vector<size_t> ranks;
};

struct PJRT_LoadedExecutable {
  std::shared_ptr<const Program> program;
};

struct PJRT_SerializedExecutable {
  std::string bytes;
};

namespace {

PJRT_Event* event_of(std::shared_ptr<Signal> signal) { return new PJRT_Event{std::move(signal)}; }
PJRT_Event* ready_event() {
  auto signal = std::make_shared<Signal>();
  signal->fire();
  return event_of(std::move(signal));
}

PJRT_Error* create_client(PJRT_Client_Create_Args* args) {
  int64_t count = 4;
  const std::string refused = setting("FAKE_PJRT_REFUSE_OPTION");
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    const std::string name(option.name, option.name_size);
    if (name == refused) return failure(PJRT_Error_Code_INVALID_ARGUMENT, "unknown option " + name);
    if (name == "cpu_device_count") count = option.int64_value;
  }
  auto client = std::make_unique<PJRT_Client>();
  client->platform = setting("FAKE_PJRT_PLATFORM");
  if (client->platform.empty()) client->platform = "cpu";
  for (int id = 0; id < count; ++id) {
    client->devices.push_back(std::make_unique<PJRT_Device>(PJRT_Device{{id}}));
    client->handles.push_back(client->devices.back().get());
  }
  args->client = client.release();
  return nullptr;
}

PJRT_Error* load_text(std::string_view text, PJRT_LoadedExecutable*& out) {
  auto program = std::make_shared<Program>();
  program->text = text;
  if (!read_signature(program->text, *program)) {
    return failure(PJRT_Error_Code_INVALID_ARGUMENT, "the program has no @main with tensor types");
  }
  out = new PJRT_LoadedExecutable{std::move(program)};
  return nullptr;
}

PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  const std::string options(args->compile_options, args->compile_options_size);
  const std::string refused = setting("FAKE_PJRT_REFUSE_OVERRIDE");
  if (!refused.empty() && options.find(refused) != std::string::npos) {
    return failure(PJRT_Error_Code_INVALID_ARGUMENT, "No such compile option: '" + refused + "'");
  }
  if (setting("FAKE_PJRT_FAIL") == "compile") {
    return failure(PJRT_Error_Code_INVALID_ARGUMENT, "compilation fails as the test wants");
  }
  ++compiles;
  {
    const std::lock_guard lock(options_mutex);
    last_options = options;
  }
  return load_text({args->program->code, args->program->code_size}, args->executable);
}

PJRT_Error* get_executable(PJRT_LoadedExecutable_GetExecutable_Args* args) {
  auto* executable = new PJRT_Executable{args->loaded_executable->program, {}, {}, {}};
  for (const TensorType& type : executable->program->results) {
    executable->types.push_back(type.element);
    executable->ranks.push_back(type.dims.size());
    executable->dims.insert(executable->dims.end(), type.dims.begin(), type.dims.end());
  }
  args->executable = executable;
  return nullptr;
}

bool consumes(const PJRT_LoadedExecutable_Execute_Args& args, size_t i) {
  bool consumed = args.executable->program->donors[i];
  for (size_t j = 0; j < args.options->num_non_donatable_input_indices; ++j) {
    if (args.options->non_donatable_input_indices[j] == static_cast<int64_t>(i)) consumed = false;
  }
  return consumed;
}

PJRT_Error* check_execute(const PJRT_LoadedExecutable_Execute_Args& args) {
  const Program& program = *args.executable->program;
  const std::string wanted = setting("FAKE_PJRT_FAIL");
  if (wanted == "execute") return failure(PJRT_Error_Code_INTERNAL, "execution fails as the test wants");
  if (wanted == "oom") return failure(PJRT_Error_Code_RESOURCE_EXHAUSTED, "out of memory as the test wants");
  if (args.num_args != program.arguments.size()) {
    return failure(PJRT_Error_Code_INVALID_ARGUMENT, "the program takes " +
                                                         std::to_string(program.arguments.size()) +
                                                         " arguments, not " + std::to_string(args.num_args));
  }
  for (size_t i = 0; i < args.num_args; ++i) {
    const PJRT_Buffer& argument = *args.argument_lists[0][i];
    if (argument.deleted) return failure(PJRT_Error_Code_INVALID_ARGUMENT, "a deleted buffer was passed");
    if (bytes_of(argument.type) != bytes_of(program.arguments[i])) {
      return failure(PJRT_Error_Code_INVALID_ARGUMENT, "an argument has the wrong size");
    }
    for (size_t j = 0; j < i; ++j) {
      if (&argument == args.argument_lists[0][j] && (consumes(args, i) || consumes(args, j))) {
        return failure(PJRT_Error_Code_INVALID_ARGUMENT, "a buffer is donated and used twice");
      }
    }
  }
  for (const TensorType& type : program.results) {
    if (bytes_of(type) >= int64_t{1} << 40) {
      return failure(PJRT_Error_Code_RESOURCE_EXHAUSTED, "a result is larger than the memory");
    }
  }
  return nullptr;
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  if (PJRT_Error* error = check_execute(*args)) return error;
  const Program& program = *args->executable->program;
  PJRT_Buffer* const* inputs = args->argument_lists[0];
  ++executes;
  for (size_t i = 0; i < program.results.size(); ++i) {
    auto* result = new PJRT_Buffer(program.results[i], args->execute_device);
    const void* source = nullptr;
    for (size_t j = args->num_args; j-- > 0;) {
      if (program.arguments[j] == program.results[i]) source = inputs[j]->data();
    }
    result->own(source);
    args->output_lists[0][i] = result;
  }
  for (size_t i = 0; i < args->num_args; ++i) {
    if (consumes(*args, i)) inputs[i]->drop();
  }
  return nullptr;
}

PJRT_Error* from_host(PJRT_Client_BufferFromHostBuffer_Args* args) {
  auto* buffer = new PJRT_Buffer({args->type, {args->dims, args->dims + args->num_dims}}, args->device);
  if (args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy) {
    buffer->borrowed = args->data;
    buffer->lender = std::make_shared<Signal>();
    args->done_with_host_buffer = event_of(buffer->lender);
  } else {
    buffer->own(args->data);
    args->done_with_host_buffer = ready_event();
  }
  args->buffer = buffer;
  return nullptr;
}

PJRT_Error* to_host(PJRT_Buffer_ToHostBuffer_Args* args) {
  const auto bytes = static_cast<size_t>(bytes_of(args->src->type));
  if (args->dst == nullptr) {
    args->dst_size = bytes;
    return nullptr;
  }
  const PJRT_Buffer_MemoryLayout* layout = args->host_layout;
  for (size_t i = 0; layout != nullptr && i < layout->tiled.minor_to_major_size; ++i) {
    if (layout->tiled.minor_to_major[i] != static_cast<int64_t>(layout->tiled.minor_to_major_size - 1 - i)) {
      return failure(PJRT_Error_Code_UNIMPLEMENTED, "only row-major layouts");
    }
  }
  std::memcpy(args->dst, args->src->data(), bytes);
  args->event = ready_event();
  return nullptr;
}

PJRT_Error* serialize(PJRT_Executable_Serialize_Args* args) {
  auto* serialized = new PJRT_SerializedExecutable{"FAKE" + args->executable->program->text};
  args->serialized_bytes = serialized->bytes.data();
  args->serialized_bytes_size = serialized->bytes.size();
  args->serialized_executable = serialized;
  args->serialized_executable_deleter = [](PJRT_SerializedExecutable* done) { delete done; };
  return nullptr;
}

PJRT_Error* deserialize(PJRT_Executable_DeserializeAndLoad_Args* args) {
  const std::string_view bytes(args->serialized_executable, args->serialized_executable_size);
  if (!bytes.starts_with("FAKE")) return failure(PJRT_Error_Code_INVALID_ARGUMENT, "not a fake program");
  return load_text(bytes.substr(4), args->loaded_executable);
}

PJRT_Error* memory_stats(PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  args->argument_size_in_bytes = args->output_size_in_bytes = 0;
  for (const TensorType& type : args->executable->program->arguments)
    args->argument_size_in_bytes += bytes_of(type);
  for (const TensorType& type : args->executable->program->results)
    args->output_size_in_bytes += bytes_of(type);
  args->alias_size_in_bytes = args->temp_size_in_bytes = args->generated_code_size_in_bytes = 0;
  return nullptr;
}

PJRT_Api make_table() {
  PJRT_Api t{};
  t.struct_size = PJRT_Api_STRUCT_SIZE;
  t.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  t.pjrt_api_version.major_version = PJRT_API_MAJOR;
  const std::string minor = setting("FAKE_PJRT_MINOR");
  t.pjrt_api_version.minor_version = minor.empty() ? PJRT_API_MINOR : std::atoi(minor.c_str());

  t.PJRT_Error_Destroy = [](auto* a) { delete static_cast<FakeError*>(a->error); };
  t.PJRT_Error_Message = [](auto* a) {
    const auto* error = static_cast<const FakeError*>(a->error);
    a->message = error->message.data();
    a->message_size = error->message.size();
  };
  t.PJRT_Error_GetCode = [](auto* a) -> PJRT_Error* {
    a->code = static_cast<const FakeError*>(a->error)->code;
    return nullptr;
  };
  t.PJRT_Plugin_Initialize = [](auto*) -> PJRT_Error* { return nullptr; };
  t.PJRT_Plugin_Attributes = [](auto* a) -> PJRT_Error* { return a->num_attributes = 0, nullptr; };
  t.PJRT_Event_Destroy = [](auto* a) -> PJRT_Error* { return delete a->event, nullptr; };
  t.PJRT_Event_IsReady = [](auto* a) -> PJRT_Error* {
    return a->is_ready = a->event->signal->ready(), nullptr;
  };
  t.PJRT_Event_Await = [](auto*) -> PJRT_Error* { return nullptr; };
  t.PJRT_Event_OnReady = [](auto* a) -> PJRT_Error* {
    return a->event->signal->on_ready(a->callback, a->user_arg), nullptr;
  };
  t.PJRT_Client_Create = create_client;
  t.PJRT_Client_Destroy = [](auto* a) -> PJRT_Error* { return delete a->client, nullptr; };
  t.PJRT_Client_PlatformName = [](auto* a) -> PJRT_Error* {
    a->platform_name = a->client->platform.data();
    a->platform_name_size = a->client->platform.size();
    return nullptr;
  };
  t.PJRT_Client_AddressableDevices = [](auto* a) -> PJRT_Error* {
    a->addressable_devices = a->client->handles.data();
    a->num_addressable_devices = a->client->handles.size();
    return nullptr;
  };
  t.PJRT_Client_Compile = compile;
  t.PJRT_Client_BufferFromHostBuffer = from_host;
  t.PJRT_Device_GetDescription = [](auto* a) -> PJRT_Error* {
    return a->device_description = &a->device->description, nullptr;
  };
  t.PJRT_DeviceDescription_Id = [](auto* a) -> PJRT_Error* {
    return a->id = a->device_description->id, nullptr;
  };
  t.PJRT_DeviceDescription_Kind = [](auto* a) -> PJRT_Error* {
    a->device_kind = "fake";
    a->device_kind_size = 4;
    return nullptr;
  };
  t.PJRT_Executable_Destroy = [](auto* a) -> PJRT_Error* { return delete a->executable, nullptr; };
  t.PJRT_Executable_NumOutputs = [](auto* a) -> PJRT_Error* {
    return a->num_outputs = a->executable->types.size(), nullptr;
  };
  t.PJRT_Executable_OutputElementTypes = [](auto* a) -> PJRT_Error* {
    a->output_types = a->executable->types.data();
    a->num_output_types = a->executable->types.size();
    return nullptr;
  };
  t.PJRT_Executable_OutputDimensions = [](auto* a) -> PJRT_Error* {
    a->num_outputs = a->executable->ranks.size();
    a->dims = a->executable->dims.data();
    a->dim_sizes = a->executable->ranks.data();
    return nullptr;
  };
  t.PJRT_Executable_GetCompiledMemoryStats = memory_stats;
  t.PJRT_Executable_Serialize = serialize;
  t.PJRT_Executable_DeserializeAndLoad = deserialize;
  t.PJRT_LoadedExecutable_Destroy = [](auto* a) -> PJRT_Error* { return delete a->executable, nullptr; };
  t.PJRT_LoadedExecutable_GetExecutable = get_executable;
  t.PJRT_LoadedExecutable_Execute = execute;
  t.PJRT_Buffer_Destroy = [](auto* a) -> PJRT_Error* { return delete a->buffer, nullptr; };
  t.PJRT_Buffer_IsDeleted = [](auto* a) -> PJRT_Error* {
    return a->is_deleted = a->buffer->deleted, nullptr;
  };
  t.PJRT_Buffer_ReadyEvent = [](auto* a) -> PJRT_Error* { return a->event = ready_event(), nullptr; };
  t.PJRT_Buffer_ToHostBuffer = to_host;
  t.PJRT_Buffer_CopyToDevice = [](auto* a) -> PJRT_Error* {
    a->dst_buffer = new PJRT_Buffer(a->buffer->type, a->dst_device);
    return a->dst_buffer->own(a->buffer->data()), nullptr;
  };
  t.PJRT_Buffer_OpaqueDeviceMemoryDataPointer = [](auto* a) -> PJRT_Error* {
    return a->device_memory_ptr = const_cast<void*>(a->buffer->data()), nullptr;
  };
  return t;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED const PJRT_Api* GetPjrtApi() {
  static PJRT_Api table;
  table = make_table();
  return &table;
}
EXPORTED int64_t fake_plugin_compiles() { return compiles; }
EXPORTED int64_t fake_plugin_executes() { return executes; }
EXPORTED int64_t fake_plugin_live_buffers() { return live_buffers; }
/// The CompileOptionsProto of the last compile; valid until the next one.
EXPORTED const char* fake_plugin_last_options(size_t* size) {
  *size = last_options.size();
  return last_options.data();
}
