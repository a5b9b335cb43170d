#include "torch/copy.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include "engine/capture.h"
#include "engine/counters.h"
#include "torch/device.h"
#include "torch/dtype.h"
#include "torch/error.h"
#include "torch/record.h"

namespace torch_tpu {
namespace {

// Views that hold a quarter of their storage or more, or lie in one so small, are cut out on the host: it
// takes no program for each view.
constexpr int64_t kWholeReadFactor = 4;
constexpr int64_t kWholeReadBytes = 4096;

/// The value that fills the storage of such a view, or null.
engine::TensorPtr surrounding_value(const at::Tensor& view) {
  const StorageContent& content = content_of(*view.unsafeGetTensorImpl());
  if (content.value == nullptr || view.is_conj() || view.is_neg()) return nullptr;
  const hlo::Type& type = content.value->type;
  if (type.dtype != to_hlo(view.scalar_type()) || content.layout.sizes == layout_of(view).sizes)
    return nullptr;
  if (!(content.layout.strides == hlo::contiguous_strides(type.dims))) return nullptr;
  const bool worthwhile =
      type.bytes() <= kWholeReadBytes || type.elements() <= kWholeReadFactor * view.numel();
  return worthwhile ? content.value : nullptr;
}

/// Fills a contiguous CPU tensor of the same sizes and dtype.
void read_elements(const at::Tensor& self, at::Tensor& cpu) {
  if (self.numel() == 0) return;
  if (const auto value = surrounding_value(self)) {
    const at::Tensor all = empty_cpu({value->type.elements()}, self.scalar_type());
    read_to_host(value, all.mutable_data_ptr());
    cpu.copy_(all.as_strided(self.sizes(), self.strides(), self.storage_offset()));
  } else {
    read_to_host(read(self), cpu.mutable_data_ptr());
  }
}

at::Tensor to_host(const at::Tensor& self) {
  at::Tensor cpu = empty_cpu(self.sizes(), self.scalar_type());
  read_elements(self, cpu);
  return cpu;
}

// The value on another device of the client.
engine::TensorPtr move_to(const engine::TensorPtr& value, int device_index) {
  if (value->queue().device_index() == device_index) return value;
  const auto buffer = value_or_raise(value->queue().materialize(value));
  return queue_of(device_index).adopt(value_or_raise(buffer->copy_to_device(device_index)));
}

void copy_to_cpu(at::Tensor& self, const at::Tensor& source) {
  const bool direct = self.is_contiguous() && self.scalar_type() == source.scalar_type() &&
                      self.sizes() == source.sizes() && !self.is_conj() && !self.is_neg();
  if (direct) {
    read_elements(source, self);
  } else {
    self.copy_(to_host(source));
  }
}

}  // namespace

at::Tensor empty_cpu(c10::IntArrayRef sizes, c10::ScalarType dtype) {
  return at::detail::empty_cpu(sizes, dtype, std::nullopt, std::nullopt, std::nullopt, std::nullopt);
}

void read_to_host(const engine::TensorPtr& value, void* destination) {
  const auto buffer = value_or_raise(value->queue().materialize(value));
  ++engine::counters().host_reads;
  engine::counters().device_to_host_bytes += value->type.bytes();
  raise_if_error(buffer->copy_to_host(destination));
}

engine::TensorPtr copy_from_host(const at::Tensor& cpu, int device_index) {
  const auto sizes = cpu.sizes();
  const hlo::Type type{to_hlo(cpu.scalar_type()), hlo::Dims(sizes.begin(), sizes.end())};
  engine::Queue& queue = queue_of(device_index);
  raise_if_error(queue.check_capacity(type.bytes()));
  if (engine::is_dry_run()) return queue.adopt(runtime().client().buffer_without_content(type, device_index));
  engine::counters().host_to_device_bytes += type.bytes();
  return queue.adopt(
      value_or_raise(runtime().client().copy_to_device(cpu.const_data_ptr(), type, device_index)));
}

at::Tensor& copy_into(at::Tensor& self, const at::Tensor& source, bool) {
  if (self.is_same(source) || self.numel() == 0) {
    TORCH_CHECK(at::is_expandable_to(source.sizes(), self.sizes()), "The expanded size of the tensor ",
                self.sizes(), " does not match the existing size ", source.sizes());
    return self;
  }
  TORCH_CHECK(at::is_expandable_to(source.sizes(), self.sizes()), "The size of tensor a ", self.sizes(),
              " must match the size of tensor b ", source.sizes(), " to copy");
  at::assert_no_internal_overlap(self);
  if (is_tpu(self) && is_tpu(source)) at::assert_no_partial_overlap(self, source);
  if (!is_tpu(self)) {
    copy_to_cpu(self, source);
    return self;
  }
  const int device_index = self.device().index();
  const hlo::DType dtype = to_hlo(self.scalar_type());
  engine::TensorPtr value;
  if (is_tpu(source)) {
    value = record_convert(move_to(read(source), device_index), dtype);
  } else {
    // The host converts: what travels has the device's dtype.
    value =
        copy_from_host(source.resolve_conj().resolve_neg().to(self.scalar_type()).contiguous(), device_index);
  }
  const auto sizes = self.sizes();
  write(self, record_broadcast(value, {sizes.data(), sizes.size()}));
  return self;
}

at::Scalar local_scalar(const at::Tensor& self) { return to_host(self).item(); }

}  // namespace torch_tpu
