// Sparse tensors on our device: their indices and values are ordinary tensors of it, and the operators on
// them are compositions of dense ones. How many entries a result has often depends on values, so many of
// these functions read a number on the host.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

namespace torch_tpu {

/// A COO tensor with these entries; shares their memory.
at::Tensor make_coo(const at::Tensor& indices, const at::Tensor& values, c10::IntArrayRef sizes,
                    bool coalesced);
/// Entries in the order of their offsets, each offset once.
at::Tensor coalesced(const at::Tensor& sparse);
/// Gives `target` the shape and the entries of `source`, both COO; the values take the target's dtype.
void assign_entries(const at::Tensor& target, const at::Tensor& source);

/// Whether the layout is one of CSR, CSC, BSR, BSC.
bool is_compressed(const at::Tensor& tensor);
/// assign_entries for compressed layouts, which `target` takes over.
void assign_compressed(const at::Tensor& target, const at::Tensor& source);
/// A COO matrix in the layout, with the blocks and the index dtype of a compressed one.
at::Tensor compressed_like(const at::Tensor& coo, const at::Tensor& example);
/// A matrix of any sparse layout as COO.
at::Tensor as_coo(const at::Tensor& sparse);

/// Row-major offsets of the entries `indices` [n, nnz] in a tensor whose first n dimensions are `sizes`.
at::Tensor flatten_indices(const at::Tensor& indices, c10::IntArrayRef sizes);
/// The dense dimensions of a COO tensor as the shape of `rows` values: [rows, ...].
std::vector<int64_t> rows_shape(const at::Tensor& sparse, int64_t rows);
/// A dense tensor with the sizes of `sparse`, as [offsets of flatten_indices, dense dimensions...].
at::Tensor as_rows(const at::Tensor& dense, const at::Tensor& sparse);

/// Elements sorted by key; equal keys are one group.
struct Groups {
  at::Tensor order;   // s64[n]: the sorted elements
  at::Tensor starts;  // bool[n]: where in `order` a group starts
  at::Tensor group;   // s64[n]: the group of each sorted element, from 0
};
Groups group_by(const at::Tensor& keys);

/// `values` [n, ...] summed into `rows` rows by `index` [n], also where they are Booleans.
at::Tensor sum_by(const at::Tensor& index, const at::Tensor& values, int64_t rows);

/// Where `wanted` are in `sorted`, which is not empty, and whether they are there at all.
struct Places {
  at::Tensor place;
  at::Tensor found;
};
Places find_sorted(const at::Tensor& sorted, const at::Tensor& wanted);
/// The values of `sparse` (coalesced) at the offsets `wanted`, zero where it has no entry.
at::Tensor values_at(const at::Tensor& sparse, const at::Tensor& wanted);

/// Element i repeated counts[i] times.
struct Repetition {
  at::Tensor source;  // s64[total]: i
  at::Tensor number;  // s64[total]: 0 to counts[i] - 1
};
Repetition repeat(const at::Tensor& counts);

/// The dtype for sums of `dtype`: of many small floats they are rounded once.
c10::ScalarType compute_dtype(c10::ScalarType dtype);
/// Raises what ATen raises when a result of dtype `from` is to be written into dtype `to`.
void check_can_cast(c10::ScalarType from, c10::ScalarType to, const char* operation);

namespace detail {

inline void device_from(std::optional<c10::Device>& found, const at::Tensor& tensor) {
  if (!found.has_value() && tensor.defined()) found = tensor.device();
}
inline void device_from(std::optional<c10::Device>& found, const std::optional<c10::Device>& device) {
  if (!found.has_value()) found = device;
}
inline void device_from(std::optional<c10::Device>& found, const at::ITensorListRef& list) {
  for (const at::Tensor& tensor : list) device_from(found, tensor);
}
template <typename T>
void device_from(std::optional<c10::Device>&, const T&) {}

template <auto function>
struct OnDevice;
template <typename Result, typename... Args, Result (*function)(Args...)>
struct OnDevice<function> {
  static Result call(Args... args) {
    std::optional<c10::Device> device;
    (device_from(device, args), ...);
    const c10::OptionalDeviceGuard guard(device.has_value() && device->is_privateuseone() ? device
                                                                                          : std::nullopt);
    return function(std::forward<Args>(args)...);
  }
};

}  // namespace detail

/// `function` with its first tensor's device as the current one: at::native makes empty tensors there.
template <auto function>
constexpr auto on_device() {
  return &detail::OnDevice<function>::call;
}

}  // namespace torch_tpu
