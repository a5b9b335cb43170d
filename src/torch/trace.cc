#include "torch/trace.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <Python.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/function.h>

#include "engine/history.h"
#include "engine/runtime.h"
#include "engine/trace.h"
#include "ops/op.h"
#include "torch/device.h"
#include "torch/error.h"

namespace py = pybind11;

namespace torch_tpu {
namespace {

/// The folders of torch and of this package, with a slash at the end: their lines are not the user's.
const std::vector<std::string>& library_folders() {
  static const auto& folders = *new std::vector<std::string>([] {
    std::vector<std::string> found;
    for (const char* name : {"torch", "torch_tpu"}) {
      const std::string file = py::str(py::module_::import(name).attr("__file__"));
      found.push_back(file.substr(0, file.rfind('/') + 1));
    }
    return found;
  }());
  return folders;
}

bool is_library(const std::string& file) {
  // Dynamo's graphs and frozen modules have no file.
  if (file.starts_with("<eval_with_key>") || file.starts_with("<frozen ")) return true;
  for (const std::string& folder : library_folders()) {
    if (file.starts_with(folder)) return true;
  }
  return false;
}

/// The innermost Python frame outside of torch, as "file:line". On a thread of the autograd engine, where
/// there is none: the step of the backward pass.
std::string python_line() {
  if (!Py_IsInitialized()) return "";
  const py::gil_scoped_acquire gil;
  auto frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    const std::string file = py::str(code.attr("co_filename"));
    if (!is_library(file)) return file + ":" + std::to_string(PyFrame_GetLineNumber(raw));
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  const auto node = torch::autograd::get_current_node();
  return node == nullptr ? "" : "backward (" + node->name() + ")";
}

std::string argument_name(const std::string& op, int position) {
  const size_t end_of_name = op.find('.');
  const std::string overload = end_of_name == std::string::npos ? "" : op.substr(end_of_name + 1);
  const auto schema = c10::Dispatcher::singleton().findSchema({op.substr(0, end_of_name), overload});
  if (!schema) return "";
  const auto& arguments = schema->schema().arguments();
  return static_cast<size_t>(position) < arguments.size() ? arguments[position].name() : "";
}

const char* name_of(engine::Cause cause) {
  switch (cause) {
    case engine::Cause::kHostRead:
      return "host read";
    case engine::Cause::kSynchronize:
      return "synchronize";
    case engine::Cause::kFlush:
      return "flush";
    case engine::Cause::kMode:
      return "mode";
    case engine::Cause::kFullWindow:
      return "full window";
    case engine::Cause::kRepetition:
      return "repetition";
    case engine::Cause::kByteLimit:
      return "byte limit";
    case engine::Cause::kGraph:
      return "graph";
  }
  return "";
}

const char* name_of(engine::Origin origin) {
  return origin == engine::Origin::kMemory ? "memory" : origin == engine::Origin::kDisk ? "disk" : "compiled";
}

py::dict dict_of(const engine::Run& run) {
  py::list operators;
  for (size_t i = 0; i < run.calls.size(); ++i)
    operators.append(py::make_tuple(run.calls[i]->op->name, run.sources[i]));
  py::dict dict;
  dict["operators"] = operators;
  dict["unused"] = run.unused;
  dict["device"] = run.device_index;
  dict["cause"] = name_of(run.ending.cause);
  dict["line"] = run.ending.source;
  dict["origin"] = name_of(run.origin);
  dict["bound"] = run.bound;
  dict["difference"] = run.difference;
  dict["prepare_ns"] = run.prepare_ns;
  dict["execute_ns"] = run.execute_ns;
  return dict;
}

std::unique_ptr<engine::Trace>& current_trace() {
  static auto& instance = *new std::unique_ptr<engine::Trace>;
  return instance;
}

void start_trace() {
  if (current_trace() != nullptr) throw py::value_error("a trace is on already");
  engine::Runtime::await_programs();
  current_trace() = std::make_unique<engine::Trace>(/*with_sources=*/true);
}

py::list finish_trace() {
  engine::Runtime::await_programs();
  py::list runs;
  if (current_trace() == nullptr) return runs;
  for (const engine::Run& run : current_trace()->take()) runs.append(dict_of(run));
  current_trace().reset();
  return runs;
}

}  // namespace

void register_trace(py::module_& module) {
  engine::set_source_line(&python_line);
  engine::set_argument_name(&argument_name);
  module.def("start_trace", &start_trace);
  module.def("finish_trace", &finish_trace);
}

}  // namespace torch_tpu
