// Operations with regions: reductions, windows, dots, gather, scatter, sort, loops.
#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

std::string list(std::span<const int64_t> numbers) {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(numbers[i]);
  }
  return text + "]";
}

Dims or_fill(const Dims& dims, size_t rank, int64_t number) {
  return dims.empty() ? Dims(rank, number) : dims;
}

std::string padding_text(const Dims& low, const Dims& high) {
  if (low.empty()) return "dense<0> : tensor<0x2xi64>";
  std::string text = "dense<[";
  for (size_t i = 0; i < low.size(); ++i) {
    if (i > 0) text += ", ";
    text += "[" + std::to_string(low[i]) + ", " + std::to_string(high[i]) + "]";
  }
  return text + "]> : tensor<" + std::to_string(low.size()) + "x2xi64>";
}

std::vector<Type> scalar_types(const Values& values, int copies) {
  std::vector<Type> types;
  for (int copy = 0; copy < copies; ++copy) {
    for (const Value& value : values) types.push_back({value.dtype(), {}});
  }
  return types;
}

}  // namespace

Value neutral(Builder& builder, Reduction kind, DType dtype) {
  const Type type{dtype, {}};
  switch (kind) {
    case Reduction::kSum:
    case Reduction::kOr:
      return builder.splat(int64_t{0}, type);
    case Reduction::kProduct:
      return builder.splat(int64_t{1}, type);
    case Reduction::kAnd:
      return builder.splat(int64_t{dtype == DType::kPred ? 1 : -1}, type);
    case Reduction::kMax:
      return builder.lowest(type);
    case Reduction::kMin:
      return builder.highest(type);
  }
  return {};
}

Region combiner(Reduction kind) {
  return [kind](const Values& x) -> Values {
    switch (kind) {
      case Reduction::kSum:
        return {x[0] + x[1]};
      case Reduction::kProduct:
        return {x[0] * x[1]};
      case Reduction::kAnd:
        return {x[0] & x[1]};
      case Reduction::kOr:
        return {x[0] | x[1]};
      default:
        break;
    }
    const Compare direction = kind == Reduction::kMax ? Compare::kGt : Compare::kLt;
    if (!is_float(x[0].dtype())) return {kind == Reduction::kMax ? maximum(x[0], x[1]) : minimum(x[0], x[1])};
    // Written out, because XLA:CPU's library reduction drops NaN from a plain maximum.
    return {select(compare(direction, x[0], x[1]) | is_nan(x[0]), x[0], x[1])};
  };
}

Values reduce(const Values& operands, const Values& inits, std::span<const int64_t> dims,
              const Region& body) {
  Builder& builder = *operands[0].builder;
  Dims kept;
  for (int64_t i = 0; i < operands[0].rank(); ++i) {
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) kept.push_back(operands[0].dim(i));
  }
  std::vector<Type> results;
  for (const Value& operand : operands) results.push_back({operand.dtype(), kept});
  Values all = operands;
  all.insert(all.end(), inits.begin(), inits.end());
  Dims sorted(dims);
  std::sort(sorted.begin(), sorted.end());
  return builder.emit("stablehlo.reduce", all, results, "dimensions = " + i64_array(sorted),
                      {builder.region(scalar_types(operands, 2), body)});
}

Value reduce(const Value& x, Reduction kind, std::span<const int64_t> dims) {
  if (dims.empty()) return x;
  return reduce({x}, {neutral(*x.builder, kind, x.dtype())}, dims, combiner(kind))[0];
}

Value reduce_keep(const Value& x, Reduction kind, std::span<const int64_t> dims) {
  Dims kept = x.dims();
  for (const int64_t dim : dims) kept[dim] = 1;
  return reshape(reduce(x, kind, dims), kept);
}

namespace {

bool contains(const Dims& set, int64_t i) { return std::find(set.begin(), set.end(), i) != set.end(); }

/// `x` and its dimension lists without the dimensions of `removed`, whose size is one.
Value without(const Value& x, const Dims& removed, std::initializer_list<Dims*> lists) {
  Dims kept;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (!contains(removed, i)) kept.push_back(x.dim(i));
  }
  for (Dims* list : lists) {
    Dims renumbered;
    for (const int64_t i : *list) {
      const auto before = std::count_if(removed.begin(), removed.end(), [i](int64_t r) { return r < i; });
      if (!contains(removed, i)) renumbered.push_back(i - before);
    }
    *list = renumbered;
  }
  return reshape(x, kept);
}

// The elements that are neither in batches nor summed.
int64_t free_elements(const Value& x, const Dims& batch, const Dims& contract) {
  int64_t elements = 1;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (!contains(batch, i) && !contains(contract, i)) elements *= x.dim(i);
  }
  return elements;
}

// The operand before it was transposed, with its dimensions renamed, when its free dimensions stay in order.
bool read_untransposed(Value& operand, Dims& batch, Dims& contract) {
  const auto* transposed = operand.builder->transposed_source(operand);
  if (transposed == nullptr) return false;
  int64_t last = -1;
  for (int64_t i = 0; i < operand.rank(); ++i) {
    if (contains(batch, i) || contains(contract, i)) continue;
    if (transposed->permutation[static_cast<size_t>(i)] < last) return false;
    last = transposed->permutation[static_cast<size_t>(i)];
  }
  for (Dims* dims : {&batch, &contract}) {
    for (int64_t& dim : *dims) dim = transposed->permutation[static_cast<size_t>(dim)];
  }
  operand = Value(transposed->source);
  return true;
}

Type product_type(const Value& lhs, const Value& rhs, const DotDims& dims, DType result) {
  Type type{result, {}};
  for (const int64_t i : dims.lhs_batch) type.dims.push_back(lhs.dim(i));
  for (int64_t i = 0; i < lhs.rank(); ++i) {
    if (!contains(dims.lhs_batch, i) && !contains(dims.lhs_contract, i)) type.dims.push_back(lhs.dim(i));
  }
  for (int64_t i = 0; i < rhs.rank(); ++i) {
    if (!contains(dims.rhs_batch, i) && !contains(dims.rhs_contract, i)) type.dims.push_back(rhs.dim(i));
  }
  return type;
}

/// The last two dimensions behind `batches` equal ones; whether the summed one is the first of them.
std::optional<bool> is_summed_first(const Value& x, const Dims& batch, const Dims& contract) {
  const auto batches = static_cast<int64_t>(batch.size());
  if (x.rank() != batches + 2 || contract.size() != 1 || contract[0] < batches) return std::nullopt;
  for (int64_t i = 0; i < batches; ++i) {
    if (batch[i] != i) return std::nullopt;
  }
  return contract[0] == batches;
}

std::string row_major(int64_t rank) {
  std::string text = "dense<[";
  for (int64_t i = rank; i-- > 0;) text += std::to_string(i) + (i > 0 ? ", " : "");
  return text + "]> : tensor<" + std::to_string(rank) + "xindex>";
}

// The product by the host kernel, where there is one and it is faster: no Value elsewhere. XLA:CPU is as fast
// unless the summed dimension of lhs comes first, as in the gradients of weights, where it takes 1.3 to 5
// times as long.
Value host_product(const Value& lhs, const Value& rhs, const DotDims& dims, DType result) {
  constexpr int64_t kFewestProducts = int64_t{1} << 18;
  if (lhs.builder->products() != Products::kHost) return {};
  if (lhs.dtype() != DType::kF32 && lhs.dtype() != DType::kF64) return {};
  if (rhs.dtype() != lhs.dtype() || result != lhs.dtype()) return {};
  Value a = lhs;
  Value b = rhs;
  DotDims read = dims;
  read_untransposed(a, read.lhs_batch, read.lhs_contract);
  read_untransposed(b, read.rhs_batch, read.rhs_contract);
  const auto transposes_lhs = is_summed_first(a, read.lhs_batch, read.lhs_contract);
  const auto keeps_rhs = is_summed_first(b, read.rhs_batch, read.rhs_contract);
  if (!transposes_lhs || !*transposes_lhs || !keeps_rhs) return {};
  const int64_t summed = a.dim(read.lhs_contract[0]);
  const Type type = product_type(lhs, rhs, dims, result);
  const bool is_vector = type.dims.back() == 1 || type.dims[type.dims.size() - 2] == 1;
  if (is_vector || type.elements() * summed < kFewestProducts) return {};
  const std::pair<std::string, int64_t> attribute{"transpose_rhs", !*keeps_rhs};
  return host_call(kMatrixProduct, {a, b}, type, {&attribute, 1});
}

}  // namespace

Value host_call(std::string_view kernel, const Values& inputs, const Type& result,
                std::span<const std::pair<std::string, int64_t>> attributes) {
  std::string config;
  for (const auto& [name, number] : attributes)
    config += (config.empty() ? "" : ", ") + name + " = " + std::to_string(number) + " : i64";
  std::string layouts;
  for (const Value& input : inputs) layouts += (layouts.empty() ? "" : ", ") + row_major(input.rank());
  return inputs[0].builder->emit_one("stablehlo.custom_call", inputs, result,
                                     "call_target_name = \"" + std::string(kernel) +
                                         "\", api_version = 4 : i32, backend_config = {" + config +
                                         "}, operand_layouts = [" + layouts + "], result_layouts = [" +
                                         row_major(result.rank()) + "]");
}

Value dot_general(const Value& lhs, const Value& rhs, const DotDims& dims, DType result) {
  const Type type = product_type(lhs, rhs, dims, result);
  // XLA reads the matrices of matrix products in any order, but transposes those of a product with a vector.
  if (free_elements(lhs, dims.lhs_batch, dims.lhs_contract) == 1 ||
      free_elements(rhs, dims.rhs_batch, dims.rhs_contract) == 1) {
    Value a = lhs;
    Value b = rhs;
    DotDims direct = dims;
    const bool any = read_untransposed(a, direct.lhs_batch, direct.lhs_contract) |
                     read_untransposed(b, direct.rhs_batch, direct.rhs_contract);
    if (any) return dot_general(a, b, direct, result);
  }
  DotDims rest = dims;
  Dims lhs_units, rhs_units;
  for (size_t i = 0; i < dims.lhs_batch.size(); ++i) {
    if (lhs.dim(dims.lhs_batch[i]) != 1) continue;
    lhs_units.push_back(dims.lhs_batch[i]);
    rhs_units.push_back(dims.rhs_batch[i]);
  }
  // XLA:CPU cannot run a bf16 dot of a transposed operand in a batch of one.
  if (!lhs_units.empty()) {
    const Value a = without(lhs, lhs_units, {&rest.lhs_batch, &rest.lhs_contract});
    const Value b = without(rhs, rhs_units, {&rest.rhs_batch, &rest.rhs_contract});
    return reshape(dot_general(a, b, rest, result), type.dims);
  }
  const std::string attributes =
      "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = " + list(dims.lhs_batch) +
      ", rhs_batching_dimensions = " + list(dims.rhs_batch) +
      ", lhs_contracting_dimensions = " + list(dims.lhs_contract) +
      ", rhs_contracting_dimensions = " + list(dims.rhs_contract) +
      ">, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]";
  return lhs.builder->emit_one("stablehlo.dot_general", {lhs, rhs}, type, attributes);
}

Value product(const Value& lhs, const Value& rhs, const DotDims& dims, DType result) {
  const Value by_host = host_product(lhs, rhs, dims, result);
  return by_host ? by_host : dot_general(lhs, rhs, dims, result);
}

Value convolution(const Value& input, const Value& kernel, const Window& window, const ConvolutionDims& dims,
                  int64_t feature_groups, int64_t batch_groups, const Type& result) {
  const size_t rank = input.dims().size() - 2;
  std::string reversal = "array<i1";
  for (size_t i = 0; i < rank; ++i) reversal += i == 0 ? ": false" : ", false";
  const std::string attributes =
      "window_strides = " + i64_array(or_fill(window.strides, rank, 1)) + ", padding = " +
      padding_text(or_fill(window.padding_low, rank, 0), or_fill(window.padding_high, rank, 0)) +
      ", lhs_dilation = " + i64_array(or_fill(window.base_dilation, rank, 1)) +
      ", rhs_dilation = " + i64_array(or_fill(window.window_dilation, rank, 1)) +
      ", window_reversal = " + reversal + ">, dimension_numbers = #stablehlo.conv<" + dims.input + "x" +
      dims.kernel + "->" + dims.output + ">, feature_group_count = " + std::to_string(feature_groups) +
      " : i64, batch_group_count = " + std::to_string(batch_groups) +
      " : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]";
  return input.builder->emit_one("stablehlo.convolution", {input, kernel}, result, attributes);
}

Values reduce_window(const Values& operands, const Values& inits, const Window& window, const Region& body) {
  const Value& x = operands[0];
  const size_t rank = x.dims().size();
  const Dims strides = or_fill(window.strides, rank, 1);
  const Dims low = or_fill(window.padding_low, rank, 0);
  const Dims high = or_fill(window.padding_high, rank, 0);
  const Dims base = or_fill(window.base_dilation, rank, 1);
  const Dims dilation = or_fill(window.window_dilation, rank, 1);
  Dims dims;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t size = x.dims()[i] == 0 ? 0 : (x.dims()[i] - 1) * base[i] + 1;
    const int64_t padded = size + low[i] + high[i];
    const int64_t extent = (window.size[i] - 1) * dilation[i] + 1;
    dims.push_back(padded < extent ? 0 : (padded - extent) / strides[i] + 1);
  }
  std::vector<Type> results;
  for (const Value& operand : operands) results.push_back({operand.dtype(), dims});
  Values all = operands;
  all.insert(all.end(), inits.begin(), inits.end());
  const std::string attributes =
      "window_dimensions = " + i64_array(window.size) + ", window_strides = " + i64_array(strides) +
      ", base_dilations = " + i64_array(base) + ", window_dilations = " + i64_array(dilation) +
      ", padding = " + padding_text(low, high);
  return x.builder->emit("stablehlo.reduce_window", all, results, attributes,
                         {x.builder->region(scalar_types(operands, 2), body)});
}

Value reduce_window(const Value& x, Reduction kind, const Window& window) {
  return reduce_window({x}, {neutral(*x.builder, kind, x.dtype())}, window, combiner(kind))[0];
}

Value gather(const Value& x, const Value& indices, const GatherDims& dims, bool sorted) {
  // Batch dimensions come from the indices in order; offset dimensions sit where offset_dims says.
  const int64_t batch_rank = indices.rank() - (dims.index_vector_dim < indices.rank() ? 1 : 0);
  const int64_t rank = batch_rank + static_cast<int64_t>(dims.offset_dims.size());
  Dims offsets;
  for (size_t i = 0; i < dims.slice_sizes.size(); ++i) {
    const auto& collapsed = dims.collapsed_slice_dims;
    if (std::find(collapsed.begin(), collapsed.end(), static_cast<int64_t>(i)) == collapsed.end()) {
      offsets.push_back(dims.slice_sizes[i]);
    }
  }
  Type type{x.dtype(), {}};
  int64_t batch = 0;
  size_t offset = 0;
  for (int64_t i = 0; i < rank; ++i) {
    if (std::find(dims.offset_dims.begin(), dims.offset_dims.end(), i) != dims.offset_dims.end()) {
      type.dims.push_back(offsets[offset++]);
    } else {
      if (batch == dims.index_vector_dim) ++batch;
      type.dims.push_back(indices.dim(batch++));
    }
  }
  const std::string attributes =
      "dimension_numbers = #stablehlo.gather<offset_dims = " + list(dims.offset_dims) +
      ", collapsed_slice_dims = " + list(dims.collapsed_slice_dims) +
      ", start_index_map = " + list(dims.start_index_map) +
      ", index_vector_dim = " + std::to_string(dims.index_vector_dim) +
      ">, slice_sizes = " + i64_array(dims.slice_sizes) +
      ", indices_are_sorted = " + (sorted ? "true" : "false");
  return x.builder->emit_one("stablehlo.gather", {x, indices}, type, attributes);
}

Value scatter(const Value& x, const Value& indices, const Value& updates, const ScatterDims& dims,
              const Region& combine) {
  const std::string attributes =
      "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = " + list(dims.update_window_dims) +
      ", inserted_window_dims = " + list(dims.inserted_window_dims) +
      ", scatter_dims_to_operand_dims = " + list(dims.scatter_dims_to_operand_dims) +
      ", index_vector_dim = " + std::to_string(dims.index_vector_dim) +
      ">, indices_are_sorted = false, unique_indices = " + (dims.unique_indices ? "true" : "false");
  return x.builder->emit_one("stablehlo.scatter", {x, indices, updates}, x.type, attributes,
                             {x.builder->region(scalar_types({x}, 2), combine)});
}

Values sort(const Values& operands, int64_t dim, bool stable, const Region& less) {
  Builder& builder = *operands[0].builder;
  std::vector<Type> results;
  std::vector<Type> pairs;
  for (const Value& operand : operands) {
    results.push_back(operand.type);
    pairs.push_back({operand.dtype(), {}});
    pairs.push_back({operand.dtype(), {}});
  }
  return builder.emit(
      "stablehlo.sort", operands, results,
      "dimension = " + std::to_string(dim) + " : i64, is_stable = " + (stable ? "true" : "false"),
      {builder.region(pairs, less)});
}

Values while_loop(const Values& state, const Region& condition, const Region& body) {
  Builder& builder = *state[0].builder;
  std::vector<Type> types;
  for (const Value& value : state) types.push_back(value.type);
  const std::string condition_text = builder.region(types, condition);
  const std::string body_text = builder.region(types, body);
  return builder.emit("stablehlo.while", state, types, {}, {condition_text, body_text});
}

}  // namespace torch_tpu::hlo
