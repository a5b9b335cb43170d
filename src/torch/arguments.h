// The arguments of one ATen call, gathered for recording.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <span>

#include "base/inline_vector.h"
#include "engine/tensor.h"
#include "ops/call.h"
#include "torch/binding.h"

namespace torch_tpu {

/// Walks the arguments of one call: gathers run-time inputs and the hash of everything else.
class Arguments {
 public:
  Arguments(const Binding& binding, const c10::IValue* values);

  const Hash128& hash() const { return hash_; }
  std::span<const engine::TensorPtr> inputs() const { return {inputs_.data(), inputs_.size()}; }
  InlineVector<uint64_t, 8>& words() { return words_; }
  const std::optional<at::Generator>& generator() const { return generator_; }
  int device_index() const;

  /// The full description; only for signatures seen for the first time.
  ops::Call describe() const;

 private:
  void gather(int i);
  void gather_tensor(int i, const at::Tensor& tensor);
  void gather_number(const Argument& argument, const c10::IValue& number);
  void append_number(const c10::IValue& number);
  void use_device(const at::Tensor& tensor);
  bool is_constant(const Argument& argument, const c10::IValue& number) const;
  ops::Arg describe(int i, int& input, int& slot) const;

  const Binding& binding_;
  const c10::IValue* values_;
  Hash128 hash_;
  c10::SmallVector<engine::TensorPtr, 4> inputs_;
  InlineVector<uint64_t, 8> words_;
  InlineVector<ops::ScalarSlot, 8> slots_;
  std::optional<at::Generator> generator_;
  int device_index_ = -1;
};

}  // namespace torch_tpu
