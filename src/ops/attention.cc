// The fused inference paths of nn.MultiheadAttention and nn.TransformerEncoderLayer.
// scaled_dot_product_attention takes torch's composite path, which is mm and softmax.
#include <cmath>

#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

// x[..., d] W^T + b, in f32 for reduced precision.
Value linear(const Value& x, const Value& weight, const Value& bias) {
  const int64_t last = x.rank() - 1;
  const Value product = dot_general(x, weight, {{}, {}, {last}, {1}}, compute_dtype(x.dtype()));
  return product + broadcast_to(to_compute(bias), product.dims());
}

// Softmax over the last dimension without the entries where `mask` is true; NaN where all are masked.
Value masked_softmax(const Value& x, const Value& mask, int64_t dim) {
  const Value lowest = x.builder->lowest({x.dtype(), {}});
  const Value kept = mask ? select(broadcast_to(mask, x.dims()), lowest, x) : x;
  const Value largest = reduce_keep(kept, Reduction::kMax, Dims{dim});
  Value weights = exp(x - largest);
  if (mask) weights = select(broadcast_to(mask, x.dims()), like(x, 0.0), weights);
  return weights / reduce_keep(weights, Reduction::kSum, Dims{dim});
}

// The mask as pred [b or 1, 1 or heads, t or 1, t]. Kinds: 0 [t, t], 1 [b, t], 2 [b, heads, t, t].
Value mask_of(const Value& mask, std::optional<int64_t> kind) {
  const Value as_pred = convert(mask, DType::kPred);
  if (mask.rank() != 2) return as_pred;
  if (kind == 1) return reshape(as_pred, Dims{mask.dim(0), 1, 1, mask.dim(1)});
  return reshape(as_pred, Dims{1, 1, mask.dim(0), mask.dim(1)});
}

struct Attention {
  Value output;   // [b, t, d]
  Value weights;  // [b, heads, t, s]
};

// qkv_weight and qkv_bias hold query, key and value one after the other.
Attention attend(const Value& query, const Value& key, const Value& value, int64_t heads,
                 const Value& qkv_weight, const Value& qkv_bias, const Value& proj_weight,
                 const Value& proj_bias, const Value& mask) {
  const DType dtype = query.dtype();
  const int64_t d = query.dim(2);
  const auto projected = [&](const Value& x, int64_t part) {
    const Value y = linear(x, slice_dim(qkv_weight, 0, part * d, (part + 1) * d),
                           slice_dim(qkv_bias, 0, part * d, (part + 1) * d));
    return transpose(reshape(y, Dims{x.dim(0), x.dim(1), heads, d / heads}), Dims{0, 2, 1, 3});
  };
  const double scale = 1.0 / std::sqrt(static_cast<double>(d / heads));
  const Value q = convert(projected(query, 0) * scale, dtype);
  const Value k = convert(projected(key, 1), dtype);
  const Value v = convert(projected(value, 2), dtype);
  const Value scores = dot_general(q, k, {{0, 1}, {0, 1}, {3}, {3}}, compute_dtype(dtype));
  const Value weights = convert(masked_softmax(scores, mask, 3), dtype);
  const Value context =
      convert(dot_general(weights, v, {{0, 1}, {0, 1}, {3}, {2}}, compute_dtype(dtype)), dtype);
  const Value merged = reshape(transpose(context, Dims{0, 2, 1, 3}), Dims{query.dim(0), query.dim(1), d});
  return {convert(linear(merged, proj_weight, proj_bias), dtype), weights};
}

Value layer_norm(const Value& x, const Value& weight, const Value& bias, const Value& eps) {
  const Dims last{x.rank() - 1};
  const Value wide = to_compute(x);
  const double count = static_cast<double>(x.dim(-1));
  const Value centered = wide - reduce_keep(wide, Reduction::kSum, last) / count;
  const Value variance = reduce_keep(centered * centered, Reduction::kSum, last) / count;
  const Value scaled = centered * rsqrt(variance + eps) * to_compute(weight);
  return convert(scaled + to_compute(bias), x.dtype());
}

}  // namespace

OP("aten::_native_multi_head_attention") {
  const Value query = op.tensor(0);
  const int64_t heads = op.integer(4);
  const Value mask =
      op.has(9) ? mask_of(op.tensor(9), op.has(12) ? std::optional(op.integer(12)) : std::nullopt) : Value{};
  const Attention result = attend(query, op.tensor(1), op.tensor(2), heads, op.tensor(5), op.tensor(6),
                                  op.tensor(7), op.tensor(8), mask);
  Value weights = result.weights;
  if (!op.flag(10)) {
    weights = op.builder().splat(0.0, {query.dtype(), {0}});
  } else if (op.flag(11)) {
    weights = convert(reduce(to_compute(weights), Reduction::kSum, Dims{1}) / static_cast<double>(heads),
                      query.dtype());
  }
  return {result.output, weights};
}

OP("aten::_transformer_encoder_layer_fwd") {
  const Value src = op.tensor(0);
  const DType dtype = src.dtype();
  const bool norm_first = op.flag(8);
  const Value eps = op.scalar(9, compute_dtype(dtype));
  const Value mask = op.has(18)
                         ? mask_of(op.tensor(18), op.has(19) ? std::optional(op.integer(19)) : std::nullopt)
                         : Value{};
  const auto norm = [&](const Value& x, int weight) {
    return layer_norm(x, op.tensor(weight), op.tensor(weight + 1), eps);
  };
  const auto sum = [&](const Value& a, const Value& b) {
    return convert(to_compute(a) + to_compute(b), dtype);
  };
  const Value x = norm_first ? norm(src, 10) : src;
  const Value attended =
      attend(x, x, x, op.integer(2), op.tensor(3), op.tensor(4), op.tensor(5), op.tensor(6), mask).output;
  Value middle = sum(attended, src);
  if (!norm_first) middle = norm(middle, 10);
  const Value hidden = linear(norm_first ? norm(middle, 12) : middle, op.tensor(14), op.tensor(15));
  const Value active = op.flag(7) ? hidden * 0.5 * (1.0 + erf(hidden * 0.70710678118654752))
                                  : maximum(hidden, like(hidden, 0.0));
  const Value result =
      sum(convert(linear(convert(active, dtype), op.tensor(16), op.tensor(17)), dtype), middle);
  return {norm_first ? result : norm(result, 12)};
}

OP("aten::_transform_bias_rescale_qkv") {
  const Value qkv = op.tensor(0);
  const int64_t heads = op.integer(2);
  const int64_t d = qkv.dim(2) / 3;
  const Value biased = to_compute(qkv) + to_compute(op.tensor(1));
  Values results;
  for (int64_t part = 0; part < 3; ++part) {
    const Value slice = slice_dim(biased, 2, part * d, (part + 1) * d);
    const Value split =
        transpose(reshape(slice, Dims{qkv.dim(0), qkv.dim(1), heads, d / heads}), Dims{0, 2, 1, 3});
    const double scale = part == 0 ? 1.0 / std::sqrt(static_cast<double>(d / heads)) : 1.0;
    results.push_back(convert(part == 0 ? split * scale : split, qkv.dtype()));
  }
  return results;
}

}  // namespace torch_tpu::ops
