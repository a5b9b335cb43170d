#include "hlo/types.h"

#include <array>

namespace torch_tpu::hlo {
namespace {

enum class Kind : uint8_t { kNone, kPred, kSigned, kUnsigned, kFloat, kComplex };

struct Description {
  std::string_view name;
  int64_t bytes;
  Kind kind;
  int mantissa_bits;
};

constexpr std::array<Description, 18> kDescriptions{{
    {"invalid", 0, Kind::kNone, 0},
    {"i1", 1, Kind::kPred, 0},
    {"i8", 1, Kind::kSigned, 0},
    {"i16", 2, Kind::kSigned, 0},
    {"i32", 4, Kind::kSigned, 0},
    {"i64", 8, Kind::kSigned, 0},
    {"ui8", 1, Kind::kUnsigned, 0},
    {"ui16", 2, Kind::kUnsigned, 0},
    {"ui32", 4, Kind::kUnsigned, 0},
    {"ui64", 8, Kind::kUnsigned, 0},
    {"f8E4M3FN", 1, Kind::kFloat, 3},
    {"f8E5M2", 1, Kind::kFloat, 2},
    {"f16", 2, Kind::kFloat, 10},
    {"bf16", 2, Kind::kFloat, 7},
    {"f32", 4, Kind::kFloat, 23},
    {"f64", 8, Kind::kFloat, 52},
    {"complex<f32>", 8, Kind::kComplex, 23},
    {"complex<f64>", 16, Kind::kComplex, 52},
}};

const Description& describe(DType type) { return kDescriptions[static_cast<size_t>(type)]; }

}  // namespace

int64_t byte_size(DType type) { return describe(type).bytes; }
std::string_view name(DType type) { return describe(type).name; }
bool is_float(DType type) { return describe(type).kind == Kind::kFloat; }
bool is_complex(DType type) { return describe(type).kind == Kind::kComplex; }
bool is_integer(DType type) {
  return describe(type).kind == Kind::kSigned || describe(type).kind == Kind::kUnsigned;
}
bool is_unsigned(DType type) { return describe(type).kind == Kind::kUnsigned; }
DType real_type(DType type) {
  return type == DType::kC64 ? DType::kF32 : type == DType::kC128 ? DType::kF64 : type;
}
DType complex_type(DType type) {
  return type == DType::kF64 || type == DType::kC128 ? DType::kC128 : DType::kC64;
}
int width_bits(DType type) { return describe(type).mantissa_bits; }

int64_t element_count(std::span<const int64_t> dims) {
  int64_t count = 1;
  for (const int64_t size : dims) count *= size;
  return count;
}

Dims contiguous_strides(std::span<const int64_t> dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i] > 0 ? dims[i] : 1;
  }
  return strides;
}

std::string Type::text() const {
  std::string text = "tensor<";
  for (const int64_t size : dims) {
    text += std::to_string(size);
    text += 'x';
  }
  text += name(dtype);
  text += '>';
  return text;
}

}  // namespace torch_tpu::hlo
