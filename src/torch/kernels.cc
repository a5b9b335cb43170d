// Kernels that are not programs: creation, views, copies, resizing, host reads.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "torch/copy.h"
#include "torch/device.h"
#include "torch/dynamic_shape.h"
#include "torch/record.h"
#include "torch/resize.h"
#include "torch/storage.h"

namespace torch_tpu {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using OptionalDevice = std::optional<c10::Device>;

int index_of(OptionalDevice device) {
  if (!device.has_value() || !device->has_index()) return current_device();
  (void)queue_of(device->index());
  return device->index();
}

c10::ScalarType given_or_default_dtype(std::optional<c10::ScalarType> dtype) {
  return dtype.value_or(c10::get_default_dtype_as_scalartype());
}

void check_sizes(IntArrayRef sizes) {
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
  }
}

std::vector<int64_t> strides_for(IntArrayRef sizes, std::optional<c10::MemoryFormat> format) {
  switch (format.value_or(c10::MemoryFormat::Contiguous)) {
    case c10::MemoryFormat::ChannelsLast:
      TORCH_CHECK(sizes.size() == 4, "required rank 4 tensor to use channels_last format");
      return c10::get_channels_last_strides_2d(sizes);
    case c10::MemoryFormat::ChannelsLast3d:
      TORCH_CHECK(sizes.size() == 5, "required rank 5 tensor to use channels_last_3d format");
      return c10::get_channels_last_strides_3d(sizes);
    default: {
      TORCH_CHECK(format.value_or(c10::MemoryFormat::Contiguous) == c10::MemoryFormat::Contiguous,
                  "unsupported memory format ", *format);
      const hlo::Dims strides = hlo::contiguous_strides({sizes.data(), sizes.size()});
      return {strides.begin(), strides.end()};
    }
  }
}

Tensor empty(IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
             OptionalDevice device, std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  check_sizes(sizes);
  return make_empty(sizes, strides_for(sizes, format), given_or_default_dtype(dtype), index_of(device));
}

// Zeros without the ZeroTensor key: a fresh storage reads as zeros and holds no buffer either.
Tensor efficient_zeros(IntArrayRef sizes, std::optional<c10::ScalarType> dtype,
                       std::optional<c10::Layout> layout, OptionalDevice device,
                       std::optional<bool> pin_memory) {
  return empty(sizes, dtype, layout, device, pin_memory, std::nullopt);
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout>, OptionalDevice device, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK(sizes.size() == strides.size(), "dimensionality of sizes (", sizes.size(),
              ") must match dimensionality of strides (", strides.size(), ")");
  check_sizes(sizes);
  for (const int64_t stride : strides) {
    TORCH_CHECK(stride >= 0, "Trying to create tensor with negative stride ", stride, ": ", strides);
  }
  return make_empty(sizes, strides, given_or_default_dtype(dtype), index_of(device));
}

// Bytes of a storage that reaches the last element of (sizes, strides, offset).
size_t bytes_needed(IntArrayRef sizes, IntArrayRef strides, int64_t offset, size_t element_bytes) {
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return static_cast<size_t>(last + 1) * element_bytes;
}

void resize_tensor(const Tensor& self, IntArrayRef sizes, IntArrayRef strides) {
  const size_t bytes = bytes_needed(sizes, strides, self.storage_offset(), self.element_size());
  if (bytes > self.storage().nbytes()) resize_storage(*self.storage().unsafeGetStorageImpl(), bytes);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
}

const Tensor& resize_(const Tensor& self, IntArrayRef sizes, std::optional<c10::MemoryFormat> format) {
  check_sizes(sizes);
  if (self.sizes() == sizes && !format.has_value()) return self;
  resize_tensor(self, sizes, strides_for(sizes, format));
  return self;
}

Tensor& set_from_storage(Tensor& self, c10::Storage source, int64_t offset, IntArrayRef sizes,
                         IntArrayRef strides) {
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on device \"",
              self.device(), "\" to a storage on different device \"", source.device(),
              "\". This is no longer allowed; the devices must match.");
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  TORCH_CHECK(strides.empty() || strides.size() == sizes.size(), "mismatch in length of strides and shape");
  const auto negative = [](int64_t number) { return number < 0; };
  TORCH_CHECK(std::none_of(sizes.begin(), sizes.end(), negative) &&
                  std::none_of(strides.begin(), strides.end(), negative),
              "Storage size calculation overflowed with sizes=", sizes, " and strides=", strides);
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  resize_tensor(self, sizes,
                strides.empty() && !sizes.empty() ? IntArrayRef(strides_for(sizes, std::nullopt)) : strides);
  return self;
}

Tensor& set_source_storage(Tensor& self, c10::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_from_storage(self, std::move(source), 0, {count}, {1});
}

Tensor& set_source_tensor(Tensor& self, const Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_from_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor& set_empty(Tensor& self) {
  return set_from_storage(self, c10::Storage(make_storage(0, self.device().index())), 0, {0}, {1});
}

Tensor copy_from(const Tensor& self, const Tensor& destination, bool non_blocking) {
  Tensor target = destination;
  return copy_into(target, self, non_blocking);
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& destination) {
  destination.resize_(self.sizes());
  Tensor target = destination;
  return copy_into(target, self, false);
}

Tensor& nonzero_out(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got ", out.scalar_type());
  at::assert_no_overlap(out, self);
  const Tensor result = torch_tpu::nonzero(self);
  out.resize_(result.sizes());
  return copy_into(out, result, false);
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  const Tensor result = torch_tpu::masked_select(self, mask);
  out.resize_(result.sizes());
  return copy_into(out, result, false);
}

bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Cannot compare two tensors on different devices. Got: ", self.device(), " and ",
              other.device());
  if (self.sizes() != other.sizes()) return false;
  return self.numel() == 0 || self.eq(other).all().item<bool>();
}

// As ATen's CPU kernel: the shape is that of mean and out= together.
Tensor& normal_out(const Tensor& mean, double std, std::optional<at::Generator> generator, Tensor& out) {
  const auto sizes = at::infer_size(mean.sizes(), out.sizes());
  at::native::resize_output(out, sizes);
  return out.normal_(0.0, std, std::move(generator)).add_(mean);
}

bool is_set_to(const Tensor& self, const Tensor& source) {
  return self.storage().unsafeGetStorageImpl() == source.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == source.storage_offset() && self.sizes() == source.sizes() &&
         self.strides() == source.strides();
}

void record_stream(Tensor&, c10::Stream) {}  // one queue per device: nothing to order

bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  // Module.to keeps its Parameter objects when both sides are plain dense tensors.
  const auto dense = [](const Tensor& t) { return t.layout() == c10::kStrided && (t.is_cpu() || is_tpu(t)); };
  return dense(self) && dense(from);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_efficientzerotensor", efficient_zeros);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage", set_source_storage);
  m.impl("set_.source_Storage_storage_offset", set_from_storage);
  m.impl("set_.source_Tensor", set_source_tensor);
  m.impl("set_", set_empty);
  m.impl("copy_", copy_into);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("nonzero", nonzero);
  m.impl("nonzero.out", nonzero_out);
  m.impl("masked_select", masked_select);
  m.impl("masked_select.out", masked_select_out);
  m.impl("equal", equal);
  m.impl("normal.Tensor_float_out", normal_out);
  m.impl("is_set_to", is_set_to);
  m.impl("record_stream", record_stream);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

// Copies of lazily conjugated or negated tensors must not come back through these keys.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace torch_tpu
