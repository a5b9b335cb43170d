// A queue over a plugin, and small operators to record in it.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/counters.h"
#include "engine/queue.h"
#include "ops/op.h"
#include "tests/pjrt/plugin_under_test.h"

namespace torch_tpu::testing {

using engine::TensorPtr;
using hlo::Dims;
using hlo::DType;
using hlo::Type;

OP("test::add") { return {op.tensor(0) + op.tensor(1)}; }
OP("test::multiply") { return {op.tensor(0) * op.tensor(1)}; }
OP("test::negate") { return {-op.tensor(0)}; }
OP("test::both") { return {op.tensor(0) + op.tensor(1), op.tensor(0) - op.tensor(1)}; }
OP("test::add_number") { return {op.tensor(0) + op.scalar(1, op.tensor(0).dtype())}; }
OP("test::fill") { return {op.builder().splat(op.integer(0), {DType::kF32, {4}})}; }
/// `rounds` negations in one op: different programs for different numbers.
OP("test::chain") {
  ops::Value x = op.tensor(0);
  for (int64_t i = 0; i < op.integer(1); ++i) x = -x;
  return {x};
}

/// The value, or the end of the test program: for what no test expects to fail.
template <typename T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::printf("unexpected failure: %s\n", result.status().message().c_str());
  std::exit(1);
}

inline bool is_real() { return !real_plugin().empty(); }

/// One client per plugin for all tests, as in a process of a user.
inline std::shared_ptr<pjrt::Client> shared_client(const std::string& plugin) {
  static std::map<std::string, std::shared_ptr<pjrt::Client>> clients;
  auto& client = clients[plugin];
  if (client == nullptr) client = must(make_client(plugin, 1));
  return client;
}

inline uint64_t word(double number) { return std::bit_cast<uint64_t>(number); }
inline uint64_t word(int64_t number) { return static_cast<uint64_t>(number); }

/// A device with nothing recorded and nothing compiled. The window of the cut rule is read here.
struct Engine {
  std::shared_ptr<pjrt::Client> client;
  cache::ProgramCache cache{1000};
  engine::Queue queue;

  explicit Engine(const std::string& plugin = fake_plugin())
      : client(shared_client(plugin)), queue(client, cache, 0) {}

  template <typename Number>
  TensorPtr upload(const std::vector<Number>& numbers, const Type& type) {
    return queue.adopt(must(client->copy_to_device(numbers.data(), type, 0)));
  }
  /// f32[4]
  TensorPtr four(float first = 1) {
    return upload<float>({first, first + 1, first + 2, first + 3}, f32({4}));
  }

  static ops::CallPtr call(std::string_view op, std::span<const TensorPtr> inputs,
                           const std::vector<ops::Arg>& more = {},
                           const std::vector<ops::ScalarSlot>& scalars = {}) {
    ops::Call call;
    call.op = ops::find_op(op);
    call.hash.append(call.op->identity);
    for (size_t i = 0; i < inputs.size(); ++i) {
      call.args.push_back(ops::TensorArg{static_cast<int>(i)});
      call.inputs.push_back(inputs[i]->type);
      inputs[i]->type.append_to(call.hash);
    }
    for (const ops::Arg& arg : more) {
      call.args.push_back(arg);
      if (const auto* number = std::get_if<int64_t>(&arg)) call.hash.append(static_cast<uint64_t>(*number));
      if (const auto* dtype = std::get_if<DType>(&arg)) call.hash.append(static_cast<uint64_t>(*dtype));
      if (const auto* list = std::get_if<std::vector<int64_t>>(&arg)) {
        call.hash.append(uint64_t{list->size()});
        for (const int64_t number : *list) call.hash.append(static_cast<uint64_t>(number));
      }
    }
    call.scalars = scalars;
    for (const ops::ScalarSlot& slot : scalars) call.hash.append(static_cast<uint64_t>(slot.dtype));
    const Status status = ops::infer(call);
    if (!status.ok()) must(Result<int>(status));
    return std::make_shared<const ops::Call>(std::move(call));
  }

  Result<std::vector<TensorPtr>> try_record(std::string_view op, const std::vector<TensorPtr>& inputs,
                                            const std::vector<ops::Arg>& more = {}) {
    return queue.record(call(op, inputs, more), inputs, {});
  }
  /// The first result.
  TensorPtr record(std::string_view op, const std::vector<TensorPtr>& inputs,
                   const std::vector<ops::Arg>& more = {}) {
    return must(try_record(op, inputs, more))[0];
  }
  TensorPtr add(const TensorPtr& a, const TensorPtr& b) { return record("test::add", {a, b}); }
  TensorPtr negate(const TensorPtr& a) { return record("test::negate", {a}); }

  template <typename Number = float>
  std::vector<Number> read(const TensorPtr& tensor) {
    const auto buffer = must(queue.materialize(tensor));
    std::vector<Number> content(static_cast<size_t>(tensor->type.elements()));
    const Status status = buffer->copy_to_host(content.data());
    if (!status.ok()) must(Result<int>(status));
    return content;
  }
};

/// How far the counters went since this object was made.
class Counts {
 public:
  int64_t ops() const { return now().ops_recorded - start_[0]; }
  int64_t programs() const { return now().programs_run - start_[1]; }
  int64_t compiles() const { return now().compiles - start_[2]; }
  int64_t hits() const { return now().cache_hits - start_[3]; }
  int64_t donations() const { return now().donated_buffers - start_[4]; }

 private:
  static engine::Counters& now() { return engine::counters(); }
  int64_t start_[5] = {now().ops_recorded, now().programs_run, now().compiles, now().cache_hits,
                       now().donated_buffers};
};

/// Fused mode unless told otherwise, restored at the end.
class ScopedMode {
 public:
  explicit ScopedMode(engine::Mode mode) : previous_(engine::mode()) { engine::set_mode(mode); }
  ~ScopedMode() { engine::set_mode(previous_); }
  ScopedMode(const ScopedMode&) = delete;
  ScopedMode& operator=(const ScopedMode&) = delete;

 private:
  const engine::Mode previous_;
};

}  // namespace torch_tpu::testing
