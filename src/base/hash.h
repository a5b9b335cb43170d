// A 128-bit hash that grows by appending words: the identity of calls, programs and cache entries.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

namespace torch_tpu {

/// Two independent 64-bit lanes. Deterministic across processes and machines of equal endianness.
struct Hash128 {
  uint64_t low = 0x9e3779b97f4a7c15ull;
  uint64_t high = 0xc2b2ae3d27d4eb4full;

  void append(uint64_t word) {
    low = mix(low ^ word, 0xa0761d6478bd642full);
    high = mix(high + word, 0xe7037ed1a0b428dbull) ^ (low >> 7);
  }
  void append(const Hash128& other) {
    append(other.low);
    append(other.high);
  }
  void append(double number) {
    uint64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    append(bits);
  }
  void append(std::string_view text) {
    append(static_cast<uint64_t>(text.size()));
    for (size_t i = 0; i < text.size(); i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min(sizeof word, text.size() - i));
      append(word);
    }
  }

  bool operator==(const Hash128&) const = default;

  /// 32 hexadecimal digits.
  std::string hex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (uint64_t lane : {high, low}) {
      for (int shift = 60; shift >= 0; shift -= 4) text.push_back(kDigits[(lane >> shift) & 15]);
    }
    return text;
  }

 private:
  static uint64_t mix(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ (a << 32 | a >> 32);
  }
};

}  // namespace torch_tpu

template <>
struct std::hash<torch_tpu::Hash128> {
  size_t operator()(const torch_tpu::Hash128& hash) const noexcept { return hash.low; }
};
