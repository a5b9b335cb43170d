#include "ops/promotion.h"

#include <iterator>
#include <sstream>

#include "tests/check.h"

using namespace torch_tpu;
using namespace torch_tpu::ops;

namespace {

/// Answers of torch.promote_types; "-" where torch refuses.
constexpr const char* kTable = R"(
i1   i1   i8   i16  i32  i64  u8   -    -    -    f16  bf16 f32  f64  c64  c128
i8   i8   i8   i16  i32  i64  i16  -    -    -    f16  bf16 f32  f64  c64  c128
i16  i16  i16  i16  i32  i64  i16  -    -    -    f16  bf16 f32  f64  c64  c128
i32  i32  i32  i32  i32  i64  i32  -    -    -    f16  bf16 f32  f64  c64  c128
i64  i64  i64  i64  i64  i64  i64  -    -    -    f16  bf16 f32  f64  c64  c128
u8   u8   i16  i16  i32  i64  u8   -    -    -    f16  bf16 f32  f64  c64  c128
u16  -    -    -    -    -    -    u16  -    -    f16  bf16 f32  f64  -    -
u32  -    -    -    -    -    -    -    u32  -    f16  bf16 f32  f64  -    -
u64  -    -    -    -    -    -    -    -    u64  f16  bf16 f32  f64  -    -
f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64  c64  c128
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64  c64  c128
f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  c64  c128
f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  c64  c64  c64  c64  c64  c64  -    -    -    c64  c64  c64  c128 c64  c128
c128 c128 c128 c128 c128 c128 c128 -    -    -    c128 c128 c128 c128 c128 c128
)";

constexpr DType kOrder[] = {DType::kPred, DType::kS8,  DType::kS16, DType::kS32, DType::kS64,
                            DType::kU8,   DType::kU16, DType::kU32, DType::kU64, DType::kF16,
                            DType::kBF16, DType::kF32, DType::kF64, DType::kC64, DType::kC128};
constexpr const char* kShort[] = {"i1",  "i8",  "i16",  "i32", "i64", "u8",  "u16", "u32",
                                  "u64", "f16", "bf16", "f32", "f64", "c64", "c128"};

std::string short_name(DType dtype) {
  for (size_t i = 0; i < std::size(kOrder); ++i) {
    if (kOrder[i] == dtype) return kShort[i];
  }
  return "?";
}

TEST(pairs_of_types) {
  std::istringstream table(kTable);
  int checked = 0;
  for (size_t row = 0; row < std::size(kOrder); ++row) {
    std::string entry;
    table >> entry;
    CHECK_EQ(entry, std::string(kShort[row]));
    for (size_t column = 0; column < std::size(kOrder); ++column) {
      table >> entry;
      if (entry == "-") continue;
      ++checked;
      const std::string pair = short_name(kOrder[row]) + " and " + short_name(kOrder[column]) + " give ";
      CHECK_EQ(pair + short_name(promote_types(kOrder[row], kOrder[column])), pair + entry);
    }
  }
  CHECK_EQ(checked, 15 * 15 - 2 * 6 * 3 - 6 - 2 * 2 * 3);
  CHECK_EQ(promote_types(DType::kF8E5M2, DType::kF8E5M2), DType::kF8E5M2);
}

// An operand: a dtype and whether it has dimensions, none, or is a Python number.
enum class Kind { kDimensioned, kZeroDim, kNumber };
struct Operand {
  DType dtype;
  Kind kind;
};
constexpr Operand dimensioned(DType dtype) { return {dtype, Kind::kDimensioned}; }
constexpr Operand zero_dim(DType dtype) { return {dtype, Kind::kZeroDim}; }
constexpr Operand kBool{DType::kPred, Kind::kNumber};
constexpr Operand kInt{DType::kS64, Kind::kNumber};
constexpr Operand kFloat{DType::kF64, Kind::kNumber};
constexpr Operand kComplex{DType::kC128, Kind::kNumber};

DType type_of(std::initializer_list<Operand> operands, DType default_dtype = DType::kF32) {
  Builder builder;
  Call call;
  call.default_dtype = default_dtype;
  const Values none;
  const RunTimeNumbers numbers{};
  const Lowering op(builder, call, none, numbers);
  Values values;
  for (const Operand& operand : operands) {
    values.push_back(
        builder.parameter({operand.dtype, operand.kind == Kind::kDimensioned ? Dims{2} : Dims{}}));
    values.back().wrapped = operand.kind == Kind::kNumber;
  }
  return result_type(op, values);
}

TEST(dimensioned_tensors_outrank) {
  using enum DType;
  CHECK_EQ(type_of({dimensioned(kF16), zero_dim(kF64)}), kF16);
  CHECK_EQ(type_of({zero_dim(kF32), dimensioned(kF64)}), kF64);
  CHECK_EQ(type_of({dimensioned(kS8), zero_dim(kS64)}), kS8);
  CHECK_EQ(type_of({zero_dim(kS8), zero_dim(kS64)}), kS64);
  CHECK_EQ(type_of({dimensioned(kF16), dimensioned(kBF16)}), kF32);
  // A higher category wins all the same.
  CHECK_EQ(type_of({dimensioned(kS32), zero_dim(kF64)}), kF64);
  CHECK_EQ(type_of({dimensioned(kBF16), zero_dim(kC128)}), kC64);
  CHECK_EQ(type_of({dimensioned(kF32), zero_dim(kC64)}), kC64);
  CHECK_EQ(type_of({dimensioned(kF64), zero_dim(kC64)}), kC128);
  CHECK_EQ(type_of({dimensioned(kF16), dimensioned(kC64)}), kC64);
}

TEST(python_numbers) {
  using enum DType;
  CHECK_EQ(type_of({dimensioned(kU8), kInt}), kU8);
  CHECK_EQ(type_of({dimensioned(kPred), kInt}), kS64);
  CHECK_EQ(type_of({dimensioned(kPred), kBool}), kPred);
  CHECK_EQ(type_of({dimensioned(kS32), kFloat}), kF32);
  CHECK_EQ(type_of({dimensioned(kS32), kFloat}, kF64), kF64);
  CHECK_EQ(type_of({dimensioned(kF16), kFloat}), kF16);
  CHECK_EQ(type_of({zero_dim(kF16), kFloat}), kF16);
  CHECK_EQ(type_of({zero_dim(kS64), kFloat}), kF32);
  CHECK_EQ(type_of({dimensioned(kS64), kComplex}), kC64);
  CHECK_EQ(type_of({dimensioned(kS64), kComplex}, kF64), kC128);
  CHECK_EQ(type_of({dimensioned(kF64), kComplex}), kC128);
  CHECK_EQ(type_of({dimensioned(kC64), kFloat}), kC64);
  CHECK_EQ(type_of({kInt, kFloat}), kF32);
  CHECK_EQ(type_of({kBool, kInt}), kS64);
}

TEST(conversions) {
  Builder builder;
  Call call;
  const Values none;
  const RunTimeNumbers numbers{};
  const Lowering op(builder, call, none, numbers);
  const Value whole = builder.parameter({DType::kS32, {2}});
  const Value half = builder.parameter({DType::kBF16, {2}});
  const auto [a, b] = promote(op, whole, half);
  CHECK_EQ(a.dtype(), DType::kBF16);
  CHECK_EQ(b.name, half.name);
  CHECK_EQ(to_inexact(op, whole).dtype(), DType::kF32);
  CHECK_EQ(to_inexact(op, half).dtype(), DType::kBF16);
  CHECK_EQ(to_compute(half).dtype(), DType::kF32);
  CHECK_EQ(compute_dtype(DType::kF8E4M3FN), DType::kF32);
  CHECK_EQ(compute_dtype(DType::kF64), DType::kF64);
  CHECK_EQ(compute_dtype(DType::kS8), DType::kS8);
}

}  // namespace
