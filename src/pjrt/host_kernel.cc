#include "pjrt/host_kernel.h"

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "pjrt/pjrt_c_api_ffi_extension.h"

namespace torch_tpu::pjrt {
namespace {

// Older plugins take handlers and never find them.
constexpr int kFirstMinorWithHandlers = 100;

struct NamedHandler {
  std::string_view name;
  XLA_FFI_Handler* handler;
};

std::vector<NamedHandler>& handlers() {
  static std::vector<NamedHandler>& instance = *new std::vector<NamedHandler>;
  return instance;
}

hlo::DType dtype_of(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_F32:
      return hlo::DType::kF32;
    case XLA_FFI_DataType_F64:
      return hlo::DType::kF64;
    default:
      throw std::invalid_argument("a host kernel got an array of type " + std::to_string(type));
  }
}

HostArray array_of(const XLA_FFI_Buffer& buffer) {
  return {{dtype_of(buffer.dtype), hlo::Dims(buffer.dims, buffer.dims + buffer.rank)}, buffer.data};
}

XLA_FFI_Error* error_of(const XLA_FFI_Api& api, const std::string& message) {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message.c_str();
  args.errc = XLA_FFI_Error_Code_INTERNAL;
  return api.XLA_FFI_Error_Create(&args);
}

/// Whether there is no error; destroys it.
bool succeeds(const XLA_FFI_Api& api, XLA_FFI_Error* error) {
  if (error == nullptr) return true;
  XLA_FFI_Error_Destroy_Args args{};
  args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  args.error = error;
  api.XLA_FFI_Error_Destroy(&args);
  return false;
}

/// Work that several threads take parts of. Who waits has taken what nobody else began, so it ends even when
/// no other thread ever comes.
class Parts {
 public:
  Parts(int64_t count, const std::function<void(int64_t)>& part) : count_(count), part_(&part) {}

  void work() {
    for (int64_t i = next_++; i < count_; i = next_++) {
      (*part_)(i);
      if (++done_ == count_) done_.notify_all();
    }
  }
  void await() {
    for (int64_t done = done_; done < count_; done = done_) done_.wait(done);
  }
  /// On a thread of the plugin, with a std::shared_ptr<Parts>* of its own.
  static void help(void* data) {
    const std::unique_ptr<std::shared_ptr<Parts>> parts(static_cast<std::shared_ptr<Parts>*>(data));
    (*parts)->work();
  }

 private:
  const int64_t count_;
  const std::function<void(int64_t)>* const part_;  // gone once all parts are done
  std::atomic<int64_t> next_ = 0;
  std::atomic<int64_t> done_ = 0;
};

/// Where the plugin asks for the version of the API, before the first call.
bool tell_version(const XLA_FFI_CallFrame& frame) {
  auto* extension = frame.extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata& metadata = *reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata.api_version.major_version = XLA_FFI_API_MAJOR;
  metadata.api_version.minor_version = XLA_FFI_API_MINOR;
  metadata.traits = 0;
  return true;
}

}  // namespace

HostCall::HostCall(const XLA_FFI_CallFrame& frame) : frame_(frame) {
  for (int64_t i = 0; i < frame.args.size; ++i)
    inputs_.push_back(array_of(*static_cast<const XLA_FFI_Buffer*>(frame.args.args[i])));
  for (int64_t i = 0; i < frame.rets.size; ++i)
    results_.push_back(array_of(*static_cast<const XLA_FFI_Buffer*>(frame.rets.rets[i])));
}

int64_t HostCall::attribute(std::string_view name) const {
  for (int64_t i = 0; i < frame_.attrs.size; ++i) {
    const XLA_FFI_ByteSpan& own = *frame_.attrs.names[i];
    if (frame_.attrs.types[i] != XLA_FFI_AttrType_SCALAR || std::string_view(own.ptr, own.len) != name)
      continue;
    const auto& scalar = *static_cast<const XLA_FFI_Scalar*>(frame_.attrs.attrs[i]);
    if (scalar.dtype == XLA_FFI_DataType_S64) return *static_cast<const int64_t*>(scalar.value);
  }
  return 0;
}

int64_t HostCall::threads() const {
  int64_t count = 1;
  XLA_FFI_ThreadPool_NumThreads_Args args{};
  args.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE;
  args.ctx = frame_.ctx;
  args.num_threads = &count;
  return succeeds(*frame_.api, frame_.api->XLA_FFI_ThreadPool_NumThreads(&args)) ? count : 1;
}

void HostCall::run_parts(int64_t count, const std::function<void(int64_t)>& part) const {
  const auto parts = std::make_shared<Parts>(count, part);
  for (int64_t i = 1; i < count; ++i) {
    XLA_FFI_ThreadPool_Schedule_Args args{};
    args.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE;
    args.ctx = frame_.ctx;
    args.task = &Parts::help;
    auto helper = std::make_unique<std::shared_ptr<Parts>>(parts);
    args.data = helper.get();
    if (succeeds(*frame_.api, frame_.api->XLA_FFI_ThreadPool_Schedule(&args))) (void)helper.release();
  }
  parts->work();
  parts->await();
}

XLA_FFI_Error* run_host_kernel(HostKernel kernel, XLA_FFI_CallFrame* frame) {
  if (tell_version(*frame)) return nullptr;
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  try {
    const Status status = kernel(HostCall(*frame));
    return status.ok() ? nullptr : error_of(*frame->api, status.message());
  } catch (const std::exception& error) {
    return error_of(*frame->api, error.what());
  }
}

void add_host_kernel(std::string_view name, XLA_FFI_Handler* handler) {
  handlers().push_back({name, handler});
}

bool register_host_kernels(const Api& api) {
  const auto* extension = api.extension(PJRT_Extension_Type_FFI);
  if (extension == nullptr || handlers().empty() || api.minor_version() < kFirstMinorWithHandlers)
    return false;
  const auto* ffi = reinterpret_cast<const PJRT_FFI_Extension*>(extension);
  constexpr std::string_view kPlatform = "Host";
  for (const NamedHandler& entry : handlers()) {
    PJRT_FFI_Register_Handler_Args args{};
    args.struct_size = PJRT_FFI_Register_Handler_Args_STRUCT_SIZE;
    args.target_name = entry.name.data();
    args.target_name_size = entry.name.size();
    args.handler = reinterpret_cast<void*>(entry.handler);
    args.platform_name = kPlatform.data();
    args.platform_name_size = kPlatform.size();
    if (!api.convert(ffi->register_handler(&args)).ok()) return false;
  }
  return true;
}

}  // namespace torch_tpu::pjrt
