#include "hlo/bounded.h"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "hlo/bounding.h"
#include "hlo/operation_text.h"

namespace torch_tpu::hlo {
namespace {

constexpr std::string_view kElementwise[] = {"abs",
                                             "add",
                                             "and",
                                             "atan2",
                                             "bitcast_convert",
                                             "cbrt",
                                             "ceil",
                                             "clamp",
                                             "compare",
                                             "complex",
                                             "convert",
                                             "cosine",
                                             "count_leading_zeros",
                                             "divide",
                                             "exponential",
                                             "exponential_minus_one",
                                             "floor",
                                             "imag",
                                             "is_finite",
                                             "log",
                                             "log_plus_one",
                                             "logistic",
                                             "maximum",
                                             "minimum",
                                             "multiply",
                                             "negate",
                                             "not",
                                             "optimization_barrier",
                                             "or",
                                             "popcnt",
                                             "power",
                                             "real",
                                             "reduce_precision",
                                             "remainder",
                                             "round_nearest_afz",
                                             "round_nearest_even",
                                             "rsqrt",
                                             "select",
                                             "shift_left",
                                             "shift_right_arithmetic",
                                             "shift_right_logical",
                                             "sign",
                                             "sine",
                                             "sqrt",
                                             "subtract",
                                             "tan",
                                             "tanh",
                                             "xor"};

bool is_elementwise(std::string_view name) {
  if (name.starts_with("chlo.")) return true;
  constexpr std::string_view kDialect = "stablehlo.";
  return name.starts_with(kDialect) && std::find(std::begin(kElementwise), std::end(kElementwise),
                                                 name.substr(kDialect.size())) != std::end(kElementwise);
}

bool contains(const Dims& set, int64_t i) { return std::find(set.begin(), set.end(), i) != set.end(); }

}  // namespace

std::string Bounding::module() {
  declare_parameters();
  const auto& operations = programs_[0].builder->operations();
  for (const SizedProgram& program : programs_) {
    if (program.builder->operations().size() != operations.size()) refuse("another number of operations");
  }
  for (size_t i = 0; i < operations.size(); ++i) copy(i);
  Values results;
  for (const Value& result : programs_[0].results) results.push_back(copies_.at(result.name));
  out_.copy_functions(*programs_[0].builder);
  return out_.module(results);
}

void Bounding::declare_parameters() {
  const auto& parameters = programs_[0].builder->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [value, result] = parameters[i];
    note_extents(value, programs_[1].builder->parameters()[i].value,
                 programs_[2].builder->parameters()[i].value);
    copies_.emplace(value.name, out_.parameter(value.type, result));
  }
  size_ = out_.parameter({DType::kS32, {}});
}

void Bounding::note_extents(const Value& first, const Value& second, const Value& third) {
  if (first.rank() != second.rank() || first.rank() != third.rank() || first.dtype() != second.dtype())
    refuse("other ranks");
  Extents extents;
  for (int64_t i = 0; i < first.rank(); ++i) {
    extents.push_back(line({first.dim(i), second.dim(i), third.dim(i)}));
    if (extents.back().slope < 0) refuse("a dimension that shrinks");
  }
  extents_[first.name] = std::move(extents);
}

Extent Bounding::line(std::array<int64_t, 3> numbers) const {
  const auto extent = extent_through(sizes_, numbers);
  if (!extent) refuse("a number that is no linear function of the size");
  return *extent;
}

// --- what is added to the program ---------------------------------------------------------------------
Value Bounding::number(const Extent& extent) {
  if (!extent.varies()) return out_.splat(extent.offset, {DType::kS32, {}});
  Value value = size_;
  if (extent.slope != 1) value = value * out_.splat(extent.slope, {DType::kS32, {}});
  return extent.offset == 0 ? value : value + out_.splat(extent.offset, {DType::kS32, {}});
}

Value Bounding::valid(const Value& copy, const Extents& extents, const Dims& dims) {
  Value all;
  for (const int64_t i : dims) {
    if (!extents[i].varies()) continue;
    const Value inside =
        hlo::compare(Compare::kLt, out_.iota({DType::kS32, copy.dims()}, i), number(extents[i]));
    all = all ? all & inside : inside;
  }
  return all;
}

Value Bounding::masked(const Value& value, const Dims& dims, const Value& fill) {
  const Value copy = copies_.at(value.name);
  const Value mask = valid(copy, extents_of(value), dims);
  return mask ? select(mask, copy, broadcast_to(fill, copy.dims())) : copy;
}

// --- the rules ---------------------------------------------------------------------------------------
void Bounding::copy(size_t index) {
  std::array<const Operation*, 3> all;
  for (size_t i = 0; i < all.size(); ++i) all[i] = &programs_[i].builder->operations()[index];
  const Operation& op = *all[0];
  for (const Operation* other : all) {
    if (other->name != op.name || other->operands.size() != op.operands.size() ||
        other->results.size() != op.results.size() || other->regions != op.regions)
      refuse(op.name + " beside " + other->name);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (other->operands[i].name != op.operands[i].name) refuse(op.name + " of other values");
    }
  }
  if (std::any_of(op.regions.begin(), op.regions.end(), captures)) refuse(op.name + " with captured values");
  for (size_t i = 0; i < op.results.size(); ++i)
    note_extents(op.results[i], all[1]->results[i], all[2]->results[i]);
  const bool same_attributes = op.attributes == all[1]->attributes && op.attributes == all[2]->attributes;
  const Values results = rewrite(all, same_attributes);
  for (size_t i = 0; i < results.size(); ++i) copies_.emplace(op.results[i].name, results[i]);
}

Values Bounding::rewrite(const std::array<const Operation*, 3>& all, bool same_attributes) {
  const Operation& op = *all[0];
  const std::string_view name = op.name;
  if (name == "stablehlo.constant") return {constant(all)};
  if (name == "stablehlo.slice") return {slice(all)};
  const bool is_static = !varies(op.operands) && !varies(op.results);
  if (is_static && same_attributes) return plain(op);
  if (name == "stablehlo.concatenate" && same_attributes) return {concatenation(op)};
  if (name == "stablehlo.pad") return {padding(all)};
  if (name == "stablehlo.gather") return {gather(op)};
  if (name == "stablehlo.dynamic_slice") return {dynamic_slice(op)};
  if (name == "stablehlo.reduce_window") return reduce_window(op, same_attributes);
  if (!same_attributes) refuse(op.name + " with other attributes");
  if (is_elementwise(name)) return elementwise(op);
  if (name == "stablehlo.reduce") return reduction(op, numbers_of(op.attributes, "dimensions"));
  if (name == "stablehlo.dot_general") return {product(op)};
  if (name == "stablehlo.reshape") return {reshape(op)};
  if (name == "func.call") return elementwise(op);  // the only functions are the rounds of random bits
  if (name == "stablehlo.iota" || name == "stablehlo.transpose") return plain(op);
  if (name == "stablehlo.broadcast_in_dim") return {broadcast(op)};
  if (name == "stablehlo.dynamic_update_slice") return {update_slice(op)};
  if (name == "stablehlo.scatter") return {scatter(op)};
  if (name == "stablehlo.reverse") return {reversed(op)};
  if (name == "stablehlo.convolution") return {convolution(op)};
  if (name == "stablehlo.sort" && !varies_in(op.operands[0], numbers_of(op.attributes, "dimension")))
    return plain(op);
  refuse(op.name);
}

Values Bounding::plain(const Operation& op) {
  Values operands;
  for (const Value& operand : op.operands) operands.push_back(copies_.at(operand.name));
  return again(op, operands);
}

Values Bounding::again(const Operation& op, const Values& operands) {
  std::vector<Type> types;
  for (const Value& result : op.results) types.push_back(result.type);
  return out_.emit(op.name, operands, types, op.attributes, op.regions);
}

// A number that depends on the size becomes one of run time.
Value Bounding::constant(const std::array<const Operation*, 3>& all) {
  const Operation& op = *all[0];
  std::array<std::string, 3> elements;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& text = all[i]->attributes;
    elements[i] = text.substr(0, text.find("> : "));
  }
  if (elements[0] == elements[1] && elements[0] == elements[2]) {
    // A list has dimensions of its own.
    if (elements[0].find('[') != std::string::npos && varies(op.results)) refuse("a list of numbers");
    return plain(op)[0];
  }
  std::array<int64_t, 3> numbers;
  for (size_t i = 0; i < all.size(); ++i) {
    const char* begin = elements[i].c_str() + std::string_view("value = dense<").size();
    char* end = nullptr;
    const double number = std::strtod(begin, &end);
    const bool is_hexadecimal = std::string_view(begin).starts_with("0x");
    if (*end != '\0' || is_hexadecimal || number != std::floor(number) || std::fabs(number) > (1 << 24))
      refuse("a constant " + elements[i]);
    numbers[i] = static_cast<int64_t>(number);
  }
  const Value value = convert(number(line(numbers)), op.results[0].dtype());
  return broadcast_to(value, op.results[0].dims());
}

Values Bounding::elementwise(const Operation& op) {
  const Extents& extents = extents_of(op.results[0]);
  for (const Value& operand : op.operands) {
    const bool is_scalar =
        operand.rank() == 0 && (op.name == "stablehlo.select" || op.name == "stablehlo.clamp");
    if (!is_scalar && extents_of(operand) != extents) refuse(op.name + " of other dimensions");
  }
  return plain(op);
}

Values Bounding::reduction(const Operation& op, const Dims& dims) {
  const size_t count = op.operands.size() / 2;
  Values operands;
  for (size_t i = 0; i < count; ++i)
    operands.push_back(masked(op.operands[i], dims, copies_.at(op.operands[count + i].name)));
  for (size_t i = count; i < op.operands.size(); ++i) operands.push_back(copies_.at(op.operands[i].name));
  return again(op, operands);
}

Value Bounding::product(const Operation& op) {
  const auto numbers = [&](std::string_view key) { return numbers_of(op.attributes, key); };
  const DotDims dims{numbers("lhs_batching_dimensions"), numbers("rhs_batching_dimensions"),
                     numbers("lhs_contracting_dimensions"), numbers("rhs_contracting_dimensions")};
  const auto zeros_beyond = [&](const Value& operand, const Dims& contract) {
    return masked(operand, contract, out_.splat(0.0, {operand.dtype(), {}}));
  };
  return hlo::product(zeros_beyond(op.operands[0], dims.lhs_contract),
                      zeros_beyond(op.operands[1], dims.rhs_contract), dims, op.results[0].dtype());
}

Value Bounding::broadcast(const Operation& op) {
  const Dims mapping = numbers_of(op.attributes, "broadcast_dimensions");
  for (size_t i = 0; i < mapping.size(); ++i) {
    const Extent& from = extents_of(op.operands[0])[i];
    const bool spreads = !from.varies() && op.operands[0].dim(static_cast<int64_t>(i)) == 1;
    if (!spreads && !(from == extents_of(op.results[0])[mapping[i]]))
      refuse(op.name + " of other dimensions");
  }
  return plain(op)[0];
}

// Indices beyond their extents give rows that nobody reads; the operand's own dimensions are taken whole.
Value Bounding::gather(const Operation& op) {
  const Dims sizes = numbers_of(op.attributes, "slice_sizes");
  const Dims collapsed = numbers_of(op.attributes, "collapsed_slice_dims");
  for (int64_t i = 0; i < op.operands[0].rank(); ++i) {
    const bool is_whole = sizes[i] == op.operands[0].dim(i) || contains(collapsed, i);
    if (extents_of(op.operands[0])[i].varies() && !is_whole) refuse("a gather of windows");
  }
  return plain(op)[0];
}

// Windows see zeros beyond the valid elements, as they see their padding.
Value Bounding::convolution(const Operation& op) {
  if (varies(op.operands[1])) refuse("a kernel of any size");
  const size_t at = op.attributes.find("#stablehlo.conv<[");
  Dims spatial;
  int64_t dim = 0;
  for (size_t i = at + std::string_view("#stablehlo.conv<[").size(); op.attributes[i] != ']'; ++i) {
    const char name = op.attributes[i];
    if (name == ' ' || name == ',') continue;
    if (name == 'f' && extents_of(op.operands[0])[dim].varies()) refuse("features of any number");
    if (std::isdigit(static_cast<unsigned char>(name))) spatial.push_back(dim);
    ++dim;
  }
  const Value input = masked(op.operands[0], spatial, out_.splat(0.0, {op.operands[0].dtype(), {}}));
  return again(op, {input, copies_.at(op.operands[1].name)})[0];
}

// Updates beyond their extents get indices that are out of range, which drops them.
Value Bounding::scatter(const Operation& op) {
  if (op.operands.size() != 3) refuse("a scatter of several operands");
  const Value& x = op.operands[0];
  const Value& indices = op.operands[1];
  const Value& updates = op.operands[2];
  const Dims window = numbers_of(op.attributes, "update_window_dims");
  const Dims inserted = numbers_of(op.attributes, "inserted_window_dims");
  size_t next = 0;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (contains(inserted, i)) continue;
    const Extent& part = extents_of(updates)[window[next++]];
    if (part.varies() && !(part == extents_of(x)[i])) refuse("an update that grows");
  }
  Dims all;
  for (int64_t i = 0; i < indices.rank(); ++i) all.push_back(i);
  const Value outside = masked(indices, all, out_.splat(int64_t{-1}, {indices.dtype(), {}}));
  return again(op, {copies_.at(x.name), outside, copies_.at(updates.name)})[0];
}

// Windows see neutral elements beyond the valid ones. Those that grow end at each element: running sums.
Values Bounding::reduce_window(const Operation& op, bool same_attributes) {
  if (same_attributes) {
    Dims dims;
    for (int64_t i = 0; i < op.operands[0].rank(); ++i) dims.push_back(i);
    return reduction(op, dims);
  }
  const Dims size = numbers_of(op.attributes, "window_dimensions");
  const Dims stride = numbers_of(op.attributes, "window_strides");
  const size_t padding_at = op.attributes.find("padding = dense<[");
  if (padding_at == std::string::npos) refuse(op.name);
  std::string text = op.attributes.substr(padding_at + std::string_view("padding = dense<").size());
  text = text.substr(0, text.find('>'));
  std::replace(text.begin(), text.end(), ']', ' ');
  const Dims padding = numbers_of("p = " + text + ">", "p");
  for (int64_t i = 0; i < op.operands[0].rank(); ++i) {
    if (!extents_of(op.operands[0])[i].varies()) continue;
    const bool runs = padding[2 * i] == size[i] - 1 && padding[2 * i + 1] == 0 && stride[i] == 1;
    if (!runs || (size[i] != 1 && size[i] != op.operands[0].dim(i))) refuse("windows over the size");
  }
  return plain(op);
}

std::optional<Extent> extent_through(std::span<const int64_t> sizes, std::span<const int64_t> numbers) {
  const int64_t step = sizes[0] - sizes[1];
  const int64_t rise = numbers[0] - numbers[1];
  if (step == 0 || rise % step != 0) return std::nullopt;
  const Extent extent{numbers[0] - rise / step * sizes[0], rise / step};
  if (extent.at(sizes[2]) != numbers[2]) return std::nullopt;
  return extent;
}

Result<std::string> bounded_module(std::span<const SizedProgram, 3> programs, Products products) {
  try {
    return Bounding(programs, products).module();
  } catch (const LoweringError& error) {
    return Status(error.code, error.what());
  }
}

}  // namespace torch_tpu::hlo
