#include "torch/dtype.h"

#include "torch/error.h"

namespace torch_tpu {
namespace {

using c10::ScalarType;
using hlo::DType;

constexpr std::pair<ScalarType, DType> kTable[] = {
    {ScalarType::Bool, DType::kPred},          {ScalarType::Char, DType::kS8},
    {ScalarType::Short, DType::kS16},          {ScalarType::Int, DType::kS32},
    {ScalarType::Long, DType::kS64},           {ScalarType::Byte, DType::kU8},
    {ScalarType::UInt16, DType::kU16},         {ScalarType::UInt32, DType::kU32},
    {ScalarType::UInt64, DType::kU64},         {ScalarType::Float8_e4m3fn, DType::kF8E4M3FN},
    {ScalarType::Float8_e5m2, DType::kF8E5M2}, {ScalarType::Half, DType::kF16},
    {ScalarType::BFloat16, DType::kBF16},      {ScalarType::Float, DType::kF32},
    {ScalarType::Double, DType::kF64},         {ScalarType::ComplexFloat, DType::kC64},
    {ScalarType::ComplexDouble, DType::kC128},
};

}  // namespace

DType to_hlo(ScalarType type) {
  for (const auto& [scalar_type, dtype] : kTable) {
    if (scalar_type == type) return dtype;
  }
  raise({Code::kTypeError, std::string("dtype ") + c10::toString(type) + " does not exist on tpu"});
}

ScalarType to_scalar_type(DType dtype) {
  for (const auto& [scalar_type, candidate] : kTable) {
    if (candidate == dtype) return scalar_type;
  }
  raise(internal_error("a value without a dtype reached torch"));
}

}  // namespace torch_tpu
