// Runs on the real XLA:CPU plugin that TORCH_TPU_TEST_PLUGIN names.
#include "pjrt/host_kernel.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "tests/pjrt/plugin_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::pjrt;
using namespace torch_tpu::testing;

namespace {

/// (a + b) * scale, each element in a part of its own.
Status scaled_sum(const HostCall& call) {
  const HostArray& result = call.results()[0];
  CHECK(result.type == f32({4}) && call.inputs().size() == 2 && call.inputs()[1].type == f32({4}));
  CHECK(call.threads() >= 1);
  CHECK_EQ(call.attribute("absent"), 0);
  const auto* a = static_cast<const float*>(call.inputs()[0].data);
  const auto* b = static_cast<const float*>(call.inputs()[1].data);
  std::atomic<int> parts = 0;
  call.run_parts(4, [&](int64_t i) {
    static_cast<float*>(result.data)[i] = (a[i] + b[i]) * static_cast<float>(call.attribute("scale"));
    ++parts;
  });
  CHECK_EQ(parts.load(), 4);
  return {};
}

Status fails(const HostCall& call) {
  if (call.attribute("throws") != 0) throw std::runtime_error("thrown by a kernel");
  return invalid_argument("refused by a kernel");
}

std::string program(const std::string& kernel, const std::string& attributes) {
  return R"(module {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %c = "stablehlo.custom_call"(%a, %b) {call_target_name = ")" +
         kernel + "\", api_version = 4 : i32, backend_config = {" + attributes + R"(}}
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %c : tensor<4xf32>
  }
})";
}

const Client& shared_client() {
  static const std::shared_ptr<Client> client = [] {
    add_host_kernel("test.scaled_sum", &host_kernel_handler<&scaled_sum>);
    add_host_kernel("test.fails", &host_kernel_handler<&fails>);
    auto made = make_client(real_plugin(), 1);
    if (!made.ok()) {
      std::printf("no client: %s\n", made.status().message().c_str());
      std::exit(1);
    }
    return std::move(made).value();
  }();
  return *client;
}

Result<std::array<float, 4>> run(const std::shared_ptr<Executable>& executable) {
  const std::array<float, 4> numbers{1, 2, 3, 4};
  ASSIGN_OR_RETURN(const auto a, shared_client().copy_to_device(numbers.data(), f32({4}), 0));
  ASSIGN_OR_RETURN(const auto b, shared_client().copy_to_device(numbers.data(), f32({4}), 0));
  Buffer* const arguments[] = {a.get(), b.get()};
  ASSIGN_OR_RETURN(const auto results, executable->execute(arguments, {}, 0));
  std::array<float, 4> content{};
  RETURN_IF_ERROR(results.front()->copy_to_host(content.data()));
  return content;
}

TEST(programs_call_kernels) {
  if (real_plugin().empty()) return;
  CHECK(shared_client().has_host_kernels());
  const auto executable = shared_client().compile(program("test.scaled_sum", "scale = 3 : i64"), {});
  REQUIRE_OK(executable);
  for (int i = 0; i < 100; ++i) {
    const auto content = run(*executable);
    REQUIRE_OK(content);
    CHECK((*content == std::array<float, 4>{6, 12, 18, 24}));
  }
  // Also those that were stored.
  const auto bytes = (*executable)->serialize();
  REQUIRE_OK(bytes);
  const auto loaded = shared_client().load(*bytes);
  REQUIRE_OK(loaded);
  const auto content = run(*loaded);
  REQUIRE_OK(content);
  CHECK((*content == std::array<float, 4>{6, 12, 18, 24}));
}

TEST(errors_of_kernels_are_those_of_the_program) {
  if (real_plugin().empty()) return;
  for (const char* attributes : {"throws = 0 : i64", "throws = 1 : i64"}) {
    const auto executable = shared_client().compile(program("test.fails", attributes), {});
    REQUIRE_OK(executable);
    const auto content = run(*executable);
    CHECK(!content.ok());
    CHECK(content.status().message().find("by a kernel") != std::string::npos);
  }
}

}  // namespace
