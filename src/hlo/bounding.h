// How a bounded program is made; for the sources of hlo/bounded.h only.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hlo/bounded.h"

namespace torch_tpu::hlo {

/// Copies the operations of the largest program into a new one. Throws LoweringError where it cannot.
class Bounding {
 public:
  using Operation = Builder::Operation;
  using Extents = std::vector<Extent>;

  Bounding(std::span<const SizedProgram, 3> programs, Products products)
      : programs_(programs), out_("b", /*keeps_operations=*/false, products) {
    for (const SizedProgram& program : programs) sizes_.push_back(program.size);
  }

  std::string module();

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    out_.fail(Code::kUnimplemented, "no program for all sizes: " + what);
  }

  void declare_parameters();
  /// From one value's dimensions in the three programs.
  void note_extents(const Value& first, const Value& second, const Value& third);

  Extent line(std::array<int64_t, 3> numbers) const;

  // --- extents of values, by their names in the largest program ---------------------------------------
  const Extents& extents_of(const Value& value) const { return extents_.at(value.name); }
  bool varies(const Value& value) const {
    const Extents& extents = extents_of(value);
    return std::any_of(extents.begin(), extents.end(), [](const Extent& extent) { return extent.varies(); });
  }
  bool varies(const Values& values) const {
    return std::any_of(values.begin(), values.end(), [this](const Value& value) { return varies(value); });
  }
  bool varies_in(const Value& value, const Dims& dims) const {
    return std::any_of(dims.begin(), dims.end(), [&](int64_t i) { return extents_of(value)[i].varies(); });
  }

  /// The number at run time, s32.
  Value number(const Extent& extent);

  /// Where all of `dims` are below their extents.
  Value valid(const Value& copy, const Extents& extents, const Dims& dims);

  /// The copy of `value` with `fill` (rank 0) beyond the extents of `dims`.
  Value masked(const Value& value, const Dims& dims, const Value& fill);
  // --- the rules, each for the largest of three operations; `same_attributes`: as in the others -----------
  void copy(size_t index);
  Values rewrite(const std::array<const Operation*, 3>& all, bool same_attributes);
  /// The operation as it is.
  Values plain(const Operation& op);
  /// The operation with other operands.
  Values again(const Operation& op, const Values& operands);
  Value constant(const std::array<const Operation*, 3>& all);
  Values elementwise(const Operation& op);
  Values reduction(const Operation& op, const Dims& dims);
  Value product(const Operation& op);
  Value broadcast(const Operation& op);
  Value reshape(const Operation& op);

  /// A group of dimensions: `count` rows, each with `extent` valid elements of `size`.
  struct Rows {
    int64_t count = 1;
    int64_t size = 1;
    Extent extent{1, 0};
  };
  static constexpr int64_t kMostRows = 64;

  Rows rows_of(const Extents& extents, size_t begin, size_t end) const;

  /// [before, count, size, after] of a group.
  static Dims around(const Value& x, const std::vector<Rows>& groups, size_t group);
  Value joined(const Value& x, const std::vector<Rows>& groups, size_t group);
  Value parted(const Value& x, const std::vector<Rows>& groups, size_t group);
  Value slice(const std::array<const Operation*, 3>& all);
  Value concatenation(const Operation& op);
  Value padding(const std::array<const Operation*, 3>& all);
  Value gather(const Operation& op);
  Value dynamic_slice(const Operation& op);

  /// `x` without its first `count` elements (rank 0, s32) in dimension `dim`, and zeros behind.
  Value moved_to_front(const Value& x, int64_t dim, const Value& count);
  Value reversed(const Operation& op);
  Value convolution(const Operation& op);
  Value update_slice(const Operation& op);

  /// `x` behind `count` zeros (rank 0, s32) in dimension `dim`, without its last elements.
  Value moved_back(const Value& x, int64_t dim, const Value& count);
  Value scatter(const Operation& op);
  Values reduce_window(const Operation& op, bool same_attributes);

  const std::span<const SizedProgram, 3> programs_;
  std::vector<int64_t> sizes_;
  Builder out_;
  Value size_;
  std::unordered_map<std::string, Value> copies_;
  std::unordered_map<std::string, Extents> extents_;
};

}  // namespace torch_tpu::hlo
