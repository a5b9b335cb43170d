// Reading the text that the builder writes.
#pragma once

#include <string>
#include <string_view>

#include "hlo/types.h"

namespace torch_tpu::hlo {

/// The integers that follow `key` in an operation's attributes: of "array<i64: 1, 2>", "[1, 2]" or "1 : i64".
Dims numbers_of(const std::string& attributes, std::string_view key);

/// Whether the text of a region uses a value from outside of it.
bool captures(const std::string& region);

}  // namespace torch_tpu::hlo
