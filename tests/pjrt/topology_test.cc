// Compiling for a topology. On libtpu where TORCH_TPU_TEST_LIBTPU names it; what needs no compiler always.
#include "pjrt/topology.h"

#include <cmath>
#include <cstdio>

#include "tests/pjrt/plugin_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::pjrt;
using namespace torch_tpu::testing;

namespace {

constexpr char kAdd[] = R"(module {
func.func public @main(%a: tensor<256x128xf32> {jax.buffer_donor = true}, %b: tensor<256x128xf32>)
    -> tensor<256x128xf32> {
  %0 = "stablehlo.add"(%a, %b) : (tensor<256x128xf32>, tensor<256x128xf32>) -> tensor<256x128xf32>
  return %0 : tensor<256x128xf32>
}
})";
constexpr int64_t kBytes = 256 * 128 * 4;

std::string taking(const std::string& type) {
  return "module { func.func public @main(%a: " + type + ") -> (" + type + ") { return %a : " + type + " } }";
}

/// libtpu, or null after a line that says why its tests are left out.
std::shared_ptr<const Api> libtpu() {
  static const std::shared_ptr<const Api> instance = []() -> std::shared_ptr<const Api> {
    const std::string path = path_in("TORCH_TPU_TEST_LIBTPU");
    if (path.empty()) {
      std::printf("skipped what needs libtpu: TORCH_TPU_TEST_LIBTPU is not set\n");
      return nullptr;
    }
    prepare_environment_for_libtpu();
    auto api = Api::load(path);
    if (!api.ok()) fail(__FILE__, __LINE__, api.status().message());
    return api.ok() ? *api : nullptr;
  }();
  return instance;
}

TEST(names) {
  const std::vector<std::string> names = topology_names();
  for (const char* name : {"v4:2x2x1", "v5e:1x1", "v5e:2x4", "v5p:2x2x2", "v6e:16x16", "tpu7x:2x2x1"}) {
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
}

TEST(names_that_are_none) {
  const auto api = Api::load(fake_plugin());
  REQUIRE_OK(api);
  for (const char* name :
       {"", "v5e", "v5e:0x0", "v5e:1x1x1", "v5e:3x3", "V5E:1x1", "tpu8i:1x1x1", "v5p:2x2"}) {
    const auto topology = Topology::create(*api, name);
    CHECK_EQ(topology.status().code(), Code::kInvalidArgument);
    CHECK(topology.status().message().find("v5e:1x1") != std::string::npos);
  }
}

TEST(plugin_without_topologies) {
  const auto api = Api::load(fake_plugin());
  REQUIRE_OK(api);
  CHECK_EQ(Topology::create(*api, "v5e:1x1").status().code(), Code::kUnimplemented);
}

TEST(programs_that_would_end_the_process) {
  for (const char* type : {"tensor<?xf32>", "tensor<4x?x2xbf16>", "tensor<2305843009213693952xf32>",
                           "tensor<4294967296x4294967296xi8>", "tensor<99999999999999999999xi1>"}) {
    const Status status = check_program(taking(type));
    CHECK_EQ(status.code(), Code::kInvalidArgument);
    CHECK(status.message().find(type) != std::string::npos);
  }
}

TEST(programs_that_would_not) {
  for (const char* type :
       {"tensor<f32>", "tensor<0x4xf32>", "tensor<4294967296x0x4294967296xf32>", "tensor<3xcomplex<f64>>",
        "tensor<?x4xf32, #stablehlo.bounds<8, ?>>", "tensor<1048576x1048576xi8>", "!stablehlo.token"}) {
    REQUIRE_OK(check_program(taking(type)));
  }
  REQUIRE_OK(check_program("module {\n// tensor<?xf32> in a comment\n}"));
  REQUIRE_OK(check_program("tensor<"));
  REQUIRE_OK(check_program("tensor<4x"));
}

TEST(devices) {
  if (libtpu() == nullptr) return;
  for (const auto& [name, count, kind] : {std::tuple{"v5e:1x1", 1, "TPU v5 lite"},
                                          {"v5e:2x4", 8, "TPU v5 lite"},
                                          {"v4:2x2x1", 4, "TPU v4"},
                                          {"v6e:2x2", 4, "TPU v6 lite"},
                                          {"v5p:2x2x1", 4, "TPU v5"},
                                          {"tpu7x:1x1x1", 2, "TPU7x"}}) {
    const auto topology = Topology::create(libtpu(), name);
    REQUIRE_OK(topology);
    CHECK_EQ((*topology)->devices().size(), static_cast<size_t>(count));
    CHECK_EQ((*topology)->devices().front().kind, std::string(kind));
    CHECK((*topology)->devices().front().memory_bytes > int64_t{8} << 30);
  }
}

TEST(every_topology) {
  if (libtpu() == nullptr) return;
  for (const std::string& name : topology_names()) REQUIRE_OK(Topology::create(libtpu(), name));
}

TEST(compile) {
  if (libtpu() == nullptr) return;
  const auto topology = Topology::create(libtpu(), "v5e:1x1");
  REQUIRE_OK(topology);
  for (const int level : {-1, 0, 1, 2, 3}) {
    const auto executable = (*topology)->compile(kAdd, {.build = {.level = level}, .overrides = {}});
    REQUIRE_OK(executable);
    const auto memory = (*executable)->memory();
    REQUIRE_OK(memory);
    CHECK_EQ(memory->argument_bytes, 2 * kBytes);
    CHECK_EQ(memory->output_bytes, kBytes);
    CHECK_EQ(memory->alias_bytes, kBytes);
    CHECK_EQ(memory->peak_bytes, 2 * kBytes + memory->temporary_bytes);
    CHECK(memory->code_bytes > 0);
    auto cost = (*executable)->cost();
    REQUIRE_OK(cost);
    CHECK_EQ((*cost)["flops"], 256.0 * 128);
    CHECK_EQ((*cost)["bytes accessed"], 3.0 * kBytes);
    CHECK((*cost)["optimal_seconds"] > 0);
    const auto bytes = (*executable)->serialize();
    REQUIRE_OK(bytes);
    CHECK(bytes->size() > 1000);
  }
}

TEST(refusals) {
  if (libtpu() == nullptr) return;
  const auto topology = Topology::create(libtpu(), "v5e:1x1");
  REQUIRE_OK(topology);
  const std::string fft =
      "module { func.func public @main(%a: tensor<8xcomplex<f64>>) -> tensor<8xcomplex<f64>> {"
      " %0 = stablehlo.fft %a, type = FFT, length = [8] : (tensor<8xcomplex<f64>>) -> tensor<8xcomplex<f64>>"
      " return %0 : tensor<8xcomplex<f64>> } }";
  CHECK((*topology)->compile(fft, {}).status().message().find("Unexpected operand type for FFT") !=
        std::string::npos);
  CHECK(!(*topology)->compile("", {}).ok());
  CHECK(!(*topology)->compile("no program", {}).ok());
  CHECK_EQ((*topology)->compile(taking("tensor<?xf32>"), {}).status().code(), Code::kInvalidArgument);
  CHECK_EQ((*topology)->compile(kAdd, {.build = {.replicas = 2}, .overrides = {}}).status().code(),
           Code::kInvalidArgument);
  CHECK_EQ((*topology)->compile(kAdd, {.build = {}, .overrides = {{"xla_none", "1"}}}).status().code(),
           Code::kInvalidArgument);
  const auto budget = (*topology)->compile(taking("tensor<8192x8192xf32>"),
                                           {.build = {}, .overrides = {{"xla_tpu_max_hbm_size_mib", "128"}}});
  CHECK_EQ(budget.status().code(), Code::kOutOfMemory);
  REQUIRE_OK((*topology)->compile(kAdd, {}));
}

TEST(partitions) {
  if (libtpu() == nullptr) return;
  const auto topology = Topology::create(libtpu(), "v5e:2x2");
  REQUIRE_OK(topology);
  REQUIRE_OK((*topology)->compile(kAdd, {.build = {.replicas = 4}, .overrides = {}}));
}

}  // namespace
