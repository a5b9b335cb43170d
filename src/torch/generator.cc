#include "torch/generator.h"

#include <ATen/core/Tensor.h>

#include <cstring>
#include <deque>
#include <mutex>

#include "engine/runtime.h"
#include "torch/copy.h"

namespace torch_tpu {
namespace {
constexpr size_t kStateBytes = 16;
}

TpuGenerator::TpuGenerator(c10::DeviceIndex device_index)
    : c10::GeneratorImpl(c10::Device(c10::kPrivateUse1, device_index),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void TpuGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t TpuGenerator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

c10::intrusive_ptr<c10::TensorImpl> TpuGenerator::get_state() const {
  at::Tensor state = empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte);
  auto* bytes = static_cast<char*>(state.mutable_data_ptr());
  std::memcpy(bytes, &seed_, sizeof seed_);
  std::memcpy(bytes + sizeof seed_, &offset_, sizeof offset_);
  return state.getIntrusivePtr();
}

void TpuGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                   "RNG state must be a torch.ByteTensor on the CPU");
  TORCH_CHECK(state.numel() == static_cast<int64_t>(kStateBytes) && state.is_contiguous(),
              "RNG state of tpu must have 16 bytes (seed, offset), got ", state.numel());
  const auto* bytes = static_cast<const char*>(state.data());
  std::memcpy(&seed_, bytes, sizeof seed_);
  std::memcpy(&offset_, bytes + sizeof seed_, sizeof offset_);
}

void TpuGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  const auto* other = dynamic_cast<const TpuGenerator*>(state.get());
  TORCH_CHECK(other != nullptr, "the state of a tpu generator was expected");
  seed_ = other->seed_;
  offset_ = other->offset_;
}

c10::intrusive_ptr<c10::GeneratorImpl> TpuGenerator::graphsafe_get_state() const { return clone(); }

std::pair<uint64_t, uint64_t> TpuGenerator::draw(int64_t blocks) {
  const uint64_t start = offset_;
  offset_ += static_cast<uint64_t>(blocks);
  return {seed_, start};
}

TpuGenerator* TpuGenerator::clone_impl() const {
  auto* copy = new TpuGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(int device_index) {
  static std::mutex mutex;
  static auto& generators = *new std::deque<at::Generator>;  // addresses stay valid as it grows
  const std::lock_guard lock(mutex);
  const int index = device_index < 0 ? 0 : device_index;
  while (static_cast<int>(generators.size()) <= index) {
    generators.push_back(at::make_generator<TpuGenerator>(static_cast<c10::DeviceIndex>(generators.size())));
  }
  return generators[index];
}

std::pair<uint64_t, uint64_t> draw_random(const std::optional<at::Generator>& generator, int device_index,
                                          int64_t blocks) {
  at::Generator source =
      generator.has_value() && generator->defined() ? *generator : default_generator(device_index);
  auto* tpu = dynamic_cast<TpuGenerator*>(source.unsafeGetGeneratorImpl());
  TORCH_CHECK(tpu != nullptr, "Expected a 'tpu' device type for generator but found '",
              source.device().type(), "'");
  const std::lock_guard lock(tpu->mutex_);
  return tpu->draw(blocks);
}

}  // namespace torch_tpu
