// Runs on the real XLA:CPU plugin when TORCH_TPU_TEST_PLUGIN names one, else on the fake one.
#include "pjrt/executable.h"

#include <array>
#include <atomic>
#include <cmath>
#include <thread>

#include "tests/pjrt/plugin_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::pjrt;
using namespace torch_tpu::testing;

namespace {

constexpr char kAdd[] = R"(module {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>) {
    %c = stablehlo.add %a, %b : tensor<4xf32>
    return %c : tensor<4xf32>
  }
})";

constexpr char kDonatingAdd[] = R"(module {
  func.func public @main(%a: tensor<4xf32> {jax.buffer_donor = true}, %b: tensor<4xf32>) -> tensor<4xf32> {
    %c = stablehlo.add %a, %b : tensor<4xf32>
    return %c : tensor<4xf32>
  }
})";

constexpr char kTwoResults[] = R"(module {
  func.func public @main(%a: tensor<2x3xf32>, %n: tensor<i32>)
      -> (tensor<3x2xf32>, tensor<i32>, tensor<2x0xi1>) {
    %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %e = stablehlo.constant dense<false> : tensor<2x0xi1>
    return %t, %n, %e : tensor<3x2xf32>, tensor<i32>, tensor<2x0xi1>
  }
})";

constexpr char kTerabyte[] = R"(module {
  func.func public @main(%a: tensor<f32>) -> tensor<274877906944xf32> {
    %b = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<274877906944xf32>
    return %b : tensor<274877906944xf32>
  }
})";

constexpr char kMaximum[] = R"(module {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %c = stablehlo.maximum %a, %b : tensor<4xf32>
    return %c : tensor<4xf32>
  }
})";

bool is_real() { return !real_plugin().empty(); }

/// One client for all tests, as in a process of a user.
const Client& shared_client() {
  static const std::shared_ptr<Client> client = [] {
    auto made = make_client(is_real() ? real_plugin() : fake_plugin(), 3);
    if (!made.ok()) {
      std::printf("no client: %s\n", made.status().message().c_str());
      std::exit(1);
    }
    return std::move(made).value();
  }();
  return *client;
}

using Four = std::array<float, 4>;
constexpr Four kLeft{1, 2, 3, 4};
constexpr Four kRight{10, 20, 30, 40};

Result<std::shared_ptr<Buffer>> upload(const Four& values, int device) {
  return shared_client().copy_to_device(values.data(), f32({4}), device);
}

/// What the program adds; the fake plugin hands the first argument back.
Four expected_sum() { return is_real() ? Four{11, 22, 33, 44} : kLeft; }

/// Runs `executable` on kLeft and kRight and checks the sum.
void check_adds(const Executable& executable, int device) {
  const auto left = upload(kLeft, device);
  REQUIRE_OK(left);
  const auto right = upload(kRight, device);
  REQUIRE_OK(right);
  Buffer* const arguments[] = {left->get(), right->get()};
  const auto results = executable.execute(arguments, {}, device);
  REQUIRE_OK(results);
  CHECK_EQ(results->size(), size_t{1});
  Four sum{};
  REQUIRE_OK(results->front()->copy_to_host(sum.data()));
  CHECK(sum == expected_sum());
  CHECK_EQ(results->front()->device_index(), device);
}

TEST(adds_at_both_efforts_on_every_device) {
  for (const Effort effort : {Effort::kQuick, Effort::kFull}) {
    const auto executable = shared_client().compile(kAdd, {effort, {}});
    REQUIRE_OK(executable);
    for (int device = 0; device < 3; ++device) check_adds(**executable, device);
  }
}

TEST(maximum_keeps_nan) {
  if (!is_real()) return;
  for (const Effort effort : {Effort::kQuick, Effort::kFull}) {
    const auto executable = shared_client().compile(kMaximum, {effort, {}});
    REQUIRE_OK(executable);
    const auto left = upload({NAN, 1, NAN, 2}, 0);
    const auto right = upload({1, NAN, NAN, 3}, 0);
    REQUIRE_OK(left);
    REQUIRE_OK(right);
    Buffer* const arguments[] = {left->get(), right->get()};
    const auto results = (*executable)->execute(arguments, {}, 0);
    REQUIRE_OK(results);
    Four content{};
    REQUIRE_OK(results->front()->copy_to_host(content.data()));
    CHECK(std::isnan(content[0]) && std::isnan(content[1]) && std::isnan(content[2]));
    CHECK_EQ(content[3], 3.f);
  }
}

TEST(several_results) {
  const auto executable = shared_client().compile(kTwoResults, {});
  REQUIRE_OK(executable);
  const auto& outputs = (*executable)->outputs();
  CHECK_EQ(outputs.size(), size_t{3});
  if (outputs.size() != 3) return;
  CHECK(outputs[0] == f32({3, 2}));
  CHECK(outputs[1] == (hlo::Type{hlo::DType::kS32, {}}));
  CHECK(outputs[2] == (hlo::Type{hlo::DType::kPred, {2, 0}}));
  const float matrix[6] = {1, 2, 3, 4, 5, 6};
  const int32_t number = 7;
  const auto first = shared_client().copy_to_device(matrix, f32({2, 3}), 0);
  const auto second = shared_client().copy_to_device(&number, {hlo::DType::kS32, {}}, 0);
  REQUIRE_OK(first);
  REQUIRE_OK(second);
  Buffer* const arguments[] = {first->get(), second->get()};
  const auto results = (*executable)->execute(arguments, {}, 0);
  REQUIRE_OK(results);
  float transposed[6];
  int32_t same = 0;
  REQUIRE_OK((*results)[0]->copy_to_host(transposed));
  REQUIRE_OK((*results)[1]->copy_to_host(&same));
  REQUIRE_OK((*results)[2]->copy_to_host(nullptr));
  CHECK_EQ(same, 7);
  if (is_real()) CHECK_EQ(transposed[1], 4.f);
}

TEST(donation) {
  const auto executable = shared_client().compile(kDonatingAdd, {});
  REQUIRE_OK(executable);
  const auto left = upload(kLeft, 0);
  const auto right = upload(kRight, 0);
  REQUIRE_OK(left);
  REQUIRE_OK(right);
  Buffer* const arguments[] = {left->get(), right->get()};

  // Not offered, so kept, though the program would take it.
  REQUIRE_OK((*executable)->execute(arguments, {}, 0));
  CHECK(!(*left)->is_donated());
  Four content{};
  REQUIRE_OK((*left)->copy_to_host(content.data()));
  CHECK(content == kLeft);

  const auto address = (*left)->host_pointer();
  REQUIRE_OK(address);
  const uint8_t donate[] = {1, 0};
  const int64_t live = memory_statistics(0).live_bytes;
  const auto results = (*executable)->execute(arguments, donate, 0);
  REQUIRE_OK(results);
  CHECK((*left)->is_donated());
  CHECK(!(*right)->is_donated());
  CHECK_EQ(memory_statistics(0).live_bytes, live);
  Four sum{};
  REQUIRE_OK(results->front()->copy_to_host(sum.data()));
  CHECK(sum == expected_sum());
  if (is_real()) CHECK(*results->front()->host_pointer() == *address);

  const auto again = (*executable)->execute(arguments, donate, 0);
  CHECK_EQ(again.status().code(), Code::kInvalidArgument);
  CHECK(again.status().message().find("argument 0") != std::string::npos);
}

TEST(donation_that_the_program_does_not_want) {
  const auto executable = shared_client().compile(kAdd, {});
  REQUIRE_OK(executable);
  const auto left = upload(kLeft, 0);
  const auto right = upload(kRight, 0);
  REQUIRE_OK(left);
  REQUIRE_OK(right);
  Buffer* const arguments[] = {left->get(), right->get()};
  const uint8_t donate[] = {1, 1};
  REQUIRE_OK((*executable)->execute(arguments, donate, 0));
  CHECK(!(*left)->is_donated());
  CHECK(!(*right)->is_donated());
}

TEST(wrong_arguments) {
  const auto executable = shared_client().compile(kAdd, {});
  REQUIRE_OK(executable);
  const auto here = upload(kLeft, 0);
  const auto there = upload(kLeft, 1);
  REQUIRE_OK(here);
  REQUIRE_OK(there);
  const auto code = [&](std::vector<Buffer*> arguments, std::vector<uint8_t> donate, int device) {
    const auto outcome = (*executable)->execute(arguments, donate, device);
    CHECK(outcome.ok() || !outcome.status().message().empty());
    return outcome.status().code();
  };
  CHECK_EQ(code({here->get(), nullptr}, {}, 0), Code::kInvalidArgument);
  CHECK_EQ(code({here->get()}, {}, 0), Code::kInvalidArgument);
  CHECK_EQ(code({here->get(), here->get(), here->get()}, {}, 0), Code::kInvalidArgument);
  CHECK_EQ(code({here->get(), there->get()}, {}, 0), Code::kInvalidArgument);
  CHECK_EQ(code({here->get(), here->get()}, {}, 7), Code::kInvalidArgument);
  CHECK_EQ(code({here->get(), here->get()}, {1}, 0), Code::kInvalidArgument);
  CHECK_EQ(code({here->get(), here->get()}, {}, 0), Code::kOk);
}

TEST(same_buffer_donated_and_read) {
  const auto executable = shared_client().compile(kDonatingAdd, {});
  REQUIRE_OK(executable);
  const auto left = upload(kLeft, 0);
  REQUIRE_OK(left);
  Buffer* const arguments[] = {left->get(), left->get()};
  const uint8_t donate[] = {1, 0};
  const auto outcome = (*executable)->execute(arguments, donate, 0);
  CHECK_EQ(outcome.status().code(), Code::kInvalidArgument);
}

/// A result of 1 TB, with what this layer believes of the memory set to `limit`.
void check_terabyte(const std::string& limit) {
  const ScopedVariable variable("TORCH_TPU_MEMORY_LIMIT_BYTES", limit);
  const auto client = make_client(is_real() ? real_plugin() : fake_plugin(), 1);
  REQUIRE_OK(client);
  const auto executable = (*client)->compile(kTerabyte, {});
  REQUIRE_OK(executable);
  const float one = 1;
  const auto scalar = (*client)->copy_to_device(&one, f32({}), 0);
  REQUIRE_OK(scalar);
  Buffer* const arguments[] = {scalar->get()};
  for (int i = 0; i < 3; ++i) {
    const auto outcome = (*executable)->execute(arguments, {}, 0);
    CHECK_EQ(outcome.status().code(), Code::kOutOfMemory);
    CHECK(!outcome.status().message().empty());
  }
  float same = 0;
  REQUIRE_OK((*scalar)->copy_to_host(&same));
  CHECK_EQ(same, 1.f);
}

TEST(out_of_memory) { check_terabyte("0"); }
TEST(out_of_memory_in_the_plugin) { check_terabyte("1000000000000000"); }

TEST(works_after_out_of_memory) {
  const auto executable = shared_client().compile(kAdd, {});
  REQUIRE_OK(executable);
  check_adds(**executable, 0);
}

TEST(bad_programs) {
  for (const Effort effort : {Effort::kQuick, Effort::kFull}) {
    for (const char* text :
         {"", "this is no program", "module {}", "module { func.func public @main(%a: tensor<"}) {
      const auto outcome = shared_client().compile(text, {effort, {}});
      CHECK(!outcome.ok());
      CHECK(!outcome.ok() && outcome.status().message().starts_with("cannot compile a program: "));
      CHECK(outcome.status().message().find('\n') == std::string::npos);
    }
  }
  const auto executable = shared_client().compile(kAdd, {Effort::kQuick, {}});
  REQUIRE_OK(executable);
  check_adds(**executable, 0);
}

TEST(result_type_without_a_name) {
  const auto outcome = shared_client().compile(
      "module { func.func public @main(%a: tensor<4xi4>) -> tensor<4xi4> { return %a : tensor<4xi4> } }", {});
  CHECK_EQ(outcome.status().code(), Code::kUnimplemented);
}

TEST(unknown_option_is_left_out) {
  const auto executable = shared_client().compile(kAdd, {Effort::kFull, {{"xla_no_such_option", "1"}}});
  REQUIRE_OK(executable);
  check_adds(**executable, 0);
}

TEST(serialize_and_load) {
  for (const Effort effort : {Effort::kQuick, Effort::kFull}) {
    const auto executable = shared_client().compile(kDonatingAdd, {effort, {}});
    REQUIRE_OK(executable);
    const auto bytes = (*executable)->serialize();
    REQUIRE_OK(bytes);
    const auto loaded = shared_client().load(*bytes);
    REQUIRE_OK(loaded);
    CHECK((*loaded)->outputs() == (*executable)->outputs());
    // Loaded programs can be written and loaded again.
    const auto second_bytes = (*loaded)->serialize();
    REQUIRE_OK(second_bytes);
    const auto reloaded = shared_client().load(*second_bytes);
    REQUIRE_OK(reloaded);
    for (int device = 0; device < 3; ++device) check_adds(**reloaded, device);
    const auto left = upload(kLeft, 2);
    REQUIRE_OK(left);
    Buffer* const arguments[] = {left->get(), left->get()};
    // The loaded program still declares its donor, and still asks before it takes it.
    REQUIRE_OK((*reloaded)->execute(arguments, {}, 2));
    CHECK(!(*left)->is_deleted());
    CHECK(!shared_client().load(bytes->substr(0, bytes->size() / 2)).ok() || !is_real());
  }
  CHECK(!shared_client().load("").ok());
  CHECK(!shared_client().load("garbage").ok());
}

TEST(memory_of_a_program) {
  const auto executable = shared_client().compile(kDonatingAdd, {});
  REQUIRE_OK(executable);
  const auto memory = (*executable)->memory();
  REQUIRE_OK(memory);
  CHECK_EQ(memory->argument_bytes, 32);
  CHECK_EQ(memory->output_bytes, 16);
  if (is_real()) CHECK_EQ(memory->alias_bytes, 16);
  if (is_real()) CHECK(!(*executable)->fingerprint().empty());
}

TEST(lent_memory_as_argument) {
  alignas(64) static const Four lent = kLeft;
  const auto executable = shared_client().compile(kDonatingAdd, {});
  REQUIRE_OK(executable);
  std::atomic<int> released{0};
  {
    const auto left = shared_client().lend_to_device(lent.data(), f32({4}), 0, [&] { ++released; });
    const auto right = upload(kRight, 0);
    REQUIRE_OK(left);
    REQUIRE_OK(right);
    CHECK(*(*left)->host_pointer() == lent.data());
    Buffer* const arguments[] = {left->get(), right->get()};
    const uint8_t donate[] = {1, 0};
    const auto results = (*executable)->execute(arguments, donate, 0);
    REQUIRE_OK(results);
    Four sum{};
    REQUIRE_OK(results->front()->copy_to_host(sum.data()));
    CHECK(sum == expected_sum());
    CHECK(lent == kLeft);
  }
  CHECK_EQ(released.load(), 1);
}

TEST(many_threads) {
  const auto executable = shared_client().compile(kAdd, {});
  REQUIRE_OK(executable);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int device : {0, 0, 1, 2}) {
    threads.emplace_back([&, device] {
      const auto left = upload(kLeft, device);
      const auto right = upload(kRight, device);
      if (!left.ok() || !right.ok()) {
        ++wrong;
        return;
      }
      Buffer* const arguments[] = {left->get(), right->get()};
      for (int i = 0; i < 500; ++i) {
        const auto results = (*executable)->execute(arguments, {}, device);
        Four sum{};
        if (!results.ok() || !results->front()->copy_to_host(sum.data()).ok() || sum != expected_sum())
          ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

TEST(many_threads_compile) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  const auto client = make_client(is_real() ? real_plugin() : fake_plugin(), 1);
  REQUIRE_OK(client);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      if (!(*client)->compile(kAdd, {Effort::kQuick, {}}).ok()) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

TEST(failing_execution) {
  if (is_real()) return;
  const auto executable = shared_client().compile(kAdd, {});
  REQUIRE_OK(executable);
  const auto left = upload(kLeft, 0);
  REQUIRE_OK(left);
  Buffer* const arguments[] = {left->get(), left->get()};
  const int64_t live = memory_statistics(0).live_bytes;
  const int64_t runs = fake_counter("fake_plugin_executes");
  for (const auto& [kind, code] :
       {std::pair{"execute", Code::kInternal}, std::pair{"oom", Code::kOutOfMemory}}) {
    const ScopedVariable fail("FAKE_PJRT_FAIL", kind);
    CHECK_EQ((*executable)->execute(arguments, {}, 0).status().code(), code);
  }
  CHECK_EQ(fake_counter("fake_plugin_executes"), runs);
  CHECK_EQ(memory_statistics(0).live_bytes, live);
  REQUIRE_OK((*executable)->execute(arguments, {}, 0));
  CHECK_EQ(fake_counter("fake_plugin_executes"), runs + 1);
}

}  // namespace
