#include "engine/family.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "ops/op.h"

namespace torch_tpu::engine {
namespace {

constexpr int64_t kLeastBound = 16;
constexpr size_t kMostMembers = 8;
constexpr size_t kMostFamilies = 4096;
// A size in which this much time was spent, up to half of it for nothing, is worth a compilation.
constexpr double kSecondsBeforeOwn = 2.0;

/// Walks over all integers of a program that its size may change: dimensions of leaves; of each needed call
/// the dimensions of inputs, the integer arguments, the dimensions of outputs. `visit` may change them.
template <class Visit>
void visit_dims(hlo::Dims& dims, Visit& visit) {
  for (int64_t& dim : dims) visit(dim);
}

struct Integers {
  std::vector<int64_t> numbers;
  std::vector<uint8_t> is_dimension;  // of a leaf or a result; others may be modes, and no size
};

Integers integers_of(const Program& program) {
  Integers integers;
  const auto add = [&](const int64_t& number) {
    integers.numbers.push_back(number);
    integers.is_dimension.push_back(0);
  };
  const auto add_dims = [&](const hlo::Dims& dims) {
    for (const int64_t dim : dims) {
      integers.numbers.push_back(dim);
      integers.is_dimension.push_back(1);
    }
  };
  for (const uint32_t leaf : program.leaves)
    add_dims(program.graph.leaves[leaf].outcome->buffer->type().dims);
  for (size_t i = 0; i < program.graph.nodes.size(); ++i) {
    if (!program.needed[i]) continue;
    const ops::Call& call = *program.graph.nodes[i].call;
    for (const hlo::Type& type : call.inputs) add_dims(type.dims);
    for (const ops::Arg& arg : call.args) ops::visit_integers(arg, add);
    for (const hlo::Type& type : call.outputs) add_dims(type.dims);
  }
  return integers;
}

void append_without_dims(Hash128& hash, const hlo::Type& type) {
  hash.append(static_cast<uint64_t>(type.dtype) << 32 | type.dims.size());
}

/// Of everything but the integers.
Hash128 skeleton_of(const Program& program) {
  Hash128 hash;
  for (const uint32_t leaf : program.leaves)
    append_without_dims(hash, program.graph.leaves[leaf].outcome->buffer->type());
  for (const int32_t successor : program.successors) hash.append(static_cast<uint64_t>(successor));
  for (const uint32_t result : program.results) hash.append(uint64_t{result});
  for (size_t i = 0; i < program.graph.nodes.size(); ++i) {
    hash.append(uint64_t{program.needed[i]});
    if (!program.needed[i]) continue;
    const Graph::Node& node = program.graph.nodes[i];
    const ops::Call& call = *node.call;
    hash.append(call.body == nullptr ? call.op->identity : call.hash);
    hash.append(static_cast<uint64_t>(call.default_dtype));
    for (const Reference reference : program.graph.references_of(node))
      hash.append(static_cast<uint64_t>(reference));
    for (const hlo::Type& type : call.inputs) append_without_dims(hash, type);
    for (const hlo::Type& type : call.outputs) append_without_dims(hash, type);
    for (const ops::Arg& arg : call.args) ops::append_without_integers(hash, arg);
    for (const ops::ScalarSlot& slot : call.scalars)
      hash.append(static_cast<uint64_t>(slot.dtype) << 1 | uint64_t{slot.wrapped});
  }
  return hash;
}

// Powers of two; for large sizes, where time goes to computing rather than compiling, with three steps
// between.
int64_t bound_for(int64_t size) {
  constexpr int64_t kLarge = 256;
  int64_t bound = kLeastBound;
  while (bound < size) bound *= 2;
  if (size <= kLarge) return bound;
  const int64_t step = bound / 8;
  return (size + step - 1) / step * step;
}

/// Bounds to try: a power of two, or what a dimension that stays limits the size to (a part of a tensor).
std::vector<int64_t> bounds_for(const Program& program, const std::vector<hlo::Extent>& extents,
                                int64_t size) {
  std::vector<int64_t> bounds{bound_for(size)};
  auto extent = extents.begin();
  for (const uint32_t leaf : program.leaves) {
    for (const int64_t dim : program.graph.leaves[leaf].outcome->buffer->type().dims) {
      const bool stays = !(extent++)->varies();
      if (stays && dim >= std::max(size, kLeastBound) && dim < bounds[0]) bounds.push_back(dim);
    }
  }
  std::sort(bounds.begin() + 1, bounds.end(), std::greater<>());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  return bounds;
}

/// The calls and leaves of a program at another size.
struct Resized {
  std::vector<ops::CallPtr> calls;  // parallel to the nodes; null where not needed
  std::vector<hlo::Type> leaf_types;
};

Result<Resized> resize(const Program& program, const std::vector<hlo::Extent>& extents, int64_t size) {
  Resized resized;
  auto extent = extents.begin();
  const auto set = [&](int64_t& number) { number = (extent++)->at(size); };
  for (const uint32_t leaf : program.leaves) {
    hlo::Type type = program.graph.leaves[leaf].outcome->buffer->type();
    visit_dims(type.dims, set);
    resized.leaf_types.push_back(std::move(type));
  }
  for (size_t i = 0; i < program.graph.nodes.size(); ++i) {
    resized.calls.emplace_back();
    if (!program.needed[i]) continue;
    const ops::Call& original = *program.graph.nodes[i].call;
    ops::Call call = original;
    for (hlo::Type& type : call.inputs) visit_dims(type.dims, set);
    for (ops::Arg& arg : call.args) ops::visit_integers(arg, set);
    RETURN_IF_ERROR(ops::infer(call));
    std::vector<hlo::Type> expected = original.outputs;
    for (hlo::Type& type : expected) visit_dims(type.dims, set);
    if (call.outputs != expected || call.random_blocks < original.random_blocks)
      return Status(Code::kUnimplemented, call.op->name + " has other results at another size");
    resized.calls.back() = std::make_shared<const ops::Call>(std::move(call));
  }
  return resized;
}

}  // namespace

bool Families::lies_on(const Line& line, const Numbers& numbers) {
  const int64_t size = numbers[line.base];
  return std::equal(numbers.begin(), numbers.end(), line.extents.begin(),
                    [size](int64_t number, const hlo::Extent& extent) { return number == extent.at(size); });
}

std::optional<Families::Line> Families::line_through(const Numbers& a, const Numbers& b, const Numbers& c,
                                                     std::span<const uint8_t> is_dimension) {
  // The integer that changes least, so that the others are whole multiples of it.
  std::optional<size_t> base;
  bool is_size = false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || a[i] == c[i] || b[i] == c[i]) continue;
    is_size = is_size || is_dimension[i];
    if (!base || std::abs(a[i] - b[i]) < std::abs(a[*base] - b[*base])) base = i;
  }
  if (!is_size) return std::nullopt;
  Line line{*base, {}, {}};
  const std::array<int64_t, 3> sizes{a[*base], b[*base], c[*base]};
  for (size_t i = 0; i < a.size(); ++i) {
    const auto extent = hlo::extent_through(sizes, std::array<int64_t, 3>{a[i], b[i], c[i]});
    // What shrinks would be out of range at the bound, which lowerings leave to their callers to check.
    if (!extent || extent->slope < 0) return std::nullopt;
    line.extents.push_back(*extent);
  }
  return line;
}

// The line on which `numbers` and enough members lie. Otherwise they become a member.
Families::Line* Families::learn(Family& family, const Numbers& numbers,
                                std::span<const uint8_t> is_dimension) {
  for (Line& line : family.lines) {
    if (lies_on(line, numbers)) return &line;
  }
  const std::vector<Numbers>& members = family.members;
  const auto is_known = [&](const Numbers& member) { return member == numbers; };
  if (std::any_of(members.begin(), members.end(), is_known)) return nullptr;
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t k = i + 1; k < members.size(); ++k) {
      auto line = line_through(numbers, members[i], members[k], is_dimension);
      if (!line) continue;
      const auto count = std::count_if(members.begin(), members.end(),
                                       [&](const Numbers& member) { return lies_on(*line, member); });
      if (count < own_sizes_) continue;
      return &family.lines.emplace_back(std::move(*line));
    }
  }
  if (family.members.size() == kMostMembers) family.members.erase(family.members.begin());
  family.members.push_back(numbers);
  return nullptr;
}

Families::Match Families::find(const Program& program) {
  if (own_sizes_ <= 0) return {};
  const Hash128 skeleton = skeleton_of(program);
  const auto [numbers, is_dimension] = integers_of(program);
  const std::lock_guard lock(mutex_);
  if (families_.size() == kMostFamilies && !families_.contains(skeleton)) families_.clear();
  const auto spent = spent_seconds_.find(program.key);
  const bool takes_long = spent != spent_seconds_.end() && spent->second > kSecondsBeforeOwn;
  if (takes_long && !program.graph.in_buckets) return {};
  Family& family = families_[skeleton];
  if (family.is_hopeless) return {};
  Line* line = learn(family, numbers, is_dimension);
  if (line == nullptr) return {};
  const int64_t size = numbers[line->base];
  const auto known = line->by_bound.lower_bound(size);
  if (known != line->by_bound.end() && (known->second == nullptr || known->first <= bound_for(size)))
    return {known->second, size};
  std::shared_ptr<BoundedProgram> made;
  for (const int64_t bound : bounds_for(program, line->extents, size)) {
    auto resized = resize(program, line->extents, bound);
    if (!resized.ok()) continue;
    made = std::make_shared<BoundedProgram>();
    made->bound = bound;
    made->extents = line->extents;
    made->leaf_types = std::move(resized->leaf_types);
    made->key = skeleton;
    made->key.append(std::string_view("bounded"));
    made->key.append(static_cast<uint64_t>(bound));
    for (const hlo::Extent& extent : line->extents) {
      made->key.append(static_cast<uint64_t>(extent.offset));
      made->key.append(static_cast<uint64_t>(extent.slope));
    }
    break;
  }
  // No bound at all is remembered too.
  line->by_bound[made != nullptr ? made->bound : bound_for(size)] = made;
  return {made, size};
}

Result<std::string> emit(const Program& program, const BoundedProgram& bounded, const Target& target) {
  std::array<hlo::Builder, 3> builders{hlo::Builder({}, true), hlo::Builder({}, true),
                                       hlo::Builder({}, true)};
  std::vector<hlo::SizedProgram> sized;
  for (size_t i = 0; i < builders.size(); ++i) {
    const int64_t size = bounded.bound - static_cast<int64_t>(i);
    ASSIGN_OR_RETURN(const Resized resized, resize(program, bounded.extents, size));
    ASSIGN_OR_RETURN(hlo::Values results,
                     append(builders[i], program, resized.calls, resized.leaf_types, target));
    sized.push_back({size, &builders[i], std::move(results)});
  }
  return hlo::bounded_module(std::span<const hlo::SizedProgram, 3>(sized), target.products);
}

void Families::spend(const Program& program, double seconds) {
  const std::lock_guard lock(mutex_);
  if (spent_seconds_.size() >= 16 * kMostFamilies) spent_seconds_.clear();
  spent_seconds_[program.key] += seconds;
}

void Families::give_up(const Program& program) {
  const std::lock_guard lock(mutex_);
  families_[skeleton_of(program)].is_hopeless = true;
}

}  // namespace torch_tpu::engine
