// Reductions: sums, means, products, extrema and their positions, truth, norms.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/indexing.h"
#include "ops/op.h"
#include "ops/pointwise.h"
#include "ops/require.h"

namespace torch_tpu::ops {
namespace {

using hlo::Compare;
using hlo::Reduction;

int64_t count(const Value& x, const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= x.dim(dim);
  return count;
}

Dims all_dims(const Value& x) {
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i) dims.push_back(i);
  return dims;
}

/// The reduction of all elements in two steps: XLA:CPU vectorises the first, down the columns of a
/// matrix, but not a reduction of everything. The second step's region swaps its operands, or the
/// compiler would merge the steps. Float sums have a fast library path and stay whole.
Value reduced_in_steps(const Value& x, Reduction kind) {
  constexpr int64_t kWorthwhile = 1 << 14;
  constexpr int64_t kColumns = 1024;
  const int64_t size = x.type.elements();
  const int64_t columns = std::min(kColumns, size & -size);
  if (size < kWorthwhile || columns < 8) return hlo::reduce(x, kind, all_dims(x));
  const Value matrix = hlo::reshape(x, Dims{size / columns, columns});
  const Value row = hlo::reduce(matrix, kind, Dims{0});
  const auto combine = hlo::combiner(kind);
  const auto swapped = [&combine](const Values& v) { return combine({v[1], v[0]}); };
  return hlo::reduce({row}, {hlo::neutral(*x.builder, kind, x.dtype())}, Dims{0}, swapped)[0];
}

Value reduced(const Value& x, Reduction kind, const Dims& dims, bool keepdim) {
  const bool library = kind == Reduction::kSum && hlo::is_inexact(x.dtype());
  const bool whole = static_cast<int64_t>(dims.size()) == x.rank();
  const Value result = whole && !library ? reduced_in_steps(x, kind) : hlo::reduce(x, kind, dims);
  if (!keepdim) return result;
  Dims kept = x.dims();
  for (const int64_t dim : dims) kept[dim] = 1;
  return hlo::reshape(result, kept);
}

/// What sums and products of this dtype are made in: integers and bools in int64.
DType accumulated_dtype(const Lowering& op, int dtype_arg, DType dtype) {
  if (const auto given = op.dtype(dtype_arg)) return *given;
  return hlo::is_inexact(dtype) ? dtype : DType::kS64;
}

/// How many elements are true, as s64; counted in 32 bits where they are enough.
Value count_true(const Value& x, const Dims& dims, bool keepdim) {
  const bool narrow = count(x, dims) <= std::numeric_limits<int32_t>::max();
  const Value ones = hlo::convert(x, narrow ? DType::kS32 : DType::kS64);
  return hlo::convert(reduced(ones, Reduction::kSum, dims, keepdim), DType::kS64);
}

/// Reduces x, converted to `dtype`, with one rounding at the end.
Value accumulate(const Value& x, Reduction kind, const Dims& dims, bool keepdim, DType dtype) {
  if (x.dtype() == DType::kPred && dtype == DType::kS64 && kind == Reduction::kSum) {
    return count_true(x, dims, keepdim);
  }
  const Value terms = hlo::convert(hlo::convert(x, dtype), compute_dtype(dtype));
  return hlo::convert(reduced(terms, kind, dims, keepdim), dtype);
}

Value mean(Lowering& op, const Dims& dims, bool keepdim, int dtype_arg) {
  const Value x = op.tensor(0);
  const DType dtype = op.dtype(dtype_arg).value_or(x.dtype());
  if (!hlo::is_inexact(dtype)) {
    op.fail(
        "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype");
  }
  const Value terms = to_compute(hlo::convert(x, dtype));
  const Value total = reduced(terms, Reduction::kSum, dims, keepdim);
  return hlo::convert(exact_quotient(total, static_cast<double>(count(x, dims))), dtype);
}

Value extremum(const Value& x, bool largest, const Dims& dims, bool keepdim) {
  return reduced(x, largest ? Reduction::kMax : Reduction::kMin, dims, keepdim);
}

/// Value and first position of the extremum along `dim`; NaN counts as the most extreme.
Values extremum_with_index(const Value& x, bool largest, int64_t dim, bool keepdim) {
  Builder& builder = *x.builder;
  if (x.rank() == 0) return {x, builder.splat(int64_t{0}, {DType::kS64, {}})};
  const Value best = extremum(x, largest, {dim}, true);
  // Where the extremum is not NaN, no element is: one test serves both cases.
  Value hit = hlo::compare(Compare::kEq, x, best);
  if (hlo::is_float(x.dtype())) hit = hit | hlo::is_nan(x);
  const bool narrow = x.dim(dim) <= std::numeric_limits<int32_t>::max();
  const Type type{narrow ? DType::kS32 : DType::kS64, x.dims()};
  const Value position = hlo::select(hit, builder.iota(type, dim), builder.highest({type.dtype, {}}));
  const Value index = hlo::convert(reduced(position, Reduction::kMin, {dim}, keepdim), DType::kS64);
  Dims kept = best.dims();
  if (!keepdim) kept.erase(dim);
  return {hlo::reshape(best, kept), index};
}

Values extremum_along(Lowering& op, bool largest) {
  const Value x = op.tensor(0);
  const int64_t dim = op.dim(1, x.rank());
  const std::string name = largest ? "max" : "min";
  require_elements(op, x, dim, name);
  if (hlo::is_complex(x.dtype())) op.fail(name + "(): does not support complex input");
  return extremum_with_index(x, largest, dim, op.flag(2));
}

Value full_extremum(Lowering& op, bool largest) {
  const Value x = op.tensor(0);
  const std::string name = largest ? "max" : "min";
  require_ordered(op, x, name + "_all");
  if (x.type.elements() == 0) {
    op.fail(name +
            "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
            "dim with the 'dim' argument.");
  }
  return extremum(x, largest, all_dims(x), false);
}

Value extremum_index(Lowering& op, bool largest) {
  const Value x = op.tensor(0);
  const bool keepdim = op.flag(2);
  if (x.dtype() == DType::kPred || hlo::is_complex(x.dtype())) {
    op.fail(std::string(largest ? "argmax" : "argmin") + "(): does not support " +
            (x.dtype() == DType::kPred ? "bool" : "complex") + " input");
  }
  if (op.has(1)) return extremum_with_index(x, largest, op.dim(1, x.rank()), keepdim)[1];
  const Value flat = hlo::reshape(x, Dims{x.type.elements()});
  const Value index = extremum_with_index(flat, largest, 0, false)[1];
  return hlo::reshape(index, keepdim ? Dims(x.dims().size(), 1) : Dims{});
}

/// any and all: bool results, except that uint8 stays uint8.
Value truth(const Value& x, Reduction kind, const Dims& dims, bool keepdim) {
  const Value result = reduced(hlo::convert(x, DType::kPred), kind, dims, keepdim);
  return hlo::convert(result, x.dtype() == DType::kU8 ? DType::kU8 : DType::kPred);
}

/// any.dims and all.dims: None means all dimensions, an empty list none.
Dims truth_dims(Lowering& op, const Value& x) { return op.has(1) ? op.dims(1, x.rank()) : all_dims(x); }

struct Moments {
  Value variance, mean;
};

/// The two-pass variance; a complex variance is that of both parts together.
Moments moments(Lowering& op, bool keepdim) {
  const Value x = op.tensor(0);
  const DType dtype = x.dtype();
  if (!hlo::is_inexact(dtype)) op.fail("std and var only support floating point and complex dtypes");
  const Dims dims = op.dims_or_all(1, x.rank());
  const Value wide = to_compute(x);
  const double size = static_cast<double>(count(x, dims));
  const Value mean = exact_quotient(hlo::reduce_keep(wide, Reduction::kSum, dims), size);
  const Value centered = wide - mean;
  Value squares = hlo::real(centered) * hlo::real(centered);
  if (hlo::is_complex(dtype)) squares = squares + hlo::imag(centered) * hlo::imag(centered);
  const Value sum = reduced(squares, Reduction::kSum, dims, keepdim);
  Value divisor = opaque(op.builder().splat(std::max(size - 1, 0.0), {sum.dtype(), {}}));
  if (op.has(2)) divisor = hlo::maximum(size - op.scalar(2, sum.dtype()), hlo::like(divisor, 0.0));
  Dims kept = mean.dims();
  if (!keepdim) {
    kept.clear();
    for (int64_t i = 0; i < x.rank(); ++i) {
      if (std::find(dims.begin(), dims.end(), i) == dims.end()) kept.push_back(x.dim(i));
    }
  }
  return {sum / divisor, hlo::convert(hlo::reshape(mean, kept), dtype)};
}

/// Variance or deviation rounded to the dtype that torch gives it.
Value rounded_spread(const Moments& m, bool deviation) {
  const Value& mean = m.mean;
  const Value spread = deviation ? hlo::sqrt(m.variance) : m.variance;
  return hlo::convert(spread, hlo::real_type(mean.dtype()));
}

Value vector_norm(Lowering& op, double order, const Dims& dims, bool keepdim, std::optional<DType> given) {
  Value x = op.tensor(0);
  const DType dtype = given.value_or(x.dtype());
  if (!hlo::is_inexact(dtype)) {
    op.fail("linalg.vector_norm: Expected a floating point or complex tensor as input.");
  }
  x = to_compute(hlo::convert(x, dtype));
  const DType result = hlo::real_type(dtype);
  const auto sum = [&](const Value& terms) { return reduced(terms, Reduction::kSum, dims, keepdim); };
  const auto finish = [&](const Value& norm) { return hlo::convert(norm, result); };
  if (order == 0) return finish(sum(hlo::convert(hlo::convert(x, DType::kPred), hlo::real_type(x.dtype()))));
  if (order == 2) {
    Value squares = hlo::real(x) * hlo::real(x);
    if (hlo::is_complex(x.dtype())) squares = squares + hlo::imag(x) * hlo::imag(x);
    return finish(hlo::sqrt(sum(squares)));
  }
  const Value magnitude = modulus(x);
  if (std::isinf(order)) return finish(extremum(magnitude, order > 0, dims, keepdim));
  if (order == 1) return finish(sum(magnitude));
  const Value total = sum(hlo::power(magnitude, hlo::like(magnitude, order)));
  return finish(hlo::power(total, hlo::like(total, 1.0 / order)));
}

double order_or_two(Lowering& op, int i) { return op.has(i) ? op.constant(i) : 2.0; }

Value nan_to_zero(const Value& x) {
  return hlo::is_inexact(x.dtype()) ? hlo::select(hlo::is_nan(x), hlo::like(x, 0.0), x) : x;
}

Values aminmax(const Value& x, const Dims& dims, bool keepdim) {
  return {extremum(x, false, dims, keepdim), extremum(x, true, dims, keepdim)};
}

}  // namespace

OP("aten::sum") {
  const Value x = op.tensor(0);
  return {accumulate(x, Reduction::kSum, all_dims(x), false, accumulated_dtype(op, 1, x.dtype()))};
}
OP("aten::sum.dim_IntList") {
  const Value x = op.tensor(0);
  const Dims dims = op.dims_or_all(1, x.rank());
  return {accumulate(x, Reduction::kSum, dims, op.flag(2), accumulated_dtype(op, 3, x.dtype()))};
}
OP("aten::nansum") {
  const Value x = nan_to_zero(op.tensor(0));
  const Dims dims = op.dims_or_all(1, x.rank());
  return {accumulate(x, Reduction::kSum, dims, op.flag(2), accumulated_dtype(op, 3, x.dtype()))};
}
OP("aten::prod") {
  const Value x = op.tensor(0);
  return {accumulate(x, Reduction::kProduct, all_dims(x), false, accumulated_dtype(op, 1, x.dtype()))};
}
OP("aten::prod.dim_int") {
  const Value x = op.tensor(0);
  const Dims dims = op.dims(1, x.rank());
  return {accumulate(x, Reduction::kProduct, dims, op.flag(2), accumulated_dtype(op, 3, x.dtype()))};
}
OP("aten::mean") { return {mean(op, all_dims(op.tensor(0)), false, 1)}; }
OP("aten::mean.dim") { return {mean(op, op.dims_or_all(1, op.tensor(0).rank()), op.flag(2), 3)}; }

OP("aten::count_nonzero.dim_IntList") {
  const Value x = op.tensor(0);
  return {count_true(hlo::convert(x, DType::kPred), op.dims_or_all(1, x.rank()), false)};
}

OP("aten::amax") {
  const Value x = op.tensor(0);
  require_ordered(op, x, "amax");
  return {extremum(x, true, op.dims_or_all(1, x.rank()), op.flag(2))};
}
OP("aten::amin") {
  const Value x = op.tensor(0);
  require_ordered(op, x, "amin");
  return {extremum(x, false, op.dims_or_all(1, x.rank()), op.flag(2))};
}
OP("aten::max") { return {full_extremum(op, true)}; }
OP("aten::min") { return {full_extremum(op, false)}; }
OP("aten::max.dim") { return extremum_along(op, true); }
OP("aten::min.dim") { return extremum_along(op, false); }
OP("aten::argmax") { return {extremum_index(op, true)}; }
OP("aten::argmin") { return {extremum_index(op, false)}; }
OP("aten::aminmax") {
  const Value x = op.tensor(0);
  return aminmax(x, op.dims_or_all(1, x.rank()), op.flag(2));
}
OP("aten::_aminmax") { return aminmax(op.tensor(0), all_dims(op.tensor(0)), false); }
OP("aten::_aminmax.dim") { return aminmax(op.tensor(0), op.dims(1, op.tensor(0).rank()), op.flag(2)); }

OP("aten::any") { return {truth(op.tensor(0), Reduction::kOr, all_dims(op.tensor(0)), false)}; }
OP("aten::any.dim") {
  return {truth(op.tensor(0), Reduction::kOr, op.dims(1, op.tensor(0).rank()), op.flag(2))};
}
OP("aten::any.dims") {
  return {truth(op.tensor(0), Reduction::kOr, truth_dims(op, op.tensor(0)), op.flag(2))};
}
OP("aten::all") { return {truth(op.tensor(0), Reduction::kAnd, all_dims(op.tensor(0)), false)}; }
OP("aten::all.dim") {
  return {truth(op.tensor(0), Reduction::kAnd, op.dims(1, op.tensor(0).rank()), op.flag(2))};
}
OP("aten::all.dims") {
  return {truth(op.tensor(0), Reduction::kAnd, truth_dims(op, op.tensor(0)), op.flag(2))};
}

OP("aten::var.correction") { return {rounded_spread(moments(op, op.flag(3)), false)}; }
OP("aten::std.correction") { return {rounded_spread(moments(op, op.flag(3)), true)}; }
OP("aten::var_mean.correction") {
  const Moments m = moments(op, op.flag(3));
  return {rounded_spread(m, false), m.mean};
}
OP("aten::std_mean.correction") {
  const Moments m = moments(op, op.flag(3));
  return {rounded_spread(m, true), m.mean};
}

OP("aten::linalg_vector_norm", .structural = {1}) {
  const Dims dims = op.dims_or_all(2, op.tensor(0).rank());
  return {vector_norm(op, op.constant(1), dims, op.flag(3), op.dtype(4))};
}
OP("aten::norm.Scalar", .structural = {1}) {
  return {vector_norm(op, order_or_two(op, 1), all_dims(op.tensor(0)), false, std::nullopt)};
}
OP("aten::norm.ScalarOpt_dtype", .structural = {1}) {
  return {vector_norm(op, order_or_two(op, 1), all_dims(op.tensor(0)), false, op.dtype(2))};
}
OP("aten::norm.ScalarOpt_dim", .structural = {1}) {
  const Dims dims = op.dims_or_all(2, op.tensor(0).rank());
  return {vector_norm(op, order_or_two(op, 1), dims, op.flag(3), std::nullopt)};
}
OP("aten::norm.ScalarOpt_dim_dtype", .structural = {1}) {
  const Dims dims = op.dims_or_all(2, op.tensor(0).rank());
  return {vector_norm(op, order_or_two(op, 1), dims, op.flag(3), op.dtype(4))};
}

// The xor of all elements as 64-bit words: floats as the bits of their double.
OP("aten::hash_tensor") {
  const Value x = op.tensor(0);
  const Type word{DType::kU64, x.dims()};
  const Value words = hlo::is_float(x.dtype()) ? hlo::bitcast(hlo::convert(x, DType::kF64), word)
                                               : hlo::convert(hlo::convert(x, DType::kS64), DType::kU64);
  const Dims dims = op.dims_or_all(1, x.rank());
  const Value zero = op.builder().splat(int64_t{0}, {DType::kU64, {}});
  Value result = words;
  if (!dims.empty()) {
    const auto combine = [](const Values& v) -> Values { return {v[0] ^ v[1]}; };
    result = hlo::reduce({words}, {zero}, dims, combine)[0];
  }
  Dims kept = op.flag(2) ? x.dims() : result.dims();
  if (op.flag(2)) {
    for (const int64_t dim : dims) kept[dim] = 1;
  }
  return {hlo::reshape(result, kept)};
}

// Rounded to the dtype at each step, as ATen composes it: the gradient magnifies differences of the result.
OP("aten::logsumexp") {
  const Value x = to_inexact(op, op.tensor(0));
  const bool keepdim = op.flag(2);
  const Dims dims = op.dims_or_all(1, x.rank());
  const Value wide = to_compute(x);
  // Infinities are not subtracted: exp(-inf) is 0 and exp(inf) is inf without it.
  const Value largest = hlo::reduce_keep(hlo::real(wide), Reduction::kMax, dims);
  const Value finite = hlo::compare(Compare::kLt, hlo::abs(largest), std::numeric_limits<double>::infinity());
  Value shift = hlo::select(finite | hlo::is_nan(largest), largest, hlo::like(largest, 0.0));
  if (hlo::is_complex(x.dtype())) shift = hlo::complex(shift, hlo::like(shift, 0.0));
  const auto round = [&](const Value& value) { return rounded(value, x.dtype()); };
  const Value terms = round(hlo::exp(round(wide - shift)));
  const Value sum = round(reduced(terms, Reduction::kSum, dims, keepdim));
  return {hlo::convert(round(hlo::log(sum)) + hlo::reshape(shift, sum.dims()), x.dtype())};
}

}  // namespace torch_tpu::ops
