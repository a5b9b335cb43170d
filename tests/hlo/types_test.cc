#include "hlo/types.h"

#include <iterator>
#include <unordered_set>

#include "tests/check.h"

using namespace torch_tpu;
using namespace torch_tpu::hlo;

namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  char kind;  // p: pred, s: signed, u: unsigned, f: float, c: complex
  int mantissa;
};

constexpr Row kRows[] = {
    {DType::kPred, "i1", 1, 'p', 0},
    {DType::kS8, "i8", 1, 's', 0},
    {DType::kS16, "i16", 2, 's', 0},
    {DType::kS32, "i32", 4, 's', 0},
    {DType::kS64, "i64", 8, 's', 0},
    {DType::kU8, "ui8", 1, 'u', 0},
    {DType::kU16, "ui16", 2, 'u', 0},
    {DType::kU32, "ui32", 4, 'u', 0},
    {DType::kU64, "ui64", 8, 'u', 0},
    {DType::kF8E4M3FN, "f8E4M3FN", 1, 'f', 3},
    {DType::kF8E5M2, "f8E5M2", 1, 'f', 2},
    {DType::kF16, "f16", 2, 'f', 10},
    {DType::kBF16, "bf16", 2, 'f', 7},
    {DType::kF32, "f32", 4, 'f', 23},
    {DType::kF64, "f64", 8, 'f', 52},
    {DType::kC64, "complex<f32>", 8, 'c', 23},
    {DType::kC128, "complex<f64>", 16, 'c', 52},
};

TEST(element_types) {
  CHECK_EQ(std::size(kRows), static_cast<size_t>(DType::kC128));
  for (const Row& row : kRows) {
    CHECK_EQ(name(row.dtype), row.name);
    CHECK_EQ(byte_size(row.dtype), row.bytes);
    CHECK_EQ(is_integer(row.dtype), row.kind == 's' || row.kind == 'u');
    CHECK_EQ(is_unsigned(row.dtype), row.kind == 'u');
    CHECK_EQ(is_float(row.dtype), row.kind == 'f');
    CHECK_EQ(is_complex(row.dtype), row.kind == 'c');
    CHECK_EQ(is_inexact(row.dtype), row.kind == 'f' || row.kind == 'c');
    CHECK_EQ(width_bits(row.dtype), row.mantissa);
  }
}

TEST(parts_of_complex_types) {
  CHECK_EQ(real_type(DType::kC64), DType::kF32);
  CHECK_EQ(real_type(DType::kC128), DType::kF64);
  CHECK_EQ(real_type(DType::kS8), DType::kS8);
  CHECK_EQ(complex_type(DType::kF32), DType::kC64);
  CHECK_EQ(complex_type(DType::kBF16), DType::kC64);
  CHECK_EQ(complex_type(DType::kF64), DType::kC128);
  CHECK_EQ(complex_type(DType::kC128), DType::kC128);
}

TEST(tensor_types) {
  const Type matrix{DType::kF32, {2, 3}};
  CHECK_EQ(matrix.text(), std::string("tensor<2x3xf32>"));
  CHECK_EQ(matrix.rank(), 2);
  CHECK_EQ(matrix.elements(), 6);
  CHECK_EQ(matrix.bytes(), 24);
  const Type scalar{DType::kC128, {}};
  CHECK_EQ(scalar.text(), std::string("tensor<complex<f64>>"));
  CHECK_EQ(scalar.elements(), 1);
  CHECK_EQ(scalar.bytes(), 16);
  const Type empty{DType::kPred, {4, 0, 2}};
  CHECK_EQ(empty.text(), std::string("tensor<4x0x2xi1>"));
  CHECK_EQ(empty.bytes(), 0);
  CHECK(matrix == (Type{DType::kF32, {2, 3}}));
  CHECK(!(matrix == (Type{DType::kS32, {2, 3}})));
  CHECK(!(matrix == (Type{DType::kF32, {3, 2}})));
}

TEST(row_major_strides) {
  CHECK(contiguous_strides(Dims{}) == Dims{});
  CHECK(contiguous_strides(Dims{5}) == Dims{1});
  CHECK(contiguous_strides(Dims{2, 3, 4}) == (Dims{12, 4, 1}));
  // As torch counts them: a dimension without elements counts as one.
  CHECK(contiguous_strides(Dims{2, 0, 4}) == (Dims{4, 4, 1}));
}

TEST(type_hashes) {
  std::unordered_set<Hash128> hashes;
  size_t count = 0;
  for (const Row& row : kRows) {
    for (const Dims& dims : {Dims{}, Dims{1}, Dims{1, 1}, Dims{2, 3}, Dims{3, 2}, Dims{6}, Dims{0}}) {
      Hash128 hash;
      Type{row.dtype, dims}.append_to(hash);
      hashes.insert(hash);
      ++count;
    }
  }
  CHECK_EQ(hashes.size(), count);
}

}  // namespace
