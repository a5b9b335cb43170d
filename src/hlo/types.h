// Element types, dimensions and tensor types as StableHLO knows them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/inline_vector.h"

namespace torch_tpu::hlo {

/// Element types. The order is ours alone; src/pjrt and src/torch translate.
enum class DType : uint8_t {
  kInvalid,
  kPred,
  kS8,
  kS16,
  kS32,
  kS64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF8E4M3FN,
  kF8E5M2,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kC128,
};

/// Bytes of one element in a dense buffer (a pred takes one).
int64_t byte_size(DType type);
/// The StableHLO spelling: "f32", "i1", "ui8", "complex<f32>".
std::string_view name(DType type);
bool is_float(DType type);
bool is_complex(DType type);
/// Signed and unsigned integers, without pred.
bool is_integer(DType type);
bool is_unsigned(DType type);
/// Floating or complex.
inline bool is_inexact(DType type) { return is_float(type) || is_complex(type); }
/// f32 for c64, f64 for c128, the type itself otherwise.
DType real_type(DType type);
/// c64 for types up to f32, c128 for f64.
DType complex_type(DType type);
/// Bits of the mantissa, for the choice of computation types; 0 for integers.
int width_bits(DType type);

using Dims = InlineVector<int64_t, 6>;

/// The number of elements of a dense tensor of these dimensions; 1 for none.
int64_t element_count(std::span<const int64_t> dims);
/// Row-major strides, in elements.
Dims contiguous_strides(std::span<const int64_t> dims);

/// A ranked tensor type without layout: dims in elements, outermost first.
struct Type {
  DType dtype = DType::kInvalid;
  Dims dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t elements() const { return element_count(dims); }
  int64_t bytes() const { return elements() * byte_size(dtype); }
  /// "tensor<2x3xf32>"
  std::string text() const;
  bool operator==(const Type&) const = default;
  void append_to(Hash128& hash) const {
    hash.append(static_cast<uint64_t>(dtype) << 32 | dims.size());
    for (const int64_t size : dims) hash.append(static_cast<uint64_t>(size));
  }
};

}  // namespace torch_tpu::hlo
