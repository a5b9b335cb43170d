#include "pjrt/client.h"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/pjrt/plugin_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::pjrt;
using namespace torch_tpu::testing;

namespace {

constexpr char kProgram[] =
    "module { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> } }";

alignas(64) float aligned[16] = {1, 2, 3, 4};

TEST(devices) {
  const auto client = make_client(fake_plugin(), 3);
  REQUIRE_OK(client);
  CHECK_EQ((*client)->devices().size(), size_t{3});
  CHECK_EQ((*client)->platform(), Platform::kCpu);
  CHECK_EQ((*client)->platform_name(), std::string("cpu"));
  CHECK_EQ((*client)->devices()[2].id, 2);
  CHECK_EQ((*client)->devices()[2].local_index, 2);
  CHECK_EQ((*client)->devices()[2].kind, std::string("fake"));
  CHECK((*client)->devices()[0].memory_bytes > 1 << 20);
  CHECK(!make_client(fake_plugin(), 0).ok());
  CHECK(!make_client(fake_plugin(), kMaxDevices + 1).ok());
}

TEST(refused_option_is_dropped) {
  {
    const ScopedVariable refuse("FAKE_PJRT_REFUSE_OPTION", "asynchronous");
    const auto client = make_client(fake_plugin(), 2);
    REQUIRE_OK(client);
    CHECK_EQ((*client)->devices().size(), size_t{2});
  }
  const ScopedVariable refuse("FAKE_PJRT_REFUSE_OPTION", "cpu_device_count");
  const auto client = make_client(fake_plugin(), 2);
  REQUIRE_OK(client);
  CHECK_EQ((*client)->devices().size(), size_t{4});
}

TEST(memory_limit) {
  const ScopedVariable limit("TORCH_TPU_MEMORY_LIMIT_BYTES", "1000");
  const auto client = make_client(fake_plugin(), 1);
  REQUIRE_OK(client);
  CHECK_EQ((*client)->devices()[0].memory_bytes, 1000);
  const std::vector<float> data(1000);
  const auto refused = (*client)->copy_to_device(data.data(), f32({1000}), 0);
  CHECK_EQ(refused.status().code(), Code::kOutOfMemory);
  CHECK(refused.status().message().find("4000 bytes") != std::string::npos);
  const auto held = (*client)->copy_to_device(data.data(), f32({200}), 0);
  REQUIRE_OK(held);
  CHECK_EQ((*client)->copy_to_device(data.data(), f32({100}), 0).status().code(), Code::kOutOfMemory);
  REQUIRE_OK((*client)->copy_to_device(data.data(), f32({40}), 0));
}

TEST(types_that_would_kill_a_plugin) {
  const auto client = make_client(fake_plugin(), 1);
  REQUIRE_OK(client);
  const auto code = [&](const void* data, const hlo::Type& type, int device) {
    return (*client)->copy_to_device(data, type, device).status().code();
  };
  CHECK_EQ(code(aligned, {hlo::DType::kInvalid, {4}}, 0), Code::kInvalidArgument);
  CHECK_EQ(code(aligned, f32({-1}), 0), Code::kInvalidArgument);
  CHECK_EQ(code(aligned, f32({int64_t{1} << 40, int64_t{1} << 40}), 0), Code::kInvalidArgument);
  CHECK_EQ(code(nullptr, f32({4}), 0), Code::kInvalidArgument);
  CHECK_EQ(code(aligned, f32({4}), 1), Code::kInvalidArgument);
  CHECK_EQ(code(aligned, f32({4}), -1), Code::kInvalidArgument);
  CHECK_EQ(code(nullptr, f32({0}), 0), Code::kOk);
}

TEST(lend_without_copy) {
  const auto client = make_client(fake_plugin(), 1);
  REQUIRE_OK(client);
  int released = 0;
  auto buffer = (*client)->lend_to_device(aligned, f32({4}), 0, [&] { ++released; });
  REQUIRE_OK(buffer);
  const auto pointer = (*buffer)->host_pointer();
  REQUIRE_OK(pointer);
  CHECK(*pointer == aligned);
  CHECK_EQ(released, 0);
  buffer->reset();
  CHECK_EQ(released, 1);
}

TEST(unaligned_memory_is_copied) {
  const auto client = make_client(fake_plugin(), 1);
  REQUIRE_OK(client);
  int released = 0;
  const auto buffer = (*client)->lend_to_device(aligned + 1, f32({3}), 0, [&] { ++released; });
  REQUIRE_OK(buffer);
  CHECK_EQ(released, 1);
  float content[3] = {};
  REQUIRE_OK((*buffer)->copy_to_host(content));
  CHECK_EQ(content[0], 2.f);
  CHECK(!(*client)->lend_to_device(aligned, f32({-3}), 0, [&] { ++released; }).ok());
  CHECK_EQ(released, 2);
}

TEST(compile_options) {
  const auto client = make_client(fake_plugin(), 1);
  REQUIRE_OK(client);
  REQUIRE_OK((*client)->compile(kProgram, {Effort::kFull, {{"xla_mine", "true"}}}));
  std::string sent = fake_last_options();
  CHECK(sent.find("xla_cpu_enable_fast_min_max") != std::string::npos);
  CHECK(sent.find("xla_mine") != std::string::npos);
  CHECK(sent.find("True") != std::string::npos);
  CHECK(sent.find("xla_backend_optimization_level") == std::string::npos);
  // The fake plugin tells nothing of its own settings, so the fall-back serves.
  REQUIRE_OK((*client)->compile(kProgram, {Effort::kQuick, {}}));
  sent = fake_last_options();
  CHECK(sent.find("xla_backend_optimization_level") != std::string::npos);
  CHECK(sent.find("fusion-wrapper") != std::string::npos);
}

TEST(refused_compile_option_is_remembered) {
  const auto client = make_client(fake_plugin(), 1);
  REQUIRE_OK(client);
  {
    const ScopedVariable refuse("FAKE_PJRT_REFUSE_OVERRIDE", "xla_cpu_enable_fast_min_max");
    REQUIRE_OK((*client)->compile(kProgram, {}));
    CHECK(fake_last_options().find("xla_cpu_enable_fast_min_max") == std::string::npos);
  }
  REQUIRE_OK((*client)->compile(kProgram, {}));
  CHECK(fake_last_options().find("xla_cpu_enable_fast_min_max") == std::string::npos);
}

TEST(protobuf_bytes) {
  using namespace std::string_literals;
  // {3: {1: -1, 4: 1, 5: 1}, 4: true, 7: {1: "a", 2: {1: "True"}}}
  CHECK_EQ(encode_compile_options({{"a", "true"}}, ""),
           "\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01\x20\x01"
           "\x3a\x0b\x0a\x01"s
           "a\x12\x06\x0a\x04"s
           "True"s);
  // HloModuleProtoWithConfig{1: "m", 2: {1: 7, 14: "xy"}}
  CHECK_EQ(debug_options_of("\x0a\x01m\x12\x06\x08\x07\x72\x02xy"), "xy");
  CHECK_EQ(debug_options_of("\x0a\x7fm"), "");
  CHECK_EQ(debug_options_of(""), "");
  CHECK_EQ(with_backend_extra_options("xy", "k,l"),
           "xy\xa2\x1f\x05\x0a\x01k\x12\x00\xa2\x1f\x05\x0a\x01l\x12\x00"s);
}

TEST(failing_compile) {
  const auto client = make_client(fake_plugin(), 1);
  REQUIRE_OK(client);
  CHECK_EQ((*client)->compile("module {}", {}).status().code(), Code::kInvalidArgument);
  const ScopedVariable fail("FAKE_PJRT_FAIL", "compile");
  const auto failed = (*client)->compile(kProgram, {});
  CHECK_EQ(failed.status().code(), Code::kInvalidArgument);
  CHECK_EQ(failed.status().message(),
           std::string("cannot compile a program: compilation fails as the test wants"));
}

/// What a forked child sees, as an exit status: 0 when everything refuses.
int child_outcome(const Client& client, Buffer& buffer, const Executable& executable) {
  float content[4];
  Buffer* const arguments[] = {&buffer};
  if (!forked_after_use()) return 1;
  if (client.copy_to_device(content, f32({4}), 0).status().code() != Code::kUnavailable) return 2;
  if (client.compile(kProgram, {}).status().code() != Code::kUnavailable) return 3;
  if (buffer.copy_to_host(content).code() != Code::kUnavailable) return 4;
  if (executable.execute(arguments, {}, 0).status().code() != Code::kUnavailable) return 5;
  if (make_client(fake_plugin(), 1).status().code() != Code::kUnavailable) return 6;
  return 0;
}

TEST(forked_child_is_refused) {
  for (const std::string& plugin : {fake_plugin(), real_plugin()}) {
    if (plugin.empty()) continue;
    const auto client = make_client(plugin, 1);
    REQUIRE_OK(client);
    auto executable = (*client)->compile(kProgram, {});
    REQUIRE_OK(executable);
    auto buffer = (*client)->copy_to_device(aligned, f32({4}), 0);
    REQUIRE_OK(buffer);
    const pid_t child = fork();
    if (child == 0) {
      const int outcome = child_outcome(**client, **buffer, **executable);
      // Freeing must not wait for threads that are not there.
      *executable = std::shared_ptr<Executable>();
      *buffer = std::shared_ptr<Buffer>();
      _exit(outcome);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    CHECK(!forked_after_use());
  }
}

}  // namespace
