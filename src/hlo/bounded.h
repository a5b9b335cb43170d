// Programs for all sizes up to a bound, made of the same program at three sizes.
//
// Whatever differs between the three must be a linear function of the size: dimensions, limits of slices,
// constants. The bounded program computes with the largest dimensions; of each value, the part that starts at
// zero and has the dimensions of the size given at run time is valid, and the rest is arbitrary. Operations
// that would let the rest leak into the valid part (a sum over such a dimension, a concatenation) are given
// masks or other offsets; what has no such form is refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "hlo/builder.h"

namespace torch_tpu::hlo {

/// offset + slope * size.
struct Extent {
  int64_t offset = 0;
  int64_t slope = 0;

  int64_t at(int64_t size) const { return offset + slope * size; }
  bool varies() const { return slope != 0; }
  bool operator==(const Extent&) const = default;
};

/// The line through three points (sizes[i], numbers[i]); nothing when they lie on none with whole
/// coefficients.
std::optional<Extent> extent_through(std::span<const int64_t> sizes, std::span<const int64_t> numbers);

/// A program at one size; the builder keeps its operations.
struct SizedProgram {
  int64_t size;
  const Builder* builder;
  Values results;
};

/// Takes the parameters of `programs[0]`, the one with the largest size, and after them the size as
/// tensor<i32>. kUnimplemented, with the operation, where there is no such program.
Result<std::string> bounded_module(std::span<const SizedProgram, 3> programs, Products products);

}  // namespace torch_tpu::hlo
