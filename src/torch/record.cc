#include "torch/record.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <shared_mutex>
#include <unordered_map>

#include "engine/counters.h"
#include "ops/op.h"
#include "torch/device.h"
#include "torch/dtype.h"
#include "torch/error.h"

namespace torch_tpu {
namespace {

// Every signature ever seen, for the life of the process: a few hundred bytes each.
struct CallTable {
  std::shared_mutex mutex;
  std::unordered_map<Hash128, ops::CallPtr> calls;
};

CallTable& call_table() {
  static CallTable& instance = *new CallTable;
  return instance;
}

// The run-time integers 0, 1 … of a call.
ops::ScalarListArg slots_of(std::span<const int64_t> integers) {
  ops::ScalarListArg list;
  for (size_t i = 0; i < integers.size(); ++i) list.slots.push_back(static_cast<int>(i));
  return list;
}

std::vector<int64_t> as_list(std::span<const int64_t> numbers) { return {numbers.begin(), numbers.end()}; }

// Equal where it matters: strides of dimensions of size one never do.
bool same_layout(const hlo::Layout& a, const hlo::Layout& b) {
  if (a.offset != b.offset || !(a.sizes == b.sizes)) return false;
  for (size_t i = 0; i < a.sizes.size(); ++i) {
    if (a.sizes[i] != 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

bool fills_storage(const at::Tensor& tensor, const hlo::Layout& layout) {
  return layout.offset == 0 &&
         tensor.numel() * static_cast<int64_t>(tensor.element_size()) ==
             static_cast<int64_t>(tensor.storage().nbytes()) &&
         hlo::is_dense(layout);
}

}  // namespace

hlo::Layout layout_of(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  return {hlo::Dims(sizes.begin(), sizes.end()), hlo::Dims(strides.begin(), strides.end()),
          tensor.storage_offset()};
}

ops::CallPtr find_call(const Hash128& hash) {
  CallTable& table = call_table();
  const std::shared_lock lock(table.mutex);
  const auto found = table.calls.find(hash);
  return found == table.calls.end() ? nullptr : found->second;
}

ops::CallPtr intern_call(ops::Call call) {
  raise_if_error(ops::infer(call));
  ++engine::counters().signatures;
  auto shared = std::make_shared<const ops::Call>(std::move(call));
  CallTable& table = call_table();
  const std::unique_lock lock(table.mutex);
  return table.calls.emplace(shared->hash, std::move(shared)).first->second;
}

namespace {

// The call of an internal operator with so many run-time integers.
ops::CallPtr call_of(std::string_view op, std::initializer_list<engine::TensorPtr> inputs,
                     std::vector<ops::Arg> args, size_t integers) {
  ops::Call call;
  call.op = ops::find_op(op);
  TORCH_INTERNAL_ASSERT(call.op != nullptr, "internal operator ", op, " is missing");
  call.hash.append(call.op->identity);
  for (const auto& input : inputs) input->type.append_to(call.hash);
  for (const ops::Arg& arg : args) ops::append(call.hash, arg);
  if (ops::CallPtr shared = find_call(call.hash)) return shared;
  for (const auto& input : inputs) call.inputs.push_back(input->type);
  call.args = std::move(args);
  call.scalars.assign(integers, {hlo::DType::kS64, true});
  return intern_call(std::move(call));
}

std::vector<engine::TensorPtr> record_on(engine::Queue& queue, std::string_view op,
                                         std::initializer_list<engine::TensorPtr> inputs,
                                         std::vector<ops::Arg> args, std::span<const int64_t> integers) {
  const std::vector<uint64_t> words(integers.begin(), integers.end());
  return value_or_raise(queue.record(call_of(op, inputs, std::move(args), integers.size()),
                                     {inputs.begin(), inputs.size()}, words));
}

// What a storage that nothing was written to reads as.
engine::TensorPtr record_zeros(int device_index, std::span<const int64_t> sizes, hlo::DType dtype) {
  return record_on(queue_of(device_index), "tpu::zeros", {}, {as_list(sizes), dtype}, {})[0];
}

}  // namespace

engine::TensorPtr record_internal(std::string_view op, std::initializer_list<engine::TensorPtr> inputs,
                                  std::vector<ops::Arg> args, std::span<const int64_t> integers) {
  return record_on(inputs.begin()[0]->queue(), op, inputs, std::move(args), integers)[0];
}

std::vector<engine::TensorPtr> record_results(std::string_view op,
                                              std::initializer_list<engine::TensorPtr> inputs,
                                              std::vector<ops::Arg> args) {
  return record_on(inputs.begin()[0]->queue(), op, inputs, std::move(args), {});
}

engine::TensorPtr record_flatten(const engine::TensorPtr& value, const hlo::Layout& layout, int64_t count,
                                 hlo::DType dtype) {
  return record_internal("tpu::flatten", {value}, {ops::TensorArg{0}, as_list(layout.strides), count, dtype});
}

engine::TensorPtr record_convert(const engine::TensorPtr& value, hlo::DType dtype) {
  if (value->type.dtype == dtype) return value;
  return record_internal("tpu::convert", {value}, {ops::TensorArg{0}, dtype});
}

engine::TensorPtr record_broadcast(const engine::TensorPtr& value, std::span<const int64_t> sizes) {
  if (value->type.dims == hlo::Dims(sizes)) return value;
  return record_internal("tpu::broadcast", {value}, {ops::TensorArg{0}, as_list(sizes)});
}

namespace {

// The value with the tensor's lazy conjugation and negation applied: from stored to logical elements
// or back, for both undo themselves.
engine::TensorPtr resolve(const at::Tensor& tensor, engine::TensorPtr value) {
  if (tensor.is_conj()) value = record_internal("aten::_conj_physical", {value}, {ops::TensorArg{0}});
  if (tensor.is_neg()) value = record_internal("aten::neg", {value}, {ops::TensorArg{0}});
  return value;
}

// A view of the storage's value, whose own dtype it must have to be placed at run time.
hlo::Placement placed(const StorageContent& content, const hlo::Layout& view, hlo::DType dtype) {
  return content.value->type.dtype == dtype ? hlo::place(content.layout, view)
                                            : hlo::Placement{view, {}, {}, {}};
}

// How a view is read: a call and its run-time integers.
struct Reading {
  ops::CallPtr call;
  std::vector<uint64_t> starts;
};

void append(Hash128& hash, const hlo::Layout& layout) {
  hash.append(uint64_t{layout.sizes.size()});
  for (const int64_t size : layout.sizes) hash.append(static_cast<uint64_t>(size));
  for (const int64_t stride : layout.strides) hash.append(static_cast<uint64_t>(stride));
  hash.append(static_cast<uint64_t>(layout.offset));
}

// Remembered, because programs read the same views again and again: finding out takes longer than recording.
const Reading& reading_of(const StorageContent& content, const hlo::Layout& layout, hlo::DType dtype) {
  constexpr size_t kMostReadings = 4096;
  thread_local std::unordered_map<Hash128, Reading> readings;
  Hash128 key;
  content.value->type.append_to(key);
  append(key, content.layout);
  append(key, layout);
  key.append(static_cast<uint64_t>(dtype));
  if (const auto found = readings.find(key); found != readings.end()) return found->second;
  const auto [view, grid, dims, starts] = placed(content, layout, dtype);
  ops::CallPtr call =
      call_of("tpu::strided_read", {content.value},
              {ops::TensorArg{0}, as_list(content.layout.strides), as_list(view.sizes), as_list(view.strides),
               view.offset, dtype, as_list(grid), as_list(dims), slots_of(starts)},
              starts.size());
  if (readings.size() >= kMostReadings) readings.clear();
  return readings.emplace(key, Reading{std::move(call), {starts.begin(), starts.end()}}).first->second;
}

engine::TensorPtr read_stored(const at::Tensor& tensor) {
  const StorageContent& content = content_of(*tensor.unsafeGetTensorImpl());
  const hlo::Layout layout = layout_of(tensor);
  const hlo::DType dtype = to_hlo(tensor.scalar_type());
  if (content.value == nullptr) return record_zeros(content.device_index, layout.sizes, dtype);
  if (content.value->type.dtype == dtype && same_layout(content.layout, layout)) return content.value;
  const Reading& reading = reading_of(content, layout, dtype);
  return value_or_raise(content.value->queue().record(reading.call, {&content.value, 1}, reading.starts))[0];
}

}  // namespace

engine::TensorPtr read(const at::Tensor& tensor) { return resolve(tensor, read_stored(tensor)); }

namespace {

// Keeps the first of the elements that an expanded tensor has at one place, in the value and the layout.
void drop_repetitions(engine::TensorPtr& value, hlo::Layout& layout) {
  hlo::Layout first = hlo::Layout::contiguous(layout.sizes);
  for (size_t i = 0; i < layout.sizes.size(); ++i) {
    if (layout.strides[i] == 0 && layout.sizes[i] > 1) first.sizes[i] = layout.sizes[i] = 1;
  }
  if (value->type.dims == first.sizes) return;
  const hlo::Dims strides = hlo::contiguous_strides(value->type.dims);
  value = record_internal("tpu::strided_read", {value},
                          {ops::TensorArg{0}, as_list(strides), as_list(first.sizes), as_list(first.strides),
                           int64_t{0}, value->type.dtype, as_list({}), as_list({}), ops::ScalarListArg{}});
}

}  // namespace

void write(const at::Tensor& tensor, engine::TensorPtr value) {
  value = resolve(tensor, std::move(value));
  StorageContent& content = content_of(*tensor.unsafeGetTensorImpl());
  hlo::Layout layout = layout_of(tensor);
  if (fills_storage(tensor, layout)) {
    content.value = std::move(value);
    content.layout = layout;
    return;
  }
  if (tensor.numel() == 0) return;
  drop_repetitions(value, layout);
  if (content.value == nullptr) {
    const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
    const hlo::DType dtype = bytes % tensor.element_size() == 0 ? value->type.dtype : hlo::DType::kU8;
    const int64_t count = bytes / hlo::byte_size(dtype);
    content.layout = hlo::Layout::contiguous(hlo::Dims{count});
    content.value = record_zeros(content.device_index, hlo::Dims{count}, dtype);
  }
  const auto [view, grid, dims, starts] = placed(content, layout, value->type.dtype);
  content.value =
      record_internal("tpu::strided_write", {content.value, value},
                      {ops::TensorArg{0}, ops::TensorArg{1}, as_list(content.layout.strides),
                       as_list(view.strides), view.offset, as_list(grid), as_list(dims), slots_of(starts)},
                      starts);
}

at::Tensor tensor_over(c10::Storage storage, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset,
                       c10::ScalarType dtype) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                         c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

at::Tensor make_empty(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                      int device_index) {
  size_t elements = 1;
  size_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) elements = 0;
    last += static_cast<size_t>(sizes[i] - 1) * static_cast<size_t>(strides[i]);
  }
  const size_t bytes = (elements == 0 ? 0 : last + 1) * c10::elementSize(dtype);
  return tensor_over(c10::Storage(make_storage(bytes, device_index)), sizes, strides, 0, dtype);
}

at::Tensor make_empty(c10::IntArrayRef sizes, c10::ScalarType dtype, int device_index) {
  const hlo::Dims strides = hlo::contiguous_strides({sizes.data(), sizes.size()});
  return make_empty(sizes, {strides.data(), strides.size()}, dtype, device_index);
}

at::Tensor make_tensor(engine::TensorPtr value, c10::IntArrayRef strides) {
  const hlo::Type& type = value->type;
  const c10::IntArrayRef sizes(type.dims.data(), type.dims.size());
  at::Tensor tensor = make_empty(sizes, strides, to_scalar_type(type.dtype), value->queue().device_index());
  StorageContent& content = content_of(*tensor.unsafeGetTensorImpl());
  content.layout = {type.dims, hlo::Dims(strides.begin(), strides.end()), 0};
  content.value = std::move(value);
  return tensor;
}

at::Tensor make_tensor(engine::TensorPtr value) {
  const hlo::Dims strides = hlo::contiguous_strides(value->type.dims);
  return make_tensor(std::move(value), c10::IntArrayRef(strides.data(), strides.size()));
}

}  // namespace torch_tpu
