#include "torch/host_kernel_part.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "torch/dtype.h"

namespace torch_tpu {
namespace {

/// While it lives, MKL and OpenMP compute what this thread asks for on this thread: others work on other
/// parts, or for the plugin.
class OneThread {
 public:
  OneThread() : mkl_before_(set_mkl != nullptr ? set_mkl(1) : 0) {
    if (set_openmp == nullptr || get_openmp == nullptr) return;
    openmp_before_ = get_openmp();
    set_openmp(1);
  }
  ~OneThread() {
    if (set_mkl != nullptr) set_mkl(mkl_before_);
    if (openmp_before_ > 0) set_openmp(openmp_before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  // Null where torch computes with other libraries.
  static int (*const set_mkl)(int);
  static void (*const set_openmp)(int);
  static int (*const get_openmp)();
  const int mkl_before_;
  int openmp_before_ = 0;
};

template <class Function>
Function* symbol(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

int (*const OneThread::set_mkl)(int) = symbol<int(int)>("MKL_Set_Num_Threads_Local");
void (*const OneThread::set_openmp)(int) = symbol<void(int)>("omp_set_num_threads");
int (*const OneThread::get_openmp)() = symbol<int()>("omp_get_max_threads");

}  // namespace

at::Tensor tensor_over(const pjrt::HostArray& array) {
  const hlo::Dims& dims = array.type.dims;
  return at::from_blob(array.data, {dims.data(), dims.size()}, to_scalar_type(array.type.dtype));
}

Status run_torch_parts(const pjrt::HostCall& call, int64_t size, int64_t wanted, int64_t step,
                       const std::function<void(int64_t, int64_t)>& part) {
  const int64_t length = ((size + wanted - 1) / wanted + step - 1) / step * step;
  std::exception_ptr error;
  std::mutex mutex;
  call.run_parts((size + length - 1) / length, [&](int64_t i) {
    try {
      const c10::InferenceMode inference;
      const OneThread one_thread;
      part(i * length, std::min(length, size - i * length));
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
  return {};
}

}  // namespace torch_tpu
