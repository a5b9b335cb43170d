// Operators that make tensors from numbers alone: ranges, identity matrices, triangle indices.
#include <cmath>

#include "ops/indexing.h"
#include "ops/pointwise.h"

namespace torch_tpu::ops {

Value rounded(const Value& x, DType dtype) {
  if (dtype != DType::kF16 && dtype != DType::kBF16) return x;
  const std::string bits = dtype == DType::kF16 ? "exponent_bits = 5 : i32, mantissa_bits = 10 : i32"
                                                : "exponent_bits = 8 : i32, mantissa_bits = 7 : i32";
  return x.builder->emit_one("stablehlo.reduce_precision", {x}, x.type, bits);
}

using hlo::Compare;

// Spaces from both ends to the middle, so that both ends are exact, as ATen's linspace kernel does; that
// also rounds each step to the result's dtype.
Value spaced(const Value& start, const Value& end, int64_t steps, DType dtype) {
  Builder& builder = *start.builder;
  const Type type{start.dtype(), {steps}};
  if (steps <= 1) return broadcast_to(start, type.dims);
  const auto round = [&](const Value& x) { return rounded(x, dtype); };
  const Value intervals = round(builder.splat(steps - 1, start.type));
  const Value step = round(round(end - start) / opaque(intervals));
  const Type real{hlo::real_type(type.dtype), type.dims};
  const Value place = builder.iota(real, 0);
  const Value left = compare(Compare::kLt, place, static_cast<double>(steps / 2));
  const Value count = select(left, place, static_cast<double>(steps - 1) - place);
  const Value walk = round(step * round(hlo::convert(count, type.dtype)));
  // The choice between the product and its sum keeps compilers from rounding both at once.
  return select(left, start, end) + select(left, walk, -walk);
}

namespace {

// start + step * i, computed in f32 for the small floats. The numbers are exact integers where the
// result is one.
Value range(Lowering& op, int64_t count, DType dtype) {
  Builder& builder = op.builder();
  const DType compute = compute_dtype(dtype);
  const auto number = [&](int i) {
    if (const auto* integer = std::get_if<int64_t>(&op.call().args[i])) {
      return builder.splat(*integer, {compute, {}});
    }
    const double value = op.constant(i);
    return builder.splat(hlo::is_integer(compute) ? std::trunc(value) : value, {compute, {}});
  };
  Value result = builder.iota({compute, {count}}, 0);
  if (op.constant(2) != 1.0) result = result * number(2);
  if (op.constant(0) != 0.0) result = result + number(0);
  return hlo::convert(result, dtype);
}

// A bound as an integer, as ATen truncates it for integer results.
int64_t truncated(Lowering& op, int i) {
  if (const auto* integer = std::get_if<int64_t>(&op.call().args[i])) return *integer;
  return static_cast<int64_t>(op.constant(i));
}

}  // namespace

OP("aten::arange.start_out", .structural = {0, 1, 2}, .keeps_out_shape = true) {
  const DType dtype = *op.dtype(3);
  double count;
  if (dtype == DType::kS64) {
    const int64_t step = truncated(op, 2);
    const int64_t sign = (step > 0) - (step < 0);
    if (step == 0) op.fail("step must be nonzero");
    count = static_cast<double>((truncated(op, 1) - truncated(op, 0) + step - sign) / step);
  } else {
    count = std::ceil((op.constant(1) - op.constant(0)) / op.constant(2));
  }
  if (!(count >= 0)) op.fail("upper bound and lower bound inconsistent with step sign");
  return {range(op, static_cast<int64_t>(count), dtype)};
}

OP("aten::range.out", .structural = {0, 1, 2}) {
  const DType dtype = *op.dtype(3);
  const bool exact = hlo::is_integer(dtype);
  if ((exact ? truncated(op, 2) : op.constant(2)) == 0) op.fail("step must be nonzero");
  const int64_t count = exact ? (truncated(op, 1) - truncated(op, 0)) / truncated(op, 2) + 1
                              : static_cast<int64_t>((op.constant(1) - op.constant(0)) / op.constant(2) + 1);
  if (count < 0) op.fail("upper bound and lower bound inconsistent with step sign");
  return {range(op, count, dtype)};
}

namespace {

// A bound of a linspace: a number or a 0-dim tensor, first rounded to the result's dtype as ATen does.
Value bound(Lowering& op, int i, DType dtype, DType compute) {
  const Value number = reshape(op.tensor(i), {});
  if (hlo::is_inexact(dtype)) return rounded(hlo::convert(number, compute), dtype);
  return hlo::convert(hlo::convert(number, dtype), compute);
}

Value linspace(Lowering& op, DType dtype) {
  const DType compute = hlo::is_inexact(dtype) ? compute_dtype(dtype) : DType::kF64;
  const Value start = bound(op, 0, dtype, compute);
  return hlo::convert(spaced(start, bound(op, 1, dtype, compute), op.integer(2), dtype), dtype);
}

// Powers are taken in double precision, as ATen does: an f32 exponent near 90 leaves few exact digits. A
// single exponent is not rounded.
Value logspace(Lowering& op, DType dtype) {
  const DType compute = hlo::is_complex(dtype) ? DType::kC128 : DType::kF64;
  const int64_t steps = op.integer(2);
  const Value start =
      steps == 1 ? hlo::convert(reshape(op.tensor(0), {}), compute) : bound(op, 0, dtype, compute);
  const Value exponent = spaced(start, bound(op, 1, dtype, compute), steps, compute);
  return hlo::convert(power(broadcast_to(op.scalar(3, compute), exponent.dims()), exponent), dtype);
}

DType space_dtype(Lowering& op, int position) {
  if (const auto given = op.dtype(position)) return *given;
  const bool complex = hlo::is_complex(op.tensor(0).dtype()) || hlo::is_complex(op.tensor(1).dtype());
  return complex ? hlo::complex_type(op.default_dtype()) : op.default_dtype();
}

Value identity(Lowering& op, int64_t rows, int64_t columns, DType dtype) {
  const Type type{offset_dtype(std::max(rows, columns)), {rows, columns}};
  const Value mask = compare(Compare::kEq, op.builder().iota(type, 0), op.builder().iota(type, 1));
  return hlo::convert(mask, dtype);
}

}  // namespace

OP("aten::linspace.out", .keeps_out_shape = true) { return {linspace(op, *op.dtype(3))}; }
OP("aten::linspace.Tensor_Tensor", .keeps_out_shape = true) { return {linspace(op, space_dtype(op, 3))}; }
OP("aten::linspace.Tensor_Scalar", .keeps_out_shape = true) { return {linspace(op, space_dtype(op, 3))}; }
OP("aten::linspace.Scalar_Tensor", .keeps_out_shape = true) { return {linspace(op, space_dtype(op, 3))}; }
OP("aten::logspace.out", .keeps_out_shape = true) { return {logspace(op, *op.dtype(4))}; }
OP("aten::logspace.Tensor_Tensor", .keeps_out_shape = true) { return {logspace(op, space_dtype(op, 4))}; }
OP("aten::logspace.Tensor_Scalar", .keeps_out_shape = true) { return {logspace(op, space_dtype(op, 4))}; }
OP("aten::logspace.Scalar_Tensor", .keeps_out_shape = true) { return {logspace(op, space_dtype(op, 4))}; }

OP("aten::eye.out") { return {identity(op, op.integer(0), op.integer(0), *op.dtype(1))}; }
OP("aten::eye.m_out") { return {identity(op, op.integer(0), op.integer(1), *op.dtype(2))}; }

namespace {

// Rows and columns, as s64, of the elements of a [rows, columns] lower triangle in row-major order. The
// triangle is a trapezoid, whose rows grow by one, on top of full rows.
struct Triangle {
  int64_t first_row, first_length, growing, trapezoid, count, columns;

  Triangle(int64_t rows, int64_t columns, int64_t offset)
      : first_row(std::max<int64_t>(0, -offset)),
        first_length(std::min(columns, first_row + offset + 1)),
        columns(columns) {
    const int64_t filled = columns > 0 ? std::max<int64_t>(rows - first_row, 0) : 0;
    growing = std::min(filled, columns - first_length);
    trapezoid = growing * first_length + growing * (growing - 1) / 2;
    count = trapezoid + (filled - growing) * columns;
  }

  std::pair<Value, Value> places(const Value& k) const {
    const auto like = [&](int64_t number) { return k.builder->splat(number, k.type); };
    const auto before = [&](const Value& row) {
      // The elements in the `row` first rows of the trapezoid: row * first + row (row - 1) / 2.
      return row * like(first_length) + row * (row - like(1)) / like(2);
    };
    // Solves before(row) = k in floats, then corrects by one either way.
    const double half = static_cast<double>(first_length) - 0.5;
    const Value twice = hlo::convert(k, DType::kF32) * 2.0;
    Value row = hlo::convert(twice / (sqrt(twice + half * half) + half), DType::kS64);
    row = row - hlo::convert(compare(Compare::kGt, before(row), k), DType::kS64);
    row = row + hlo::convert(compare(Compare::kLe, before(row + like(1)), k), DType::kS64);
    const Value below = k - like(trapezoid);
    const Value in_trapezoid = compare(Compare::kLt, below, 0.0);
    const Value full_row = below / like(columns);
    return {select(in_trapezoid, row, full_row + like(growing)) + like(first_row),
            select(in_trapezoid, k - before(row), below - full_row * like(columns))};
  }
};

Value stacked(const Value& rows, const Value& columns, DType dtype) {
  const Dims line{1, rows.dim(0)};
  return hlo::convert(hlo::concatenate({reshape(rows, line), reshape(columns, line)}, 0), dtype);
}

Value no_indices(Lowering& op, DType dtype) { return op.builder().splat(0.0, {dtype, {2, 0}}); }

}  // namespace

OP("aten::tril_indices") {
  const DType dtype = op.dtype(3).value_or(DType::kS64);
  const Triangle triangle(op.integer(0), op.integer(1), op.integer(2));
  if (triangle.count <= 0) return {no_indices(op, dtype)};
  const auto [rows, columns] = triangle.places(op.builder().iota({DType::kS64, {triangle.count}}, 0));
  return {stacked(rows, columns, dtype)};
}

// The upper triangle is the lower one turned by half a circle.
OP("aten::triu_indices") {
  const DType dtype = op.dtype(3).value_or(DType::kS64);
  const int64_t row_count = op.integer(0);
  const int64_t column_count = op.integer(1);
  const Triangle triangle(row_count, column_count, column_count - row_count - op.integer(2));
  if (triangle.count <= 0) return {no_indices(op, dtype)};
  const Value k = op.builder().iota({DType::kS64, {triangle.count}}, 0);
  const auto [rows, columns] = triangle.places(static_cast<double>(triangle.count - 1) - k);
  return {stacked(static_cast<double>(row_count - 1) - rows, static_cast<double>(column_count - 1) - columns,
                  dtype)};
}

}  // namespace torch_tpu::ops
