// softmax(scale Q K^T + mask) V for one call per layer, forward and backward. ATen's name says "for_cpu",
// which is only the form: no dropout, a mask without gradient, the logarithms of the sums as second result.
#include <cmath>
#include <limits>

#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

/// Q, K and V as [batch * key heads, rows, size]: query heads that share keys are rows of one product.
struct Operands {
  Value query, key, value;
  int64_t batch, heads, queries, keys;
  double scale;
  DType dtype;

  int64_t key_heads() const { return key.dim(0) / batch; }
  Dims score_dims() const { return {batch, heads, queries, keys}; }
  /// Rows of `x`, [batch, heads, queries, n], as the products take them.
  Value rows(const Value& x) const {
    return reshape(x, Dims{key.dim(0), heads / key_heads() * queries, x.dim(3)});
  }
  Value by_head(const Value& x) const { return reshape(x, Dims{batch, heads, queries, x.dim(2)}); }
};

Value merge_heads(const Value& x) { return reshape(x, Dims{x.dim(0) * x.dim(1), x.dim(2), x.dim(3)}); }

Operands operands(const Value& query, const Value& key, const Value& value, std::optional<double> scale) {
  Operands all{query,        merge_heads(key), merge_heads(value), query.dim(0),
               query.dim(1), query.dim(2),     key.dim(2),         0,
               query.dtype()};
  all.scale = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.dim(3))));
  all.query = all.rows(query);
  return all;
}

/// A product over the last dimension of both, or over the rows of the first and of the second.
Value product(const Value& a, const Value& b, int64_t a_dim, int64_t b_dim) {
  return hlo::product(a, b, {{0}, {0}, {a_dim}, {b_dim}}, compute_dtype(a.dtype()));
}

/// [batch, heads, queries, keys] with the mask added; -inf where `causal` hides keys.
Value scores_of(const Operands& x, const Value& mask, bool causal) {
  Value scores = x.by_head(product(x.query, x.key, 2, 2)) * x.scale;
  if (mask) scores = scores + broadcast_to(convert(mask, scores.dtype()), scores.dims());
  if (!causal) return scores;
  const Type positions{DType::kS32, {x.queries, x.keys}};
  Builder& builder = *scores.builder;
  const Value hidden = compare(Compare::kLt, builder.iota(positions, 0), builder.iota(positions, 1));
  return select(broadcast_to(hidden, scores.dims()), like(scores, -std::numeric_limits<double>::infinity()),
                scores);
}

/// 0 where x is -inf.
Value finite_shift(const Value& x) {
  return select(compare(Compare::kEq, x, -std::numeric_limits<double>::infinity()), like(x, 0.0), x);
}

}  // namespace

OP("aten::_scaled_dot_product_flash_attention_for_cpu", .structural = {6}) {
  const Operands x = operands(op.tensor(0), op.tensor(1), op.tensor(2), op.number(6));
  const Value scores = scores_of(x, op.optional_tensor(5), op.flag(4));
  const Value shift = finite_shift(reduce_keep(scores, Reduction::kMax, Dims{3}));
  const Value weights = exp(scores - shift);
  const Value sum = reduce_keep(weights, Reduction::kSum, Dims{3});
  const Value mixed = x.by_head(product(x.rows(convert(weights, x.dtype)), x.value, 2, 1));
  // A row without keys is zero.
  const Value output = mixed / select(compare(Compare::kEq, sum, 0.0), like(sum, 1.0), sum);
  const Value logarithms = reshape(shift + log(sum), Dims{x.batch, x.heads, x.queries});
  return {convert(output, x.dtype), logarithms};
}

// Of softmax's gradient, the sum over keys is that of grad * output over the head (Dao et al.,
// FlashAttention).
OP("aten::_scaled_dot_product_flash_attention_for_cpu_backward", .structural = {9}) {
  const Operands x = operands(op.tensor(1), op.tensor(2), op.tensor(3), op.number(9));
  const Value grad = op.tensor(0);
  const Value scores = scores_of(x, op.optional_tensor(8), op.flag(7));
  const Value logarithms = reshape(op.tensor(5), Dims{x.batch, x.heads, x.queries, 1});
  const Value weights = exp(scores - finite_shift(logarithms));
  const Value delta = reduce_keep(to_compute(grad) * to_compute(op.tensor(4)), Reduction::kSum, Dims{3});
  const Value weight_grad = x.by_head(product(x.rows(grad), x.value, 2, 2));
  const Value score_grad = x.rows(convert(weights * (weight_grad - delta) * x.scale, x.dtype));
  const auto like_input = [&](const Value& result, int input) {
    return convert(reshape(result, op.tensor(input).dims()), x.dtype);
  };
  return {like_input(product(score_grad, x.key, 2, 1), 1), like_input(product(score_grad, x.query, 1, 1), 2),
          like_input(product(x.rows(convert(weights, x.dtype)), x.rows(grad), 1, 1), 3)};
}

}  // namespace torch_tpu::ops
