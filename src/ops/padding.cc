// Padding: constant, reflection and replication, with their gradients.
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

struct Padding {
  Dims low, high;
};

// torch lists pairs (low, high) from the last dimension backwards.
Padding padding_of(const std::vector<int64_t>& pairs, int64_t rank) {
  Padding padding{Dims(static_cast<size_t>(rank), 0), Dims(static_cast<size_t>(rank), 0)};
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    padding.low[rank - 1 - i / 2] = pairs[i];
    padding.high[rank - 1 - i / 2] = pairs[i + 1];
  }
  return padding;
}

Value crop(const Value& x, int64_t dim, int64_t low, int64_t high) {
  return slice_dim(x, dim, low, x.dim(dim) - high);
}

// The edge elements [start, limit) of `dim`, reversed.
Value mirrored(const Value& x, int64_t dim, int64_t start, int64_t limit) {
  return reverse(slice_dim(x, dim, start, limit), Dims{dim});
}

Value repeated(const Value& x, int64_t dim, int64_t position, int64_t count) {
  Dims dims = x.dims();
  dims[dim] = count;
  return broadcast_to(slice_dim(x, dim, position, position + 1), dims);
}

// One dimension after the other; negative amounts cut.
Value pad_edges(Value x, const Padding& padding, bool reflect) {
  for (int64_t dim = 0; dim < x.rank(); ++dim) {
    const int64_t low = padding.low[dim];
    const int64_t high = padding.high[dim];
    const int64_t size = x.dim(dim);
    Values parts;
    if (low > 0) parts.push_back(reflect ? mirrored(x, dim, 1, low + 1) : repeated(x, dim, 0, low));
    parts.push_back(crop(x, dim, std::max<int64_t>(-low, 0), std::max<int64_t>(-high, 0)));
    if (high > 0) {
      parts.push_back(reflect ? mirrored(x, dim, size - 1 - high, size - 1)
                              : repeated(x, dim, size - 1, high));
    }
    x = concatenate(parts, dim);
  }
  return x;
}

// `part` placed at `start` of a zero tensor of `size` along `dim`.
Value placed(const Value& part, int64_t dim, int64_t start, int64_t size) {
  Dims low(part.dims().size(), 0);
  Dims high(part.dims().size(), 0);
  low[dim] = start;
  high[dim] = size - start - part.dim(dim);
  return pad(part, part.builder->splat(0.0, {part.dtype(), {}}), low, high);
}

// The transpose of pad_edges: what the borders copied flows back to where it came from.
Value fold_edges(Value grad, const Padding& padding, const Dims& input_dims, bool reflect) {
  for (int64_t dim = 0; dim < grad.rank(); ++dim) {
    const int64_t low = padding.low[dim];
    const int64_t high = padding.high[dim];
    const int64_t size = input_dims[dim];
    const int64_t length = grad.dim(dim);
    if (low == 0 && high == 0) continue;
    Value sum = placed(crop(grad, dim, std::max<int64_t>(low, 0), std::max<int64_t>(high, 0)), dim,
                       std::max<int64_t>(-low, 0), size);
    if (low > 0) {
      sum = sum + (reflect ? placed(mirrored(grad, dim, 0, low), dim, 1, size)
                           : placed(reduce_keep(slice_dim(grad, dim, 0, low), Reduction::kSum, Dims{dim}),
                                    dim, 0, size));
    }
    if (high > 0) {
      const Value edge = slice_dim(grad, dim, length - high, length);
      sum = sum + (reflect ? placed(reverse(edge, Dims{dim}), dim, size - 1 - high, size)
                           : placed(reduce_keep(edge, Reduction::kSum, Dims{dim}), dim, size - 1, size));
    }
    grad = sum;
  }
  return grad;
}

Values pad_forward(Lowering& op, bool reflect) {
  const Value x = op.tensor(0);
  return {pad_edges(x, padding_of(op.integers(1), x.rank()), reflect)};
}

Values pad_backward(Lowering& op, bool reflect) {
  const Value grad = op.tensor(0);
  const Dims dims = op.tensor(1).dims();
  const Padding padding = padding_of(op.integers(2), grad.rank());
  return {convert(fold_edges(to_compute(grad), padding, dims, reflect), grad.dtype())};
}

}  // namespace

OP("aten::constant_pad_nd", .accept = accept_convertible<2>) {
  const Value x = op.tensor(0);
  const std::vector<int64_t> pairs = op.integers(1);
  if (pairs.size() % 2 != 0) {
    op.fail("Length of pad must be even but instead it equals " + std::to_string(pairs.size()));
  }
  if (static_cast<int64_t>(pairs.size()) > 2 * x.rank()) {
    op.fail(
        "Length of pad should be no more than twice the number of dimensions of the input. Pad length is " +
        std::to_string(pairs.size()) + " while the input has " + std::to_string(x.rank()) + " dimensions.");
  }
  const Padding padding = padding_of(pairs, x.rank());
  for (int64_t dim = 0; dim < x.rank(); ++dim) {
    if (x.dim(dim) + padding.low[dim] + padding.high[dim] < 0) {
      op.fail("The input size " + std::to_string(x.dim(dim)) + ", plus negative padding " +
              std::to_string(padding.low[dim]) + " and " + std::to_string(padding.high[dim]) +
              " resulted in a negative output size, which is invalid. Check dimension " +
              std::to_string(dim) + " of your input.");
    }
  }
  return {pad(x, op.scalar(2, x.dtype()), padding.low, padding.high)};
}

#define PADDING(name, reflect)                           \
  OP("aten::" name) { return pad_forward(op, reflect); } \
  OP("aten::" name "_backward") { return pad_backward(op, reflect); }

PADDING("reflection_pad1d", true)
PADDING("reflection_pad2d", true)
PADDING("reflection_pad3d", true)
PADDING("replication_pad1d", false)
PADDING("replication_pad2d", false)
PADDING("replication_pad3d", false)

#undef PADDING

}  // namespace torch_tpu::ops
