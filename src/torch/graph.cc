#include "torch/graph.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>

#include "ops/op.h"
#include "torch/device.h"
#include "torch/dtype.h"
#include "torch/error.h"
#include "torch/generator.h"
#include "torch/record.h"

namespace py = pybind11;

namespace torch_tpu {
namespace {

using engine::TensorPtr;

constexpr size_t kMostRecordings = 4;
constexpr int kMostAttempts = 8;

/// What must be the same for a recording to serve: how a tensor lies in its storage, and that in its value.
struct ArgumentLayout {
  hlo::Layout tensor;
  c10::ScalarType dtype;
  bool is_conjugated, is_negated;
  size_t storage;  // the first argument with the same one
  std::optional<hlo::Type> value;
  hlo::Layout content;
  size_t bytes;
};

/// Where a value comes from when a recording is repeated.
struct Source {
  enum Kind { kNothing, kArgument, kResult } kind = kNothing;
  size_t index = 0;  // of the argument whose storage has it, or of the result
};

/// A storage that a recording makes.
struct FreshStorage {
  Source value;
  hlo::Layout layout;
  size_t bytes;
};

/// Something that the function returns.
struct Output {
  py::object constant;        // returned as it is, where there is no tensor
  int argument = -1;          // that argument itself
  int argument_storage = -1;  // a view of that argument's storage, or
  int fresh_storage = -1;     // of this one
  hlo::Layout layout;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
};

struct Write {
  size_t argument;
  Source value;
  hlo::Layout layout;
};

/// The words of one random operator, where they start, and what it draws.
struct Draw {
  size_t word;
  int64_t blocks;
};

struct Recording {
  std::vector<ArgumentLayout> layouts;
  ops::CallPtr call;
  std::vector<size_t> inputs;  // parallel to the call's: the argument whose storage has it
  std::vector<uint64_t> words;
  std::vector<Draw> draws;
  std::vector<Write> writes;
  std::vector<FreshStorage> fresh;
  std::vector<Output> outputs;
  bool returns_tuple = true;
};

bool is_plain(const at::Tensor& tensor) {
  return is_tpu(tensor) && tensor.layout() == c10::kStrided && tensor.has_storage() &&
         tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::PrivateUse1) &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch();
}

StorageContent& content_of(const at::Tensor& tensor) {
  return torch_tpu::content_of(*tensor.unsafeGetTensorImpl());
}

bool shares_storage(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

/// The first of `tensors` over the storage of `tensor`, or their number.
size_t storage_of(const at::Tensor& tensor, const std::vector<at::Tensor>& tensors) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const at::Tensor& other) { return shares_storage(other, tensor); });
  return static_cast<size_t>(found - tensors.begin());
}

std::vector<ArgumentLayout> layouts_of(const std::vector<at::Tensor>& tensors) {
  std::vector<ArgumentLayout> layouts;
  for (const at::Tensor& tensor : tensors) {
    const StorageContent& content = content_of(tensor);
    layouts.push_back({layout_of(tensor), tensor.scalar_type(), tensor.is_conj(), tensor.is_neg(),
                       storage_of(tensor, tensors),
                       content.value == nullptr ? std::optional<hlo::Type>() : content.value->type,
                       content.layout, tensor.storage().nbytes()});
  }
  return layouts;
}

bool same(c10::IntArrayRef a, const hlo::Dims& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

/// Whether the tensors lie as they did when they were recorded.
bool lie_as(const std::vector<at::Tensor>& tensors, const std::vector<ArgumentLayout>& layouts) {
  if (tensors.size() != layouts.size()) return false;
  std::vector<const c10::StorageImpl*> storages;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const c10::TensorImpl& tensor = *tensors[i].unsafeGetTensorImpl();
    const ArgumentLayout& layout = layouts[i];
    if (!same(tensor.sizes(), layout.tensor.sizes) || !same(tensor.strides(), layout.tensor.strides) ||
        tensor.storage_offset() != layout.tensor.offset ||
        tensor.dtype() != c10::scalarTypeToTypeMeta(layout.dtype) ||
        tensors[i].is_conj() != layout.is_conjugated || tensors[i].is_neg() != layout.is_negated)
      return false;
    if (layout.storage != i) {
      if (!shares_storage(tensors[i], tensors[layout.storage])) return false;
      continue;
    }
    storages.push_back(tensor.unsafe_storage().unsafeGetStorageImpl());
    const StorageContent& content = torch_tpu::content_of(tensor);
    const bool same_value = content.value == nullptr ? !layout.value : layout.value == content.value->type;
    if (!same_value || content.layout != layout.content || storages.back()->nbytes() != layout.bytes)
      return false;
  }
  std::sort(storages.begin(), storages.end());
  return std::adjacent_find(storages.begin(), storages.end()) == storages.end();
}

/// Makes a Recording of what a function did with its arguments.
class Recorder {
 public:
  Recorder(const std::vector<at::Tensor>& arguments, engine::Queue& queue)
      : arguments_(arguments), queue_(queue), layouts_(layouts_of(arguments)) {
    for (const at::Tensor& argument : arguments) before_.push_back(content_of(argument).value);
    raise_if_error(queue.start_graph());
  }

  /// Nothing where the function cannot be repeated as one call.
  std::optional<Recording> finish(const py::object& returned) {
    auto recorded = queue_.finish_graph();
    if (!recorded.ok()) return std::nullopt;
    recorded_ = std::move(*recorded);
    recording_.layouts = std::move(layouts_);
    recording_.call = recorded_.call;
    recording_.words = recorded_.words;
    const bool is_complete = take_inputs() && take_writes() && take_outputs(returned);
    if (!is_complete) return std::nullopt;
    take_draws();
    return std::move(recording_);
  }

 private:
  /// Where a value comes from; false where neither an argument nor the graph gave it.
  bool find(const TensorPtr& value, Source& source) const {
    if (value == nullptr) return true;
    const auto result = std::find(recorded_.results.begin(), recorded_.results.end(), value.get());
    if (result != recorded_.results.end()) {
      source = {Source::kResult, static_cast<size_t>(result - recorded_.results.begin())};
      return true;
    }
    const auto argument = std::find(before_.begin(), before_.end(), value);
    if (argument == before_.end()) return false;
    source = {Source::kArgument, static_cast<size_t>(argument - before_.begin())};
    return true;
  }

  bool take_inputs() {
    for (const engine::Tensor* input : recorded_.inputs) {
      const auto found = std::find_if(before_.begin(), before_.end(),
                                      [&](const TensorPtr& value) { return value.get() == input; });
      if (input == nullptr || found == before_.end()) return false;
      recording_.inputs.push_back(static_cast<size_t>(found - before_.begin()));
    }
    return true;
  }

  bool take_writes() {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const StorageContent& content = content_of(arguments_[i]);
      const ArgumentLayout& before = recording_.layouts[i];
      // A function that changes more of its arguments than their elements.
      if (layout_of(arguments_[i]) != before.tensor || arguments_[i].storage().nbytes() != before.bytes)
        return false;
      if (before.storage != i || (content.value == before_[i] && content.layout == before.content)) continue;
      Write write{i, {}, content.layout};
      if (!find(content.value, write.value)) return false;
      recording_.writes.push_back(std::move(write));
    }
    return true;
  }

  bool take_outputs(const py::object& returned) {
    recording_.returns_tuple = py::isinstance<py::tuple>(returned);
    if (!recording_.returns_tuple && !py::isinstance<py::list>(returned)) return false;
    for (const py::handle& element : returned) {
      if (!THPVariable_Check(element.ptr())) {
        recording_.outputs.emplace_back().constant = py::reinterpret_borrow<py::object>(element);
        continue;
      }
      if (!take_output(THPVariable_Unpack(element.ptr()))) return false;
    }
    return true;
  }

  bool take_output(const at::Tensor& tensor) {
    Output output;
    output.layout = layout_of(tensor);
    output.dtype = tensor.scalar_type();
    const auto same = std::find_if(arguments_.begin(), arguments_.end(),
                                   [&](const at::Tensor& argument) { return argument.is_same(tensor); });
    if (same != arguments_.end()) {
      output.argument = static_cast<int>(same - arguments_.begin());
    } else if (!is_plain(tensor) || tensor.is_conj() || tensor.is_neg() || tensor.grad_fn() != nullptr) {
      return false;
    } else if (const size_t i = storage_of(tensor, arguments_); i < arguments_.size()) {
      output.argument_storage = static_cast<int>(i);
    } else {
      output.fresh_storage = static_cast<int>(storage_of(tensor, fresh_));
      if (static_cast<size_t>(output.fresh_storage) == fresh_.size()) {
        const StorageContent& content = content_of(tensor);
        FreshStorage storage{{}, content.layout, tensor.storage().nbytes()};
        if (!find(content.value, storage.value)) return false;
        fresh_.push_back(tensor);
        recording_.fresh.push_back(std::move(storage));
      }
    }
    recording_.outputs.push_back(std::move(output));
    return true;
  }

  void take_draws() {
    size_t word = 0;
    for (const ops::Body::Step& step : recording_.call->body->steps) {
      word += static_cast<size_t>(step.call->scalar_words());
      if (!step.call->op->traits.random) continue;
      recording_.draws.push_back({word, step.call->random_blocks});
      word += 2;
    }
  }

  const std::vector<at::Tensor>& arguments_;
  engine::Queue& queue_;
  std::vector<ArgumentLayout> layouts_;
  std::vector<TensorPtr> before_;  // the values of the arguments' storages
  engine::Queue::RecordedGraph recorded_;
  std::vector<at::Tensor> fresh_;
  Recording recording_;
};

class RecordedGraph {
 public:
  explicit RecordedGraph(py::object function) : function_(std::move(function)) {}

  py::object operator()(const py::list& list) {
    std::vector<at::Tensor> arguments;
    const bool is_hopeless = recordings_.empty() && !may_record();
    if (!is_hopeless && engine::mode() == engine::Mode::kFused) arguments = tensors_of(list);
    if (arguments.empty()) return interpret(list);
    for (const Recording& recording : recordings_) {
      if (!lie_as(arguments, recording.layouts)) continue;
      PyList_SetSlice(list.ptr(), 0, PyList_Size(list.ptr()), nullptr);
      return repeat(recording, std::move(arguments));
    }
    if (!may_record()) return interpret(list);
    ++attempts_;
    engine::Queue& queue = queue_of(arguments[0].device().index());
    Recorder recorder(arguments, queue);
    py::object returned;
    try {
      returned = interpret(list);
    } catch (...) {
      (void)queue.finish_graph();
      throw;
    }
    if (auto recording = recorder.finish(returned)) recordings_.push_back(std::move(*recording));
    return returned;
  }

 private:
  bool may_record() const { return attempts_ < kMostAttempts && recordings_.size() < kMostRecordings; }

  py::object interpret(const py::list& list) {
    const py::tuple arguments(list);
    PyList_SetSlice(list.ptr(), 0, PyList_Size(list.ptr()), nullptr);
    return function_(*arguments);
  }

  /// Empty where there are others than plain ones of one device.
  std::vector<at::Tensor> tensors_of(const py::list& list) const {
    std::vector<at::Tensor> tensors;
    for (const py::handle& element : list) {
      if (!THPVariable_Check(element.ptr())) return {};
      const at::Tensor& tensor = THPVariable_Unpack(element.ptr());
      if (!is_plain(tensor) || (!tensors.empty() && tensor.device() != tensors[0].device())) return {};
      tensors.push_back(tensor);
    }
    return tensors;
  }

  static TensorPtr value_of(const Source& source, const std::vector<TensorPtr>& before,
                            const std::vector<TensorPtr>& results) {
    if (source.kind == Source::kNothing) return nullptr;
    return source.kind == Source::kArgument ? before[source.index] : results[source.index];
  }

  static py::object repeat(const Recording& recording, std::vector<at::Tensor> arguments) {
    const int device_index = arguments[0].device().index();
    std::vector<TensorPtr> before;
    for (const at::Tensor& argument : arguments) before.push_back(content_of(argument).value);
    std::vector<TensorPtr> inputs;
    for (const size_t input : recording.inputs) inputs.push_back(before[input]);
    std::vector<uint64_t> words = recording.words;
    for (const Draw& draw : recording.draws)
      std::tie(words[draw.word], words[draw.word + 1]) = draw_random(std::nullopt, device_index, draw.blocks);
    const std::vector<TensorPtr> results =
        value_or_raise(queue_of(device_index).record(recording.call, inputs, words));
    inputs.clear();
    for (const Write& write : recording.writes) {
      StorageContent& content = content_of(arguments[write.argument]);
      content.value = value_of(write.value, before, results);
      content.layout = write.layout;
    }
    std::vector<c10::Storage> storages;
    for (const FreshStorage& fresh : recording.fresh) {
      storages.emplace_back(make_storage(fresh.bytes, device_index));
      StorageContent& content = torch_tpu::content_of(*storages.back().unsafeGetStorageImpl());
      content.value = value_of(fresh.value, before, results);
      content.layout = fresh.layout;
    }
    py::list returned(recording.outputs.size());
    for (size_t i = 0; i < recording.outputs.size(); ++i)
      returned[i] = object_of(recording.outputs[i], arguments, storages);
    return recording.returns_tuple ? py::object(py::tuple(returned)) : py::object(returned);
  }

  static py::object object_of(const Output& output, const std::vector<at::Tensor>& arguments,
                              const std::vector<c10::Storage>& storages) {
    if (output.argument >= 0) return wrapped(arguments[static_cast<size_t>(output.argument)]);
    const bool is_fresh = output.fresh_storage >= 0;
    if (!is_fresh && output.argument_storage < 0) return output.constant;
    const c10::Storage& storage = is_fresh
                                      ? storages[static_cast<size_t>(output.fresh_storage)]
                                      : arguments[static_cast<size_t>(output.argument_storage)].storage();
    const hlo::Layout& layout = output.layout;
    return wrapped(tensor_over(storage, {layout.sizes.data(), layout.sizes.size()},
                               {layout.strides.data(), layout.strides.size()}, layout.offset, output.dtype));
  }
  static py::object wrapped(const at::Tensor& tensor) {
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  }

  const py::object function_;
  std::vector<Recording> recordings_;
  int attempts_ = 0;
};

}  // namespace

void register_graph(py::module_& module) {
  py::class_<RecordedGraph>(module, "RecordedGraph")
      .def(py::init<py::object>())
      .def("__call__", &RecordedGraph::operator());
}

}  // namespace torch_tpu
