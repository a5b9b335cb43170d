// Small operations on stacks of matrices, and the triangular solve.
#include "ops/linalg.h"
#include "ops/promotion.h"

namespace torch_tpu::ops::linalg {

using namespace hlo;

Dims batch_dims(const Value& x) { return Dims(x.dims().begin(), x.dims().end() - 2); }

Value stacked(const Value& x) { return reshape(x, Dims{element_count(batch_dims(x)), x.dim(-2), x.dim(-1)}); }

Value unstacked(const Value& x, const Dims& batch) {
  Dims dims = batch;
  for (int64_t i = 1; i < x.rank(); ++i) dims.push_back(x.dim(i));
  return reshape(x, dims);
}

Value identity(Builder& builder, DType dtype, int64_t rows, int64_t columns) {
  const Type type{DType::kS32, {rows, columns}};
  return convert(compare(Compare::kEq, builder.iota(type, 0), builder.iota(type, 1)), dtype);
}

Value transposed(const Value& x) {
  Dims order;
  for (int64_t i = 0; i < x.rank(); ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return transpose(x, order);
}

Value conjugate(const Value& x) { return is_complex(x.dtype()) ? complex(real(x), -imag(x)) : x; }

Value adjoint(const Value& x) { return conjugate(transposed(x)); }

Value product(const Value& a, const Value& b) { return dot_general(a, b, {{0}, {0}, {2}, {1}}, a.dtype()); }

namespace {

Value triangle(const Value& x, Compare direction, int64_t offset) {
  const Type type{DType::kS32, {x.dim(-2), x.dim(-1)}};
  const Value inside =
      compare(direction, x.builder->iota(type, 1), x.builder->iota(type, 0) + static_cast<double>(offset));
  return select(inside, x, x.builder->splat(0.0, {x.dtype(), {}}));
}

}  // namespace

Value lower_part(const Value& x, int64_t offset) { return triangle(x, Compare::kLe, offset); }
Value upper_part(const Value& x, int64_t offset) { return triangle(x, Compare::kGe, offset); }

Value diagonal(const Value& x) {
  const int64_t size = std::min(x.dim(-2), x.dim(-1));
  Dims start(x.dims().size(), 0);
  Dims limit = x.dims();
  limit[limit.size() - 1] = limit[limit.size() - 2] = size;
  const Value square = slice(x, start, limit);
  const Type type{DType::kS32, {size, size}};
  const Value on = compare(Compare::kEq, x.builder->iota(type, 0), x.builder->iota(type, 1));
  return reduce(select(on, square, x.builder->splat(0.0, {x.dtype(), {}})), Reduction::kSum,
                Dims{x.rank() - 1});
}

Value as_dtype(const Value& real_value, DType dtype) {
  return is_complex(dtype) ? complex(real_value, like(real_value, 0.0)) : convert(real_value, dtype);
}

Value widened(const Value& x) {
  constexpr int64_t kMostRows = 64;
  if (x.dim(-2) > kMostRows || x.dim(-1) > kMostRows) return to_compute(x);
  return convert(x, is_complex(x.dtype()) ? DType::kC128 : DType::kF64);
}

Value one_norm(const Value& x) { return is_complex(x.dtype()) ? abs(real(x)) + abs(imag(x)) : abs(x); }

Value squared_modulus(const Value& x) {
  if (!is_complex(x.dtype())) return x * x;
  return real(x) * real(x) + imag(x) * imag(x);
}

Values repeat(int64_t count, const Values& state,
              const std::function<Values(const Value&, const Values&)>& body) {
  if (count <= 0) return state;
  Builder& builder = *state[0].builder;
  Values all{builder.splat(int64_t{0}, {DType::kS32, {}})};
  all.insert(all.end(), state.begin(), state.end());
  const Values results = while_loop(
      all,
      [&](const Values& x) -> Values { return {compare(Compare::kLt, x[0], static_cast<double>(count))}; },
      [&](const Values& x) -> Values {
        Values next{x[0] + 1.0};
        for (const Value& value : body(x[0], Values(x.begin() + 1, x.end()))) next.push_back(value);
        return next;
      });
  return Values(results.begin() + 1, results.end());
}

Value row_of(const Value& x, const Value& i) {
  const Value zero = like(i, 0.0);
  return dynamic_slice(x, {zero, i, zero}, Dims{x.dim(0), 1, x.dim(2)});
}

Value column_of(const Value& x, const Value& j) {
  const Value zero = like(j, 0.0);
  return dynamic_slice(x, {zero, zero, j}, Dims{x.dim(0), x.dim(1), 1});
}

Value with_column(const Value& x, const Value& column, const Value& j) {
  const Value zero = like(j, 0.0);
  return dynamic_update_slice(x, column, {zero, zero, j});
}

Value triangular_solve(const Value& a, const Value& b, bool left, bool lower, bool unit,
                       const char* transpose) {
  if (b.type.elements() == 0) return b;
  const auto text = [](bool flag) { return std::string(flag ? "true" : "false"); };
  // A real matrix has no adjoint of its own.
  const std::string kind =
      !is_complex(a.dtype()) && transpose == std::string("ADJOINT") ? "TRANSPOSE" : transpose;
  return a.builder->emit_one("stablehlo.triangular_solve", {a, b}, b.type,
                             "left_side = " + text(left) + ", lower = " + text(lower) + ", unit_diagonal = " +
                                 text(unit) + ", transpose_a = #stablehlo<transpose " + kind + ">");
}

Value first_set(const Value& mask) {
  const int64_t n = mask.dim(1);
  const Value places = mask.builder->iota({DType::kS32, mask.dims()}, 1) + 1.0;
  const Value first =
      reduce(select(mask, places, like(places, static_cast<double>(n + 1))), Reduction::kMin, Dims{1});
  return select(compare(Compare::kGt, first, static_cast<double>(n)), like(first, 0.0), first);
}

void check_info(Lowering& op, const Value& info, const Dims& batch, const std::string& name,
                const std::string& sentence) {
  if (info.type.elements() == 0) return;
  const Value wide = convert(info, DType::kS64);
  const Value is_bad = compare(Compare::kNe, wide, 0.0);
  if (batch.empty()) return op.check(is_bad, wide, Code::kLinearAlgebra, name + ": " + sentence);
  const Value elements = op.builder().iota(wide.type, 0);
  const Value first = reduce(select(is_bad, elements, like(elements, static_cast<double>(info.dim(0)))),
                             Reduction::kMin, Dims{0});
  const Value is_first = compare(Compare::kEq, elements, first);
  const Value entry = reduce(select(is_first, wide, like(wide, 0.0)), Reduction::kSum, Dims{0});
  const bool has_entry = sentence.find("{}") != std::string::npos;
  op.check(compare(Compare::kNe, entry, 0.0), has_entry ? first * 0x1p32 + entry : first,
           Code::kLinearAlgebra, name + ": (Batch element {}): " + sentence);
}

}  // namespace torch_tpu::ops::linalg
