// The Python module torch_tpu._C: thin functions over the runtime; python/torch_tpu gives them their
// public names.
#include <ATen/core/Tensor.h>
#include <Python.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>

#include "base/env.h"
#include "base/heap.h"
#include "engine/capture.h"
#include "engine/counters.h"
#include "ops/op.h"
#include "pjrt/discovery.h"
#include "torch/device.h"
#include "torch/error.h"
#include "torch/fallback.h"
#include "torch/generator.h"
#include "torch/graph.h"
#include "torch/process_group.h"
#include "torch/recorded_group.h"
#include "torch/register.h"
#include "torch/trace.h"

namespace py = pybind11;

namespace torch_tpu {
namespace {

py::dict counters_dict() {
  engine::Runtime::await_programs();
  py::dict dict;
  for (const auto& [name, count] : engine::counters().snapshot())
    dict[py::str(name.data(), name.size())] = count;
  return dict;
}

py::dict memory_dict(int device_index) {
  engine::Runtime::await_programs();
  const pjrt::MemoryStatistics& statistics = pjrt::memory_statistics(device_index);
  py::dict dict;
  dict["live_bytes"] = statistics.live_bytes.load();
  dict["peak_bytes"] = statistics.peak_bytes.load();
  dict["live_buffers"] = statistics.live_buffers.load();
  dict["allocations"] = statistics.allocations.load();
  return dict;
}

std::string mode_name(engine::Mode mode) {
  return mode == engine::Mode::kFused ? "fused" : mode == engine::Mode::kStrict ? "strict" : "blocking";
}

void set_mode_name(const std::string& name) {
  if (name == "fused") return engine::set_mode(engine::Mode::kFused);
  if (engine::Runtime::is_created()) {
    // What is pending belongs to the old mode.
    for (int i = 0; i < runtime().device_count(); ++i) raise_if_error(queue_of(i).flush());
  }
  if (name == "strict") return engine::set_mode(engine::Mode::kStrict);
  if (name == "blocking") return engine::set_mode(engine::Mode::kBlocking);
  throw py::value_error("mode must be 'fused', 'strict' or 'blocking', got '" + name + "'");
}

py::dict device_dict(int device_index) {
  engine::Queue& queue = queue_of(device_index);
  const pjrt::Device& device = runtime().client().devices()[device_index];
  py::dict dict;
  dict["kind"] = device.kind;
  dict["platform"] = runtime().client().platform_name();
  dict["plugin"] = runtime().client().api().description();
  dict["memory_bytes"] = queue.memory_limit_bytes();
  return dict;
}

/// None when programs are not kept on disk.
py::object disk_cache_dict() {
  engine::Runtime::await_programs();
  cache::DiskCache* disk = runtime().disk();
  if (disk == nullptr) return py::none();
  const cache::DiskStatistics statistics = disk->statistics();
  const auto [programs, bytes] = disk->usage();
  py::dict dict;
  dict["folder"] = disk->folder().string();
  dict["capacity_bytes"] = disk->capacity_bytes();
  dict["programs"] = programs;
  dict["bytes"] = bytes;
  dict["hits"] = statistics.hits;
  dict["misses"] = statistics.misses;
  dict["read_bytes"] = statistics.read_bytes;
  dict["written_bytes"] = statistics.written_bytes;
  dict["discarded"] = statistics.discarded;
  return dict;
}

py::list environment_table() {
  py::list rows;
  for (const env::Variable* variable : env::table()) {
    rows.append(py::make_tuple(variable->name, variable->default_value, variable->documentation));
  }
  return rows;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const ops::Op* op : ops::all_ops()) names.push_back(op->name);
  return names;
}

PyObject* default_generator_object(int device_index) {
  return THPGenerator_initDefaultGenerator(default_generator(device_index));
}

}  // namespace
}  // namespace torch_tpu

PYBIND11_MODULE(_C, m) {
  using namespace torch_tpu;  // NOLINT: the module is the edge of the namespace
  using no_gil = py::call_guard<py::gil_scoped_release>;
  m.def("build_torch", [] { return TORCH_TPU_TORCH_VERSION; });
  m.def("register_kernels", &register_kernels);
  m.def("registered_operators", &registered_operators);
  m.def("op_names", &op_names);
  m.def("environment_table", &environment_table);
  m.def("configure", [](std::vector<std::string> cpu_plugins, std::string libtpu) {
    engine::Runtime::configure({std::move(cpu_plugins), std::move(libtpu)});
  });
  m.def("init", [] { (void)runtime(); }, no_gil());
  m.def("is_initialized", &engine::Runtime::is_created);
  m.def("is_in_bad_fork", &pjrt::forked_after_use);
  m.def("tpu_is_present", &pjrt::tpu_is_present);
  m.def("device_count", &engine::Runtime::available_devices);
  m.def("current_device", &current_device);
  m.def("set_device", &set_current_device);
  m.def("exchange_device", [](int device_index) {
    const int previous = current_device();
    if (device_index >= 0) set_current_device(device_index);
    return previous;
  });
  m.def(
      "synchronize", [](int device_index) { raise_if_error(queue_of(device_index).synchronize()); },
      no_gil());
  m.def("flush", [](int device_index) { raise_if_error(queue_of(device_index).flush()); }, no_gil());
  m.def("device_description", &device_dict);
  m.def("counters", &counters_dict);
  m.def("memory_statistics", &memory_dict);
  m.def("reset_peak_memory", [](int device_index) {
    engine::Runtime::await_programs();
    pjrt::MemoryStatistics& statistics = pjrt::memory_statistics(device_index);
    statistics.peak_bytes = statistics.live_bytes.load();
  });
  m.def("release_freed", &heap::release_freed, no_gil());
  m.def("program_count", [] {
    engine::Runtime::await_programs();
    return engine::Runtime::is_created() ? runtime().programs().size() : 0;
  });
  m.def("clear_programs", [] {
    engine::Runtime::await_programs();
    if (engine::Runtime::is_created()) runtime().programs().clear();
  });
  m.def("disk_cache", &disk_cache_dict);
  m.def("clear_disk_cache", [] {
    engine::Runtime::await_programs();
    if (cache::DiskCache* disk = runtime().disk()) disk->clear();
  });
  m.def("cache_is_frozen", &engine::cache_is_frozen);
  m.def("set_cache_frozen", [](bool frozen) {
    engine::Runtime::await_programs();
    engine::set_cache_frozen(frozen);
  });
  m.def("start_capture", [] {
    engine::Runtime::await_programs();
    engine::start_capture(pjrt::Platform::kTpu);
  });
  m.def("finish_capture", [] {
    py::list programs;
    engine::Runtime::await_programs();
    for (const std::string& text : engine::finish_capture()) programs.append(py::bytes(text));
    return programs;
  });
  m.def("is_dry_run", &engine::is_dry_run);
  m.def("set_dry_run", [](bool dry) {
    engine::Runtime::await_programs();
    engine::set_dry_run(dry);
  });
  m.def("mode", [] { return mode_name(engine::mode()); });
  m.def("set_mode", &set_mode_name);
  m.def("set_buckets", [](bool uses) {
    const bool before = engine::uses_buckets();
    engine::set_buckets(uses);
    return before;
  });
  register_process_group(m);
  register_recorded_group(m);
  register_trace(m);
  register_graph(m);
  m.def("fallback_allowed", &fallback_allowed);
  m.def("set_fallback_allowed", &set_fallback_allowed);
  m.def("default_generator", [](int device_index) {
    return py::reinterpret_steal<py::object>(default_generator_object(device_index));
  });
}
