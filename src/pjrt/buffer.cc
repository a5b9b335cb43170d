#include "pjrt/buffer.h"

#include <array>
#include <cstring>
#include <utility>

#include "pjrt/client.h"

namespace torch_tpu::pjrt {
namespace {

constexpr std::pair<hlo::DType, PJRT_Buffer_Type> kElementTypes[] = {
    {hlo::DType::kInvalid, PJRT_Buffer_Type_INVALID},
    {hlo::DType::kPred, PJRT_Buffer_Type_PRED},
    {hlo::DType::kS8, PJRT_Buffer_Type_S8},
    {hlo::DType::kS16, PJRT_Buffer_Type_S16},
    {hlo::DType::kS32, PJRT_Buffer_Type_S32},
    {hlo::DType::kS64, PJRT_Buffer_Type_S64},
    {hlo::DType::kU8, PJRT_Buffer_Type_U8},
    {hlo::DType::kU16, PJRT_Buffer_Type_U16},
    {hlo::DType::kU32, PJRT_Buffer_Type_U32},
    {hlo::DType::kU64, PJRT_Buffer_Type_U64},
    {hlo::DType::kF8E4M3FN, PJRT_Buffer_Type_F8E4M3FN},
    {hlo::DType::kF8E5M2, PJRT_Buffer_Type_F8E5M2},
    {hlo::DType::kF16, PJRT_Buffer_Type_F16},
    {hlo::DType::kBF16, PJRT_Buffer_Type_BF16},
    {hlo::DType::kF32, PJRT_Buffer_Type_F32},
    {hlo::DType::kF64, PJRT_Buffer_Type_F64},
    {hlo::DType::kC64, PJRT_Buffer_Type_C64},
    {hlo::DType::kC128, PJRT_Buffer_Type_C128},
};

void count_allocation(MemoryStatistics& statistics, int64_t bytes) {
  const int64_t live = statistics.live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = statistics.peak_bytes.load(std::memory_order_relaxed);
  while (live > peak && !statistics.peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  statistics.live_buffers.fetch_add(1, std::memory_order_relaxed);
  statistics.allocations.fetch_add(1, std::memory_order_relaxed);
}

void count_release(MemoryStatistics& statistics, int64_t bytes) {
  statistics.live_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  statistics.live_buffers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace

MemoryStatistics& memory_statistics(int device_index) {
  static std::array<MemoryStatistics, kMaxDevices> statistics;
  return statistics[static_cast<size_t>(device_index)];
}

PJRT_Buffer_Type element_type(hlo::DType dtype) {
  for (const auto& [ours, theirs] : kElementTypes) {
    if (ours == dtype) return theirs;
  }
  return PJRT_Buffer_Type_INVALID;
}

hlo::DType dtype_of(PJRT_Buffer_Type type) {
  for (const auto& [ours, theirs] : kElementTypes) {
    if (theirs == type) return ours;
  }
  return hlo::DType::kInvalid;
}

Buffer::Buffer(std::shared_ptr<const Client> client, PJRT_Buffer* handle, hlo::Type type, int device_index)
    : client_(std::move(client)), handle_(handle), type_(std::move(type)), device_index_(device_index) {
  if (has_content()) count_allocation(memory_statistics(device_index_), type_.bytes());
}

Buffer::~Buffer() {
  mark_donated();
  if (!has_content()) return;
  // A forked child shares nothing with the plugin any more: freeing could wait for its threads.
  if (forked_after_use()) return;
  PJRT_Buffer_Destroy_Args args{};
  args.buffer = handle_;
  (void)client_->api().call(&PJRT_Api::PJRT_Buffer_Destroy, args, PJRT_Buffer_Destroy_Args_STRUCT_SIZE);
}

void Buffer::mark_donated() {
  if (!donated_.exchange(true, std::memory_order_relaxed) && has_content()) {
    count_release(memory_statistics(device_index_), type_.bytes());
  }
}

bool Buffer::is_deleted() const {
  if (!has_content()) return is_donated();
  PJRT_Buffer_IsDeleted_Args args{};
  args.buffer = handle_;
  return !client_->api()
              .call(&PJRT_Api::PJRT_Buffer_IsDeleted, args, PJRT_Buffer_IsDeleted_Args_STRUCT_SIZE)
              .ok() ||
         args.is_deleted;
}

Status Buffer::await() const {
  RETURN_IF_ERROR(check_not_forked());
  if (is_donated()) return invalid_argument("this buffer was donated to an execution");
  if (!has_content())
    return {Code::kUnavailable,
            "this tensor has no values: it was made in a dry run, which computes nothing"};
  PJRT_Buffer_ReadyEvent_Args args{};
  args.buffer = handle_;
  RETURN_IF_ERROR(
      client_->api().call(&PJRT_Api::PJRT_Buffer_ReadyEvent, args, PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE));
  return client_->api().await(args.event);
}

Result<const void*> Buffer::host_pointer() const {
  if (client_->platform() != Platform::kCpu) return static_cast<const void*>(nullptr);
  // The pointer is there before the content is.
  RETURN_IF_ERROR(await());
  PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args args{};
  args.buffer = handle_;
  RETURN_IF_ERROR(client_->api().call(&PJRT_Api::PJRT_Buffer_OpaqueDeviceMemoryDataPointer, args,
                                      PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args_STRUCT_SIZE));
  return static_cast<const void*>(args.device_memory_ptr);
}

Status Buffer::copy_to_host(void* destination) const {
  const auto bytes = static_cast<size_t>(type_.bytes());
  if (bytes == 0) return await();
  if (destination == nullptr) return invalid_argument("cannot copy a buffer to a null address");
  if (client_->platform() == Platform::kCpu) {
    ASSIGN_OR_RETURN(const void* source, host_pointer());
    if (source == nullptr) return internal_error("the PJRT plugin gave no address for a buffer");
    std::memcpy(destination, source, bytes);
    return {};
  }
  RETURN_IF_ERROR(await());
  // Without a layout the device's own order of dimensions would come back.
  hlo::Dims minor_to_major;
  for (int64_t i = type_.rank(); i-- > 0;) minor_to_major.push_back(i);
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  PJRT_Buffer_ToHostBuffer_Args args{};
  args.src = handle_;
  args.host_layout = &layout;
  args.dst = destination;
  args.dst_size = bytes;
  RETURN_IF_ERROR(client_->api().call(&PJRT_Api::PJRT_Buffer_ToHostBuffer, args,
                                      PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE));
  return client_->api().await(args.event);
}

namespace {

/// Copies the box that both row-major arrays have, from dimension `dim` on; `inner` are the bytes of one
/// index.
void copy_box(const char* from, std::span<const int64_t> from_dims, char* to,
              std::span<const int64_t> to_dims, int64_t element_bytes) {
  if (from_dims.empty()) {
    std::memcpy(to, from, static_cast<size_t>(element_bytes));
    return;
  }
  const auto rest_bytes = [&](std::span<const int64_t> dims) {
    int64_t bytes = element_bytes;
    for (const int64_t dim : dims.subspan(1)) bytes *= dim;
    return bytes;
  };
  const int64_t from_step = rest_bytes(from_dims);
  const int64_t to_step = rest_bytes(to_dims);
  const int64_t count = std::min(from_dims[0], to_dims[0]);
  if (std::equal(from_dims.begin() + 1, from_dims.end(), to_dims.begin() + 1)) {
    std::memcpy(to, from, static_cast<size_t>(count * from_step));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    copy_box(from + i * from_step, from_dims.subspan(1), to + i * to_step, to_dims.subspan(1), element_bytes);
  }
}

}  // namespace

Result<std::shared_ptr<Buffer>> Buffer::resized(const hlo::Type& type) const {
  if (type.dtype != type_.dtype || type.rank() != type_.rank())
    return internal_error("a buffer of " + type_.text() + " cannot become " + type.text());
  RETURN_IF_ERROR(await());
  ASSIGN_OR_RETURN(const void* content, host_pointer());
  if (content == nullptr) return Status(Code::kUnimplemented, "buffers are resized on the CPU platform only");
  std::vector<char> bytes(static_cast<size_t>(type.bytes()));
  if (!bytes.empty() && type_.bytes() > 0) {
    copy_box(static_cast<const char*>(content), {type_.dims.data(), type_.dims.size()}, bytes.data(),
             {type.dims.data(), type.dims.size()}, hlo::byte_size(type.dtype));
  }
  return client_->copy_to_device(bytes.data(), type, device_index_);
}

Result<std::shared_ptr<Buffer>> Buffer::copy_to_device(int device_index) const {
  RETURN_IF_ERROR(client_->check_device(device_index));
  if (client_->platform() == Platform::kCpu) {
    // One memory: a plain copy on this thread beats the plugin's hand-off to a pool.
    ASSIGN_OR_RETURN(const void* source, host_pointer());
    return client_->copy_to_device(source, type_, device_index);
  }
  RETURN_IF_ERROR(await());
  PJRT_Buffer_CopyToDevice_Args args{};
  args.buffer = handle_;
  args.dst_device = client_->devices()[static_cast<size_t>(device_index)].handle;
  RETURN_IF_ERROR(client_->api().call(&PJRT_Api::PJRT_Buffer_CopyToDevice, args,
                                      PJRT_Buffer_CopyToDevice_Args_STRUCT_SIZE));
  return std::make_shared<Buffer>(client_, args.dst_buffer, type_, device_index);
}

}  // namespace torch_tpu::pjrt
