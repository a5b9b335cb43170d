// Functions of one argument that keep zero: they change the values of a sparse tensor and nothing else. The
// at::native ones are dense operators on the values.
#include <torch/library.h>

#include "torch/sparse.h"

namespace at::native {

// Declared here: the 30 headers that declare them cost seconds each.
#define DECLARE(name)                                 \
  TORCH_API Tensor name##_sparse(const Tensor& self); \
  TORCH_API Tensor name##_sparse_csr(const Tensor& self)
#define DECLARE_OUT(name)                                               \
  DECLARE(name);                                                        \
  TORCH_API Tensor& name##_sparse_out(const Tensor& self, Tensor& out); \
  TORCH_API Tensor& name##_sparse_csr_out(const Tensor& self, Tensor& out)
#define DECLARE_IN_PLACE(name)                    \
  TORCH_API Tensor& name##_sparse_(Tensor& self); \
  TORCH_API Tensor& name##_sparse_csr_(Tensor& self)

#define FOR_ALL_FORMS(function)                                                                        \
  function(abs) function(asin) function(asinh) function(atan) function(atanh) function(ceil)           \
      function(deg2rad) function(erf) function(erfinv) function(expm1) function(floor) function(frac)  \
          function(log1p) function(rad2deg) function(round) function(sgn) function(sign) function(sin) \
              function(sinh) function(sqrt) function(tan) function(tanh) function(trunc)
#define FOR_PREDICATES(function) function(isneginf) function(isposinf) function(signbit)

#define DECLARE_ALL_FORMS(name) \
  DECLARE_OUT(name);            \
  DECLARE_IN_PLACE(name);
#define DECLARE_PREDICATE(name) DECLARE_OUT(name);
FOR_ALL_FORMS(DECLARE_ALL_FORMS)
FOR_PREDICATES(DECLARE_PREDICATE)
DECLARE(isinf);
DECLARE(isnan);
DECLARE(neg);
DECLARE(relu);
DECLARE_IN_PLACE(neg);
DECLARE_IN_PLACE(relu);
TORCH_API Tensor& neg_out_sparse(const Tensor& self, Tensor& out);
TORCH_API Tensor& neg_sparse_csr_out(const Tensor& self, Tensor& out);
TORCH_API Tensor angle_sparse_csr(const Tensor& self);
TORCH_API Tensor& angle_sparse_csr_out(const Tensor& self, Tensor& out);
TORCH_API Tensor& conj_physical_out_sparse(const Tensor& self, Tensor& out);
TORCH_API Tensor conj_physical_sparse_csr(const Tensor& self);
TORCH_API Tensor& conj_physical_sparse_csr_out(const Tensor& self, Tensor& out);
TORCH_API Tensor& conj_physical_sparse_csr_(Tensor& self);
TORCH_API Tensor nan_to_num_sparse(const Tensor& self, std::optional<double> nan,
                                   std::optional<double> posinf, std::optional<double> neginf);
TORCH_API Tensor& nan_to_num_sparse_(Tensor& self, std::optional<double> nan, std::optional<double> posinf,
                                     std::optional<double> neginf);
TORCH_API Tensor& nan_to_num_sparse_out(const Tensor& self, std::optional<double> nan,
                                        std::optional<double> posinf, std::optional<double> neginf,
                                        Tensor& out);

}  // namespace at::native

namespace torch_tpu {

namespace native = at::native;

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
#define REGISTER_OUT(name)                           \
  m.impl(#name, on_device<native::name##_sparse>()); \
  m.impl(#name ".out", on_device<native::name##_sparse_out>());
#define REGISTER_ALL_FORMS(name) \
  REGISTER_OUT(name)             \
  m.impl(#name "_", on_device<native::name##_sparse_>());
  FOR_ALL_FORMS(REGISTER_ALL_FORMS)
  FOR_PREDICATES(REGISTER_OUT)
#undef REGISTER_OUT
#undef REGISTER_ALL_FORMS
  m.impl("conj_physical.out", on_device<native::conj_physical_out_sparse>());
  m.impl("isinf", on_device<native::isinf_sparse>());
  m.impl("isnan", on_device<native::isnan_sparse>());
  m.impl("nan_to_num", on_device<native::nan_to_num_sparse>());
  m.impl("nan_to_num.out", on_device<native::nan_to_num_sparse_out>());
  m.impl("nan_to_num_", on_device<native::nan_to_num_sparse_>());
  m.impl("neg", on_device<native::neg_sparse>());
  m.impl("neg.out", on_device<native::neg_out_sparse>());
  m.impl("neg_", on_device<native::neg_sparse_>());
  m.impl("relu", on_device<native::relu_sparse>());
  m.impl("relu_", on_device<native::relu_sparse_>());
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
#define REGISTER_OUT(name)                               \
  m.impl(#name, on_device<native::name##_sparse_csr>()); \
  m.impl(#name ".out", on_device<native::name##_sparse_csr_out>());
#define REGISTER_ALL_FORMS(name) \
  REGISTER_OUT(name)             \
  m.impl(#name "_", on_device<native::name##_sparse_csr_>());
  FOR_ALL_FORMS(REGISTER_ALL_FORMS)
  FOR_PREDICATES(REGISTER_OUT)
#undef REGISTER_OUT
#undef REGISTER_ALL_FORMS
  m.impl("_conj_physical", on_device<native::conj_physical_sparse_csr>());
  m.impl("angle", on_device<native::angle_sparse_csr>());
  m.impl("angle.out", on_device<native::angle_sparse_csr_out>());
  m.impl("conj_physical.out", on_device<native::conj_physical_sparse_csr_out>());
  m.impl("conj_physical_", on_device<native::conj_physical_sparse_csr_>());
  m.impl("isinf", on_device<native::isinf_sparse_csr>());
  m.impl("isnan", on_device<native::isnan_sparse_csr>());
  m.impl("neg", on_device<native::neg_sparse_csr>());
  m.impl("neg.out", on_device<native::neg_sparse_csr_out>());
  m.impl("neg_", on_device<native::neg_sparse_csr_>());
  m.impl("relu", on_device<native::relu_sparse_csr>());
  m.impl("relu_", on_device<native::relu_sparse_csr_>());
}

}  // namespace torch_tpu
