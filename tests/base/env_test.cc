#include "base/env.h"

#include <stdlib.h>

#include <limits>
#include <set>
#include <string_view>

#include "tests/check.h"

using namespace torch_tpu;

namespace {

void set(const env::Variable& variable, const char* value) { setenv(variable.name, value, /*overwrite=*/1); }
void unset(const env::Variable& variable) { unsetenv(variable.name); }

TEST(table) {
  std::set<std::string_view> names;
  for (const env::Variable* variable : env::table()) {
    CHECK(variable == &env::kLocalWorldSize || std::string_view(variable->name).starts_with("TORCH_TPU_"));
    CHECK(names.insert(variable->name).second);
    const std::string_view documentation = variable->documentation;
    CHECK(documentation.size() > 10 && documentation.ends_with('.'));
  }
  for (const env::Variable* variable : {&env::kPlugin, &env::kCpuDevices, &env::kMode, &env::kDebug,
                                        &env::kFallback, &env::kCutWindow, &env::kMemoryLimit}) {
    CHECK(names.contains(variable->name));
  }
}

TEST(text_is_read_when_asked) {
  unset(env::kMode);
  CHECK_EQ(env::text(env::kMode), std::string(env::kMode.default_value));
  set(env::kMode, "strict");
  CHECK_EQ(env::text(env::kMode), std::string("strict"));
  set(env::kMode, "");
  CHECK_EQ(env::text(env::kMode), std::string());
  unset(env::kMode);
  CHECK_EQ(env::text(env::kMode), std::string(env::kMode.default_value));
}

TEST(integers) {
  unset(env::kCutWindow);
  const int64_t usual = env::integer(env::kCutWindow);
  CHECK(usual > 1);
  const auto read = [](const char* value) {
    set(env::kCutWindow, value);
    return env::integer(env::kCutWindow);
  };
  CHECK_EQ(read("17"), 17);
  CHECK_EQ(read("-3"), -3);
  CHECK_EQ(read("9223372036854775807"), std::numeric_limits<int64_t>::max());
  for (const char* wrong : {"", "many", "12 ops", " 12", "1e3", "9223372036854775808"}) {
    CHECK_EQ(read(wrong), usual);
  }
  unset(env::kCutWindow);
}

TEST(flags) {
  unset(env::kFallback);
  CHECK(!env::flag(env::kFallback));
  for (const char* off : {"", "0", "false", "off", "no"}) {
    set(env::kFallback, off);
    CHECK(!env::flag(env::kFallback));
  }
  for (const char* on : {"1", "true", "on", "yes"}) {
    set(env::kFallback, on);
    CHECK(env::flag(env::kFallback));
  }
  unset(env::kFallback);
}

}  // namespace
