// The test harness: TEST(name) { CHECK(...); } in as many files as wanted, one of which gets main()
// from here. `binary [part of a name]` runs the tests whose name holds that part.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace torch_tpu::testing {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test> tests;
inline std::atomic<int> failed_checks{0};  // tests may check on several threads

struct Registration {
  Registration(const char* name, void (*body)()) { tests.push_back({name, body}); }
};

inline void fail(const char* file, int line, const std::string& what) {
  ++failed_checks;
  std::printf("%s:%d: %s\n", file, line, what.c_str());
}

template <typename T>
std::string shown(const T& value) {
  if constexpr (requires(std::ostringstream& out) { out << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<long long>(value));
  } else {
    return "(a value)";
  }
}

template <typename Left, typename Right>
void check_equal(const Left& left, const Right& right, const char* what, const char* file, int line) {
  if (left == right) return;
  fail(file, line, std::string(what) + " does not hold: " + shown(left) + " and " + shown(right));
}

/// The message of a Status, or of the Status inside a Result.
template <typename T>
std::string message(const T& outcome) {
  if constexpr (requires { outcome.message(); }) {
    return outcome.message();
  } else {
    return outcome.status().message();
  }
}

}  // namespace torch_tpu::testing

#define TEST(name)                                                                         \
  static void test_##name();                                                               \
  static const ::torch_tpu::testing::Registration registration_##name(#name, test_##name); \
  static void test_##name()

/// Reports a false condition and goes on.
#define CHECK(condition)                                                                       \
  do {                                                                                         \
    if (!(condition)) ::torch_tpu::testing::fail(__FILE__, __LINE__, "not true: " #condition); \
  } while (0)

#define CHECK_EQ(left, right) \
  ::torch_tpu::testing::check_equal((left), (right), #left " == " #right, __FILE__, __LINE__)

/// Reports a failed Status or Result with its message and leaves the test.
#define REQUIRE_OK(expression)                                                                       \
  do {                                                                                               \
    const auto& checked_ = (expression);                                                             \
    if (!checked_.ok()) {                                                                            \
      ::torch_tpu::testing::fail(__FILE__, __LINE__,                                                 \
                                 #expression " failed: " + ::torch_tpu::testing::message(checked_)); \
      return;                                                                                        \
    }                                                                                                \
  } while (0)

namespace torch_tpu::testing {

inline int run(int count, char** arguments) {
  int passed = 0;
  int failed = 0;
  for (const Test& test : tests) {
    if (count > 1 && std::strstr(test.name, arguments[1]) == nullptr) continue;
    failed_checks = 0;
    test.body();
    std::printf("%s %s\n", failed_checks == 0 ? "ok  " : "FAIL", test.name);
    std::fflush(stdout);
    ++(failed_checks == 0 ? passed : failed);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace torch_tpu::testing

#ifndef TORCH_TPU_TEST_WITHOUT_MAIN
int main(int count, char** arguments) { return torch_tpu::testing::run(count, arguments); }
#endif
