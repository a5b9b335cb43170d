// Random generators of the device: a seed and an offset on the host, drawn from in blocks.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>
#include <utility>

namespace torch_tpu {

/// State: 16 bytes, uint64 seed then int64 offset, as DTensor reads it. The offset counts 64-bit
/// blocks of the Threefry stream.
class TpuGenerator final : public c10::GeneratorImpl {
 public:
  explicit TpuGenerator(c10::DeviceIndex device_index);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  static c10::DeviceType device_type() { return c10::kPrivateUse1; }

  /// The current (seed, offset); advances the offset by `blocks`. The caller holds mutex_.
  std::pair<uint64_t, uint64_t> draw(int64_t blocks);

 private:
  TpuGenerator* clone_impl() const override;
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

/// The default generator of a device, made on first use.
const at::Generator& default_generator(int device_index);

/// Draws from `generator` (or the device's default). Raises for a generator of another device type.
std::pair<uint64_t, uint64_t> draw_random(const std::optional<at::Generator>& generator, int device_index,
                                          int64_t blocks);

}  // namespace torch_tpu
