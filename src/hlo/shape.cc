// Operations that move elements without computing: reshape, transpose, broadcast, slices, padding.
#include "hlo/builder.h"

namespace torch_tpu::hlo {

Value reshape(const Value& x, std::span<const int64_t> dims) {
  const Type type{x.dtype(), Dims(dims)};
  if (type == x.type) return x;
  if (type.elements() != x.type.elements()) {
    x.builder->fail(Code::kInternal, "cannot reshape " + x.type.text() + " to " + type.text());
  }
  return x.builder->emit_one("stablehlo.reshape", {x}, type);
}

Value transpose(const Value& x, std::span<const int64_t> permutation) {
  bool identity = true;
  Dims dims;
  for (size_t i = 0; i < permutation.size(); ++i) {
    identity = identity && permutation[i] == static_cast<int64_t>(i);
    dims.push_back(x.dim(permutation[i]));
  }
  if (identity) return x;
  const Value result = x.builder->emit_one("stablehlo.transpose", {x}, {x.dtype(), dims},
                                           "permutation = " + i64_array(permutation));
  x.builder->note_transposed(result, x, permutation);
  return result;
}

Value broadcast_in_dim(const Value& x, std::span<const int64_t> dims, std::span<const int64_t> mapping) {
  const Type type{x.dtype(), Dims(dims)};
  if (type == x.type) {
    bool identity = true;
    for (size_t i = 0; i < mapping.size(); ++i) identity = identity && mapping[i] == static_cast<int64_t>(i);
    if (identity) return x;
  }
  return x.builder->emit_one("stablehlo.broadcast_in_dim", {x}, type,
                             "broadcast_dimensions = " + i64_array(mapping));
}

Value broadcast_to(const Value& x, std::span<const int64_t> dims) {
  if (x.dims() == Dims(dims)) return x;
  const int64_t offset = static_cast<int64_t>(dims.size()) - x.rank();
  if (offset < 0) x.builder->fail("cannot broadcast " + x.type.text() + " to fewer dimensions");
  Dims mapping;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const int64_t target = dims[static_cast<size_t>(i + offset)];
    if (x.dim(i) != target && x.dim(i) != 1) {
      x.builder->fail("cannot broadcast " + x.type.text() + " to " + Type{x.dtype(), Dims(dims)}.text());
    }
    mapping.push_back(i + offset);
  }
  return broadcast_in_dim(x, dims, mapping);
}

Dims broadcast_dims(Builder& builder, std::span<const int64_t> a, std::span<const int64_t> b) {
  Dims dims(std::max(a.size(), b.size()), 1);
  // From the last dimension on, so that the error names the one that torch names.
  for (size_t i = dims.size(); i-- > 0;) {
    const auto size_in = [&](std::span<const int64_t> operand) {
      const size_t missing = dims.size() - operand.size();
      return i < missing ? 1 : operand[i - missing];
    };
    const int64_t a_size = size_in(a);
    const int64_t b_size = size_in(b);
    if (a_size != b_size && a_size != 1 && b_size != 1) {
      builder.fail("The size of tensor a (" + std::to_string(a_size) + ") must match the size of tensor b (" +
                   std::to_string(b_size) + ") at non-singleton dimension " + std::to_string(i));
    }
    dims[i] = a_size == 1 ? b_size : a_size;
  }
  return dims;
}

Value slice(const Value& x, std::span<const int64_t> start, std::span<const int64_t> limit,
            std::span<const int64_t> strides) {
  const Dims ones(x.dims().size(), 1);
  const std::span<const int64_t> steps = strides.empty() ? std::span<const int64_t>(ones) : strides;
  Dims dims;
  for (size_t i = 0; i < x.dims().size(); ++i) {
    if (start[i] < 0 || limit[i] > x.dims()[i] || start[i] > limit[i]) {
      x.builder->fail(Code::kInternal, "a slice leaves " + x.type.text());
    }
    dims.push_back((limit[i] - start[i] + steps[i] - 1) / steps[i]);
  }
  if (dims == x.dims()) return x;
  return x.builder->emit_one("stablehlo.slice", {x}, {x.dtype(), dims},
                             "start_indices = " + i64_array(start) + ", limit_indices = " + i64_array(limit) +
                                 ", strides = " + i64_array(steps));
}

Value slice_dim(const Value& x, int64_t dim, int64_t start, int64_t limit, int64_t step) {
  Dims starts(x.dims().size(), 0);
  Dims limits = x.dims();
  Dims steps(x.dims().size(), 1);
  starts[dim] = start;
  limits[dim] = limit;
  steps[dim] = step;
  return slice(x, starts, limits, steps);
}

Value pad(const Value& x, const Value& fill, std::span<const int64_t> low, std::span<const int64_t> high,
          std::span<const int64_t> interior) {
  const Dims none(x.dims().size(), 0);
  if (interior.empty()) interior = none;
  Dims dims;
  bool identity = true;
  for (size_t i = 0; i < x.dims().size(); ++i) {
    const int64_t size = x.dims()[i];
    dims.push_back(size + low[i] + high[i] + (size > 1 ? (size - 1) * interior[i] : 0));
    identity = identity && low[i] == 0 && high[i] == 0 && (interior[i] == 0 || size <= 1);
  }
  if (identity) return x;
  return x.builder->emit_one("stablehlo.pad", {x, fill}, {x.dtype(), dims},
                             "edge_padding_low = " + i64_array(low) + ", edge_padding_high = " +
                                 i64_array(high) + ", interior_padding = " + i64_array(interior));
}

Value concatenate(const Values& parts, int64_t dim) {
  if (parts.size() == 1) return parts[0];
  Type type = parts[0].type;
  type.dims[dim] = 0;
  for (const Value& part : parts) type.dims[dim] += part.dim(dim);
  return parts[0].builder->emit_one("stablehlo.concatenate", parts, type,
                                    "dimension = " + std::to_string(dim) + " : i64");
}

Value reverse(const Value& x, std::span<const int64_t> dims) {
  if (dims.empty()) return x;
  return x.builder->emit_one("stablehlo.reverse", {x}, x.type, "dimensions = " + i64_array(dims));
}

Value dynamic_slice(const Value& x, const Values& starts, std::span<const int64_t> sizes) {
  Values operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return x.builder->emit_one("stablehlo.dynamic_slice", operands, {x.dtype(), Dims(sizes)},
                             "slice_sizes = " + i64_array(sizes));
}

Value dynamic_update_slice(const Value& x, const Value& update, const Values& starts) {
  Values operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return x.builder->emit_one("stablehlo.dynamic_update_slice", operands, x.type);
}

}  // namespace torch_tpu::hlo
