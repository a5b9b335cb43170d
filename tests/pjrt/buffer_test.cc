#include "pjrt/buffer.h"

#include <thread>

#include "tests/pjrt/plugin_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::pjrt;
using namespace torch_tpu::testing;

namespace {

constexpr hlo::DType kAllTypes[] = {
    hlo::DType::kPred,   hlo::DType::kS8,   hlo::DType::kS16,  hlo::DType::kS32, hlo::DType::kS64,
    hlo::DType::kU8,     hlo::DType::kU16,  hlo::DType::kU32,  hlo::DType::kU64, hlo::DType::kF8E4M3FN,
    hlo::DType::kF8E5M2, hlo::DType::kF16,  hlo::DType::kBF16, hlo::DType::kF32, hlo::DType::kF64,
    hlo::DType::kC64,    hlo::DType::kC128,
};

/// Every element type through every plugin and platform that is here.
void check_round_trips(const std::string& plugin) {
  const auto client = make_client(plugin, 1);
  REQUIRE_OK(client);
  for (const hlo::DType dtype : kAllTypes) {
    CHECK_EQ(dtype_of(element_type(dtype)), dtype);
    for (const hlo::Dims& dims : {hlo::Dims{}, hlo::Dims{2, 3}, hlo::Dims{4, 0, 2}}) {
      const hlo::Type type{dtype, dims};
      std::vector<char> sent(static_cast<size_t>(type.bytes()));
      for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i % 2);
      std::vector<char> received(sent.size(), 'x');
      const auto buffer = (*client)->copy_to_device(sent.data(), type, 0);
      REQUIRE_OK(buffer);
      CHECK((*buffer)->type() == type);
      REQUIRE_OK((*buffer)->copy_to_host(received.data()));
      CHECK(sent == received);
    }
  }
}

TEST(round_trips) { check_round_trips(fake_plugin()); }

TEST(round_trips_through_the_plugin) {
  const ScopedVariable platform("FAKE_PJRT_PLATFORM", "tpu");
  check_round_trips(fake_plugin());
}

TEST(round_trips_on_the_real_plugin) {
  if (!real_plugin().empty()) check_round_trips(real_plugin());
}

TEST(no_host_pointer_off_cpu) {
  const ScopedVariable platform("FAKE_PJRT_PLATFORM", "tpu");
  const auto client = make_client(fake_plugin(), 1);
  REQUIRE_OK(client);
  CHECK_EQ((*client)->platform(), Platform::kTpu);
  const float data[4] = {1, 2, 3, 4};
  const auto buffer = (*client)->copy_to_device(data, f32({4}), 0);
  REQUIRE_OK(buffer);
  const auto pointer = (*buffer)->host_pointer();
  REQUIRE_OK(pointer);
  CHECK(*pointer == nullptr);
}

TEST(unknown_element_types) {
  CHECK_EQ(dtype_of(PJRT_Buffer_Type_S4), hlo::DType::kInvalid);
  CHECK_EQ(dtype_of(PJRT_Buffer_Type_TOKEN), hlo::DType::kInvalid);
  CHECK_EQ(element_type(static_cast<hlo::DType>(99)), PJRT_Buffer_Type_INVALID);
}

TEST(copy_between_devices) {
  for (const char* platform : {"cpu", "tpu"}) {
    const ScopedVariable variable("FAKE_PJRT_PLATFORM", platform);
    const auto client = make_client(fake_plugin(), 2);
    REQUIRE_OK(client);
    const float data[4] = {1, 2, 3, 4};
    const auto first = (*client)->copy_to_device(data, f32({4}), 0);
    REQUIRE_OK(first);
    const auto second = (*first)->copy_to_device(1);
    REQUIRE_OK(second);
    CHECK_EQ((*second)->device_index(), 1);
    float content[4] = {};
    REQUIRE_OK((*second)->copy_to_host(content));
    CHECK_EQ(content[3], 4.f);
    CHECK(!(*first)->copy_to_device(2).ok());
  }
}

TEST(statistics) {
  const auto client = make_client(fake_plugin(), 2);
  REQUIRE_OK(client);
  MemoryStatistics& statistics = memory_statistics(1);
  const int64_t live = statistics.live_bytes;
  const int64_t buffers = statistics.live_buffers;
  const int64_t allocations = statistics.allocations;
  const float data[4] = {};
  {
    const auto first = (*client)->copy_to_device(data, f32({4}), 1);
    REQUIRE_OK(first);
    const auto second = (*client)->copy_to_device(data, f32({2}), 1);
    REQUIRE_OK(second);
    CHECK_EQ(statistics.live_bytes, live + 24);
    CHECK(statistics.peak_bytes >= live + 24);
    CHECK_EQ(statistics.live_buffers, buffers + 2);
    (*first)->mark_donated();
    (*first)->mark_donated();
    CHECK_EQ(statistics.live_bytes, live + 8);
    CHECK_EQ(statistics.live_buffers, buffers + 1);
  }
  CHECK_EQ(statistics.live_bytes, live);
  CHECK_EQ(statistics.live_buffers, buffers);
  CHECK_EQ(statistics.allocations, allocations + 2);
}

TEST(donated_buffer_cannot_be_read) {
  const auto client = make_client(fake_plugin(), 1);
  REQUIRE_OK(client);
  float data[4] = {};
  const auto buffer = (*client)->copy_to_device(data, f32({4}), 0);
  REQUIRE_OK(buffer);
  (*buffer)->mark_donated();
  CHECK_EQ((*buffer)->await().code(), Code::kInvalidArgument);
  CHECK_EQ((*buffer)->copy_to_host(data).code(), Code::kInvalidArgument);
  CHECK_EQ((*buffer)->host_pointer().status().code(), Code::kInvalidArgument);
}

TEST(statistics_of_many_threads) {
  const auto client = make_client(fake_plugin(), 1);
  REQUIRE_OK(client);
  const int64_t live = memory_statistics(0).live_bytes;
  const int64_t handles = fake_counter("fake_plugin_live_buffers");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const float data[4] = {};
      for (int j = 0; j < 1000; ++j) CHECK((*client)->copy_to_device(data, f32({4}), 0).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(memory_statistics(0).live_bytes, live);
  CHECK_EQ(fake_counter("fake_plugin_live_buffers"), handles);
}

}  // namespace
