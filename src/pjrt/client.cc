#include "pjrt/client.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/env.h"
#include "base/heap.h"
#include "pjrt/arguments.h"
#include "pjrt/host_kernel.h"

namespace torch_tpu::pjrt {
namespace {

std::atomic<bool> process_is_forked_child{false};

void watch_for_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { process_is_forked_child = true; }); });
}

/// Platforms that are not XLA:CPU show themselves by extensions; what remains may get CPU options.
bool may_be_cpu(const Api& api) {
  for (const PJRT_Extension_Type type :
       {PJRT_Extension_Type_Gpu_Custom_Call, PJRT_Extension_Type_Stream, PJRT_Extension_Type_TpuTopology,
        PJRT_Extension_Type_TpuExecutable, PJRT_Extension_Type_Megascale}) {
    if (api.has_extension(type)) return false;
  }
  return true;
}

std::vector<PJRT_NamedValue> client_options(const Api& api, int cpu_devices) {
  if (!may_be_cpu(api)) return {};
  // Asynchronous clients hand all but tiny programs to a thread pool: 20-60 us a call.
  return {named_integer("cpu_device_count", cpu_devices), named_flag("asynchronous", false)};
}

/// Creates the client, dropping the last option for as long as the plugin refuses its options.
Result<PJRT_Client*> create_handle(const Api& api, std::vector<PJRT_NamedValue> options) {
  while (true) {
    PJRT_Client_Create_Args args{};
    args.create_options = options.data();
    args.num_options = options.size();
    Status status = api.call(&PJRT_Api::PJRT_Client_Create, args, PJRT_Client_Create_Args_STRUCT_SIZE);
    if (status.ok()) return args.client;
    const bool refused = status.code() == Code::kInvalidArgument || status.code() == Code::kUnimplemented;
    if (!refused || options.empty()) {
      return status.with_context("cannot start the PJRT plugin " + api.path());
    }
    options.pop_back();
  }
}

int64_t machine_memory_bytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page_bytes > 0 ? pages * page_bytes : 0;
}

int64_t capacity(const Api& api, Platform platform, PJRT_Device* device) {
  if (const int64_t limit = env::integer(env::kMemoryLimit); limit > 0) return limit;
  if (platform == Platform::kCpu) return machine_memory_bytes();
  PJRT_Device_MemoryStats_Args args{};
  args.device = device;
  const Status status =
      api.call(&PJRT_Api::PJRT_Device_MemoryStats, args, PJRT_Device_MemoryStats_Args_STRUCT_SIZE);
  return status.ok() && args.bytes_limit_is_set ? args.bytes_limit : 0;
}

/// Plugins abort on element types and dimensions that cannot be.
Status check_type(const hlo::Type& type) {
  if (element_type(type.dtype) == PJRT_Buffer_Type_INVALID) {
    return invalid_argument("a device buffer cannot have an invalid element type");
  }
  int64_t bytes = hlo::byte_size(type.dtype);
  for (const int64_t size : type.dims) {
    if (size < 0)
      return invalid_argument("a device buffer cannot have the negative size " + std::to_string(size));
    if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes)) {
      return invalid_argument("a device buffer of type " + type.text() + " is too large for any device");
    }
  }
  return {};
}

bool declares_donors(std::string_view stablehlo) {
  return stablehlo.find("jax.buffer_donor") != std::string_view::npos ||
         stablehlo.find("tf.aliasing_output") != std::string_view::npos;
}

/// Calls its function once, at the latest when it dies.
class Release {
 public:
  explicit Release(std::function<void()> function) : function_(std::move(function)) {}
  ~Release() {
    if (function_) function_();
  }
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;

 private:
  std::function<void()> function_;
};

/// A program without a kernel: the cheapest way to see the compiler's own settings.
constexpr char kIdentityProgram[] =
    "module { func.func public @main(%0: tensor<f32>) -> tensor<f32> { return %0 : tensor<f32> } }";

}  // namespace

bool forked_after_use() { return process_is_forked_child.load(std::memory_order_relaxed); }

Status check_not_forked() {
  if (!forked_after_use()) return {};
  return {Code::kUnavailable,
          "cannot use the TPU runtime in a forked subprocess; use the 'spawn' start method"};
}

Result<std::shared_ptr<Client>> Client::create(std::shared_ptr<const Api> api, int cpu_devices) {
  RETURN_IF_ERROR(check_not_forked());
  if (cpu_devices < 1 || cpu_devices > kMaxDevices) {
    return invalid_argument("the number of CPU devices must be between 1 and " + std::to_string(kMaxDevices) +
                            ", not " + std::to_string(cpu_devices));
  }
  watch_for_forks();
  // Before the client's threads start, which choose their arena then.
  if (may_be_cpu(*api)) heap::keep_freed(env::integer(env::kHeapBytes));
  ASSIGN_OR_RETURN(PJRT_Client * handle, create_handle(*api, client_options(*api, cpu_devices)));
  std::shared_ptr<Client> client(new Client(std::move(api), handle));
  RETURN_IF_ERROR(client->read_devices());
  if (client->platform_ == Platform::kCpu) client->has_host_kernels_ = register_host_kernels(*client->api_);
  return client;
}

Client::~Client() {
  if (forked_after_use()) return;
  PJRT_Client_Destroy_Args args{};
  args.client = handle_;
  (void)api_->call(&PJRT_Api::PJRT_Client_Destroy, args, PJRT_Client_Destroy_Args_STRUCT_SIZE);
}

Status Client::read_devices() {
  PJRT_Client_PlatformName_Args name{};
  name.client = handle_;
  RETURN_IF_ERROR(
      api_->call(&PJRT_Api::PJRT_Client_PlatformName, name, PJRT_Client_PlatformName_Args_STRUCT_SIZE));
  platform_name_.assign(name.platform_name, name.platform_name_size);
  platform_ = platform_name_ == "cpu"   ? Platform::kCpu
              : platform_name_ == "tpu" ? Platform::kTpu
                                        : Platform::kOther;
  PJRT_Client_AddressableDevices_Args list{};
  list.client = handle_;
  RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_Client_AddressableDevices, list,
                             PJRT_Client_AddressableDevices_Args_STRUCT_SIZE));
  for (size_t i = 0; i < list.num_addressable_devices && i < kMaxDevices; ++i) {
    Device device;
    device.handle = list.addressable_devices[i];
    device.local_index = static_cast<int>(i);
    PJRT_Device_GetDescription_Args description{};
    description.device = device.handle;
    RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_Device_GetDescription, description,
                               PJRT_Device_GetDescription_Args_STRUCT_SIZE));
    PJRT_DeviceDescription_Id_Args id{};
    id.device_description = description.device_description;
    RETURN_IF_ERROR(
        api_->call(&PJRT_Api::PJRT_DeviceDescription_Id, id, PJRT_DeviceDescription_Id_Args_STRUCT_SIZE));
    device.id = id.id;
    PJRT_DeviceDescription_Kind_Args kind{};
    kind.device_description = description.device_description;
    RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_DeviceDescription_Kind, kind,
                               PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE));
    device.kind.assign(kind.device_kind, kind.device_kind_size);
    device.memory_bytes = capacity(*api_, platform_, device.handle);
    devices_.push_back(std::move(device));
  }
  if (devices_.empty()) {
    return {Code::kUnavailable, "the PJRT plugin " + api_->path() + " has no device in this process"};
  }
  return {};
}

Status Client::check_device(int device_index) const {
  if (device_index >= 0 && static_cast<size_t>(device_index) < devices_.size()) return {};
  return invalid_argument("there is no device " + std::to_string(device_index) + ": this process has " +
                          std::to_string(devices_.size()));
}

Status Client::check_memory(int64_t bytes, int device_index) const {
  const int64_t limit = devices_[static_cast<size_t>(device_index)].memory_bytes;
  if (platform_ != Platform::kCpu || limit == 0 || bytes <= 0) return {};
  const int64_t live = memory_statistics(device_index).live_bytes.load(std::memory_order_relaxed);
  if (bytes <= limit - live) return {};
  return {Code::kOutOfMemory, "out of memory on device " + std::to_string(device_index) + ": " +
                                  std::to_string(bytes) + " bytes were requested, " + std::to_string(live) +
                                  " of " + std::to_string(limit) + " are in use"};
}

Result<PJRT_Client_BufferFromHostBuffer_Args> Client::transfer(const void* data, const hlo::Type& type,
                                                               int device_index,
                                                               PJRT_HostBufferSemantics semantics) const {
  RETURN_IF_ERROR(check_not_forked());
  RETURN_IF_ERROR(check_device(device_index));
  RETURN_IF_ERROR(check_type(type));
  RETURN_IF_ERROR(check_memory(type.bytes(), device_index));
  // An empty tensor may have no address, which plugins do not expect.
  static constexpr char kNothing = 0;
  if (data == nullptr) {
    if (type.bytes() != 0) return invalid_argument("cannot copy a null address to a device");
    data = &kNothing;
  }
  PJRT_Client_BufferFromHostBuffer_Args args{};
  args.client = handle_;
  args.data = data;
  args.type = element_type(type.dtype);
  args.dims = type.dims.data();
  args.num_dims = type.dims.size();
  args.host_buffer_semantics = semantics;
  args.device = devices_[static_cast<size_t>(device_index)].handle;
  RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_Client_BufferFromHostBuffer, args,
                             PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE));
  return args;
}

Result<std::shared_ptr<Buffer>> Client::copy_to_device(const void* data, const hlo::Type& type,
                                                       int device_index) const {
  ASSIGN_OR_RETURN(const auto args,
                   transfer(data, type, device_index, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall));
  auto buffer = std::make_shared<Buffer>(shared_from_this(), args.buffer, type, device_index);
  RETURN_IF_ERROR(api_->await(args.done_with_host_buffer));
  return buffer;
}

std::shared_ptr<Buffer> Client::buffer_without_content(const hlo::Type& type, int device_index) const {
  return std::make_shared<Buffer>(shared_from_this(), nullptr, type, device_index);
}

Result<std::shared_ptr<Buffer>> Client::lend_to_device(const void* data, const hlo::Type& type,
                                                       int device_index,
                                                       std::function<void()> release) const {
  constexpr uintptr_t kAlignment = 64;
  auto owner = std::make_unique<Release>(std::move(release));
  if (platform_ != Platform::kCpu || reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
    return copy_to_device(data, type, device_index);
  }
  ASSIGN_OR_RETURN(const auto args,
                   transfer(data, type, device_index, PJRT_HostBufferSemantics_kImmutableZeroCopy));
  auto buffer = std::make_shared<Buffer>(shared_from_this(), args.buffer, type, device_index);
  if (args.done_with_host_buffer == nullptr) {
    return internal_error("the PJRT plugin does not say when it is done with lent memory");
  }
  PJRT_Event_OnReady_Args ready{};
  ready.event = args.done_with_host_buffer;
  // The callback owns its error; which error ended the loan does not matter here, but it has to be
  // freed, so the table travels along.
  struct Loan {
    std::shared_ptr<const Api> api;
    std::unique_ptr<Release> owner;
  };
  ready.user_arg = new Loan{api_, std::move(owner)};
  ready.callback = [](PJRT_Error* error, void* argument) {
    const std::unique_ptr<Loan> loan(static_cast<Loan*>(argument));
    (void)loan->api->convert(error);
  };
  Status status = api_->call(&PJRT_Api::PJRT_Event_OnReady, ready, PJRT_Event_OnReady_Args_STRUCT_SIZE);
  api_->destroy_event(args.done_with_host_buffer);
  if (!status.ok()) {
    buffer.reset();
    delete static_cast<Loan*>(ready.user_arg);
    return status;
  }
  return buffer;
}

Result<PJRT_LoadedExecutable*> Client::compile_once(const std::string& stablehlo,
                                                    const std::string& options) const {
  PJRT_Program program = program_of(stablehlo);
  PJRT_Client_Compile_Args args{};
  args.client = handle_;
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_Client_Compile, args, PJRT_Client_Compile_Args_STRUCT_SIZE)
                      .with_context("cannot compile a program"));
  return args.executable;
}

void Client::learn_debug_options() const {
  std::string bytes;
  auto loaded = compile_once(kIdentityProgram, encode_compile_options({}, {}));
  if (loaded.ok()) {
    auto executable = Executable::adopt(shared_from_this(), *loaded, /*may_donate=*/false);
    if (executable.ok()) bytes = (*executable)->debug_options();
  }
  compile_policy_.set_debug_options(std::move(bytes));
}

Result<PJRT_LoadedExecutable*> Client::compile_by_policy(const std::string& stablehlo,
                                                         const CompileOptions& options) const {
  const bool is_cpu = platform_ == Platform::kCpu;
  if (is_cpu && compile_policy_.needs_debug_options(options)) learn_debug_options();
  while (true) {
    const CompilePolicy::Attempt attempt = compile_policy_.attempt(options, is_cpu);
    auto loaded = compile_once(stablehlo, attempt.bytes);
    const bool on_trial = compile_policy_.is_on_trial(attempt);
    if (loaded.ok()) {
      if (on_trial) compile_policy_.conclude_trial(true);
      return loaded;
    }
    if (compile_policy_.learn_refusal(attempt, loaded.status())) continue;
    if (!on_trial) return loaded;
    // Either the program is wrong or the plugin dislikes its own settings: a compile without them
    // tells which.
    auto plain = compile_once(stablehlo, encode_compile_options(attempt.overrides, {}));
    if (plain.ok()) compile_policy_.conclude_trial(false);
    return plain;
  }
}

Result<std::shared_ptr<Executable>> Client::compile(const std::string& stablehlo,
                                                    const CompileOptions& options) const {
  RETURN_IF_ERROR(check_not_forked());
  ASSIGN_OR_RETURN(PJRT_LoadedExecutable * loaded, compile_by_policy(stablehlo, options));
  ASSIGN_OR_RETURN(auto executable,
                   Executable::adopt(shared_from_this(), loaded, declares_donors(stablehlo)));
  const bool lives_long = platform_ == Platform::kCpu && options.effort == Effort::kFull;
  return lives_long ? without_options(std::move(executable)) : std::move(executable);
}

std::shared_ptr<Executable> Client::without_options(std::shared_ptr<Executable> executable) const {
  // XLA:CPU copies the options at each execution; with DebugOptions among them that is a third of
  // the time of a small program. Loading costs a few percent of the compile.
  auto bytes = executable->serialize();
  if (!bytes.ok()) return executable;
  auto reloaded = load(*bytes);
  return reloaded.ok() ? std::move(reloaded).value() : executable;
}

Result<std::shared_ptr<Executable>> Client::load(const std::string& serialized) const {
  RETURN_IF_ERROR(check_not_forked());
  const std::optional<SerializedProgram> program = split_serialized(serialized);
  if (!program.has_value()) return invalid_argument("these bytes are not a serialised program");
  // Plain options in place of those of the compile: see without_options().
  const std::string options = encode_compile_options({}, {});
  PJRT_Executable_DeserializeAndLoad_Args args{};
  args.overridden_serialized_compile_options = options.data();
  args.overridden_serialized_compile_options_size = options.size();
  args.client = handle_;
  args.serialized_executable = program->plugin_bytes.data();
  args.serialized_executable_size = program->plugin_bytes.size();
  RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_Executable_DeserializeAndLoad, args,
                             PJRT_Executable_DeserializeAndLoad_Args_STRUCT_SIZE)
                      .with_context("cannot load a serialised program"));
  ASSIGN_OR_RETURN(auto executable,
                   Executable::adopt(shared_from_this(), args.loaded_executable, program->may_donate));
  if (platform_ == Platform::kCpu) executable->origin_ = serialized;
  return executable;
}

}  // namespace torch_tpu::pjrt
