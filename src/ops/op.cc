#include "ops/op.h"

#include <unordered_map>

namespace torch_tpu::ops {
namespace {

struct Registry {
  std::vector<const Op*> ops;
  std::unordered_map<std::string_view, const Op*> by_name;
  std::vector<std::string> duplicates;
};

Registry& registry() {
  static Registry& instance = *new Registry;  // never destroyed: kernels may outlive static order
  return instance;
}

}  // namespace

Registrar::Registrar(const char* name, Traits traits, LowerFunction lower) {
  auto* op = new Op{name, std::move(traits), lower, {}};
  op->identity.append(std::string_view(name));
  if (registry().by_name.emplace(op->name, op).second) {
    registry().ops.push_back(op);
  } else {
    registry().duplicates.push_back(op->name);
  }
}

const std::vector<const Op*>& all_ops() { return registry().ops; }
const std::vector<std::string>& duplicate_ops() { return registry().duplicates; }

const Op* find_op(std::string_view name) {
  const auto found = registry().by_name.find(name);
  return found == registry().by_name.end() ? nullptr : found->second;
}

Value Lowering::tensor(int i) const {
  const Arg& arg = call_.args[i];
  if (const auto* tensor = std::get_if<TensorArg>(&arg)) return inputs_[tensor->input];
  if (std::holds_alternative<std::monostate>(arg)) fail(Code::kInternal, "a tensor argument is missing");
  return scalar(i);
}

Values Lowering::tensors(int i) const {
  Values values;
  if (!has(i)) return values;
  for (const int input : std::get<TensorListArg>(call_.args[i]).inputs) {
    values.push_back(input < 0 ? Value{} : inputs_[input]);
  }
  return values;
}

Value Lowering::scalar(int i) const {
  const Arg& arg = call_.args[i];
  Value value;
  if (const auto* slot = std::get_if<ScalarArg>(&arg)) {
    value = numbers_.scalars[slot->slot];
    value.wrapped = call_.scalars[slot->slot].wrapped;
    return value;
  }
  if (const auto* number = std::get_if<double>(&arg)) value = builder_.splat(*number, {DType::kF64, {}});
  if (const auto* number = std::get_if<int64_t>(&arg)) value = builder_.splat(*number, {DType::kS64, {}});
  if (const auto* number = std::get_if<bool>(&arg))
    value = builder_.splat(*number ? 1.0 : 0.0, {DType::kPred, {}});
  if (value.builder == nullptr) fail(Code::kInternal, "argument " + std::to_string(i) + " is not a number");
  value.wrapped = true;
  return value;
}

Values Lowering::scalars(int i) const {
  Values values;
  for (const int slot : std::get<ScalarListArg>(call_.args[i]).slots) {
    values.push_back(numbers_.scalars[slot]);
    values.back().wrapped = call_.scalars[slot].wrapped;
  }
  return values;
}

Value Lowering::scalar(int i, DType dtype) const {
  if (const auto value = number(i)) return builder_.splat(*value, {dtype, {}});
  Value value = hlo::convert(scalar(i), dtype);
  value.wrapped = false;
  return value;
}

std::optional<double> Lowering::number(int i) const {
  const Arg& arg = call_.args[i];
  if (const auto* number = std::get_if<double>(&arg)) return *number;
  if (const auto* number = std::get_if<int64_t>(&arg)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<bool>(&arg)) return *number ? 1.0 : 0.0;
  return std::nullopt;
}

double Lowering::constant(int i) const {
  const auto value = number(i);
  if (!value) fail(Code::kInternal, "argument " + std::to_string(i) + " is not declared structural");
  return *value;
}

int64_t Lowering::integer(int i) const { return std::get<int64_t>(call_.args[i]); }
bool Lowering::flag(int i) const { return has(i) && std::get<bool>(call_.args[i]); }

std::vector<int64_t> Lowering::integers(int i) const {
  return has(i) ? std::get<std::vector<int64_t>>(call_.args[i]) : std::vector<int64_t>();
}

std::vector<double> Lowering::numbers(int i) const {
  return has(i) ? std::get<std::vector<double>>(call_.args[i]) : std::vector<double>();
}

std::vector<bool> Lowering::flags(int i) const {
  return has(i) ? std::get<std::vector<bool>>(call_.args[i]) : std::vector<bool>();
}

std::string Lowering::text(int i) const {
  return has(i) ? std::get<std::string>(call_.args[i]) : std::string();
}

std::optional<DType> Lowering::dtype(int i) const {
  if (!has(i)) return std::nullopt;
  return std::get<DType>(call_.args[i]);
}

int64_t Lowering::wrap_dim(int64_t dim, int64_t rank) const {
  const int64_t bound = rank == 0 ? 1 : rank;
  if (dim < -bound || dim >= bound) {
    fail(Code::kIndexError, "Dimension out of range (expected to be in range of [" + std::to_string(-bound) +
                                ", " + std::to_string(bound - 1) + "], but got " + std::to_string(dim) + ")");
  }
  return dim < 0 ? dim + bound : dim;
}

int64_t Lowering::dim(int i, int64_t rank) const { return wrap_dim(integer(i), rank); }

Dims Lowering::dims(int i, int64_t rank) const {
  Dims dims;
  std::vector<int64_t> given;
  if (has(i)) {
    const auto* single = std::get_if<int64_t>(&call_.args[i]);
    given = single != nullptr ? std::vector<int64_t>{*single} : integers(i);
  }
  for (const int64_t entry : given) {
    const int64_t dim = wrap_dim(entry, rank);
    if (std::find(dims.begin(), dims.end(), dim) != dims.end()) {
      fail("dim " + std::to_string(dim) + " appears multiple times in the list of dims");
    }
    if (rank > 0) dims.push_back(dim);
  }
  return dims;
}

Dims Lowering::dims_or_all(int i, int64_t rank) const {
  const bool none =
      !has(i) || (std::holds_alternative<std::vector<int64_t>>(call_.args[i]) && integers(i).empty());
  if (!none) return dims(i, rank);
  Dims all;
  for (int64_t dim = 0; dim < rank; ++dim) all.push_back(dim);
  return all;
}

namespace {

// Rotations and key schedule of Threefry-2x32 with 20 rounds: Salmon et al., "Parallel Random
// Numbers: As Easy as 1, 2, 3" (SC'11), table 2.
constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
constexpr int64_t kParity = 0x1BD11BDA;

Value rotate_left(const Value& x, int bits) {
  return hlo::binary("shift_left", x, hlo::like(x, bits)) |
         hlo::binary("shift_right_logical", x, hlo::like(x, 32 - bits));
}

Values threefry(const Values& arguments) {
  const Value& key0 = arguments[0];
  const Value& key1 = arguments[1];
  Value x0 = arguments[2] + key0;
  Value x1 = arguments[3] + key1;
  const Value keys[3] = {key1, key0 ^ key1 ^ key0.builder->splat(kParity, key0.type), key0};
  for (int group = 0; group < 5; ++group) {
    for (const int bits : kRotations[group % 2]) {
      x0 = x0 + x1;
      x1 = rotate_left(x1, bits) ^ x0;
    }
    x0 = x0 + keys[group % 3];
    x1 = x1 + keys[(group + 1) % 3] + static_cast<double>(group + 1);
  }
  return {x0, x1};
}

}  // namespace

Value Lowering::random_bits(int64_t count) {
  const int64_t blocks = (count + 1) / 2;
  const Type scalar{DType::kU32, {}};
  const auto halves = [&](const Value& word) {
    const Value wide = hlo::convert(word, DType::kU64);
    const Value high = hlo::binary("shift_right_logical", wide, hlo::like(wide, 32));
    return std::pair{hlo::convert(wide, DType::kU32), hlo::convert(high, DType::kU32)};
  };
  const auto [key0, key1] = halves(numbers_.seed);
  // The counter is offset + index in 64 bits, split into two words.
  const Value index = builder_.iota({DType::kU64, {blocks}}, 0);
  const Value first =
      hlo::convert(numbers_.offset, DType::kU64) + builder_.splat(random_blocks_, {DType::kU64, {}});
  const auto [low, high] = halves(index + first);
  random_blocks_ += blocks;
  const Values words = builder_.call(
      "threefry", {hlo::broadcast_to(key0, low.dims()), hlo::broadcast_to(key1, low.dims()), low, high},
      threefry);
  const Value all = hlo::concatenate({words[0], words[1]}, 0);
  return hlo::slice_dim(all, 0, 0, count);
}

void Lowering::check(const Value& bad, const Value& values, Code code, std::string message) {
  const Value none = builder_.splat(kNoOffender, {DType::kS64, {}});
  // The number that stands for "none" cannot be an offender; the one above it tells as much.
  const Value numbers = maximum(hlo::convert(values, DType::kS64), none + 1.0);
  const Value marked = select(bad, numbers, none);
  Dims dims;
  for (int64_t dim = 0; dim < marked.rank(); ++dim) dims.push_back(dim);
  offenders_.push_back(hlo::reduce(marked, hlo::Reduction::kMax, dims));
  checks_.push_back({code, std::move(message)});
}

void Lowering::check(const Value& bad, Code code, std::string message) {
  check(bad, builder_.splat(int64_t{0}, {DType::kS64, {}}), code, std::move(message));
}

void Lowering::adopt(const std::vector<Check>& checks, const Values& offenders) {
  checks_.insert(checks_.end(), checks.begin(), checks.end());
  offenders_.insert(offenders_.end(), offenders.begin(), offenders.end());
}

namespace {

Result<Values> run(Lowering& lowering, const Op& op) {
  try {
    return op.lower(lowering);
  } catch (const hlo::LoweringError& error) {
    return Status(error.code, error.what());
  } catch (const std::bad_variant_access&) {
    return Status(Code::kInternal, "the lowering of " + op.name + " read an argument as the wrong kind");
  }
}

}  // namespace

Result<Lowered> lower(Builder& builder, const Call& call, const Values& inputs, const RunTimeNumbers& numbers,
                      const std::string& source) {
  builder.comment(call.op->name + (source.empty() ? "" : "  " + source));
  Lowering lowering(builder, call, inputs, numbers);
  ASSIGN_OR_RETURN(Values results, run(lowering, *call.op));
  std::erase_if(results, [](const Value& result) { return result.builder == nullptr; });
  for (Value& result : results) result.wrapped = false;  // a result is a tensor, whatever it was made of
  return Lowered{std::move(results), lowering.offenders()};
}

Status infer(Call& call) {
  Builder builder;
  Values inputs;
  for (const Type& type : call.inputs) inputs.push_back(builder.parameter(type));
  const RunTimeNumbers numbers =
      run_time_numbers(call, [&](const ScalarSlot& slot) { return builder.parameter({slot.dtype, {}}); });
  Lowering lowering(builder, call, inputs, numbers);
  ASSIGN_OR_RETURN(const Values results, run(lowering, *call.op));
  call.outputs.clear();
  call.returned.clear();
  for (const Value& result : results) {
    call.returned.push_back(static_cast<bool>(result));
    if (result) call.outputs.push_back(result.type);
  }
  call.random_blocks = lowering.random_blocks();
  call.checks = lowering.checks();
  return {};
}

}  // namespace torch_tpu::ops
