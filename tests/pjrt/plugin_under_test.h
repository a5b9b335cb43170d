// The plugins that the tests of this folder run on.
#pragma once

#include <dlfcn.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "pjrt/client.h"
#include "tests/check.h"

namespace torch_tpu::testing {

/// Sets an environment variable for the life of the object.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), /*overwrite=*/1);
  }
  ~ScopedVariable() { unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

inline std::string path_in(const char* variable) {
  const char* value = getenv(variable);
  return value != nullptr ? value : "";
}

inline std::string fake_plugin() { return path_in("TORCH_TPU_FAKE_PLUGIN"); }
/// A real XLA:CPU plugin, or empty.
inline std::string real_plugin() { return path_in("TORCH_TPU_TEST_PLUGIN"); }

/// A counter that the fake plugin exports.
inline int64_t fake_counter(const char* name) {
  void* library = dlopen(fake_plugin().c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return -1;
  const auto counter = reinterpret_cast<int64_t (*)()>(dlsym(library, name));
  dlclose(library);
  return counter != nullptr ? counter() : -1;
}

inline std::string fake_last_options() {
  void* library = dlopen(fake_plugin().c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return "";
  const auto get = reinterpret_cast<const char* (*)(size_t*)>(dlsym(library, "fake_plugin_last_options"));
  dlclose(library);
  size_t size = 0;
  const char* bytes = get(&size);
  return {bytes, size};
}

inline Result<std::shared_ptr<pjrt::Client>> make_client(const std::string& plugin, int devices) {
  ASSIGN_OR_RETURN(auto api, pjrt::Api::load(plugin));
  return pjrt::Client::create(std::move(api), devices);
}

inline hlo::Type f32(std::initializer_list<int64_t> dims) { return {hlo::DType::kF32, hlo::Dims(dims)}; }

}  // namespace torch_tpu::testing
