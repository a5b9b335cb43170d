#include "pjrt/api.h"

#include <fstream>

#include "pjrt/discovery.h"
#include "tests/pjrt/plugin_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::pjrt;
using namespace torch_tpu::testing;

namespace {

/// Whether the failure is one sentence that names the path.
void check_refused(const Result<std::shared_ptr<const Api>>& outcome, Code code, const std::string& path,
                   const std::string& reason) {
  CHECK(!outcome.ok());
  if (outcome.ok()) return;
  const std::string message = outcome.status().message();
  CHECK_EQ(outcome.status().code(), code);
  CHECK(message.find(path) != std::string::npos);
  CHECK(message.find(reason) != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
}

TEST(missing_file) {
  check_refused(Api::load("/nonexistent/plugin.so"), Code::kNotFound, "/nonexistent/plugin.so",
                "no PJRT plugin");
}

TEST(folder) { check_refused(Api::load("/tmp"), Code::kNotFound, "/tmp", "no PJRT plugin"); }

TEST(text_file) {
  const std::string path = "not_a_plugin.txt";
  std::ofstream(path) << "just text\n";
  check_refused(Api::load(path), Code::kNotFound, path, "cannot load");
  std::remove(path.c_str());
}

TEST(library_without_entry_point) {
  Dl_info libc{};
  CHECK(dladdr(dlsym(RTLD_DEFAULT, "getenv"), &libc) != 0);
  check_refused(Api::load(libc.dli_fname), Code::kNotFound, libc.dli_fname, "GetPjrtApi");
}

TEST(old_version) {
  const ScopedVariable minor("FAKE_PJRT_MINOR", "80");
  check_refused(Api::load(fake_plugin()), Code::kUnavailable, fake_plugin(), "0.80");
}

TEST(loads_once) {
  const auto first = Api::load(fake_plugin());
  REQUIRE_OK(first);
  const auto second = Api::load(fake_plugin());
  REQUIRE_OK(second);
  CHECK(*first == *second);
  CHECK_EQ((*first)->minor_version(), PJRT_API_MINOR);
  CHECK_EQ((*first)->fingerprint().size(), size_t{32});
  CHECK((*first)->description().starts_with("0." + std::to_string(PJRT_API_MINOR)));
  CHECK((*first)->description().ends_with(fake_plugin()));
}

TEST(function_that_the_plugin_lacks) {
  const auto api = Api::load(fake_plugin());
  REQUIRE_OK(api);
  PJRT_Buffer_Bitcast_Args args{};
  const Status status =
      (*api)->call(&PJRT_Api::PJRT_Buffer_Bitcast, args, PJRT_Buffer_Bitcast_Args_STRUCT_SIZE);
  CHECK_EQ(status.code(), Code::kUnimplemented);
}

TEST(quiet_unless_asked) { CHECK(getenv("TF_CPP_MIN_LOG_LEVEL") != nullptr); }

TEST(explicit_plugin_wins) {
  const ScopedVariable plugin("TORCH_TPU_PJRT_PLUGIN", "/some/plugin.so");
  const auto found = find_plugin({fake_plugin()}, "");
  REQUIRE_OK(found);
  CHECK_EQ(*found, std::string("/some/plugin.so"));
}

TEST(first_installed_plugin) {
  const auto found = find_plugin({"/nonexistent/plugin.so", fake_plugin()}, "");
  REQUIRE_OK(found);
  CHECK_EQ(*found, fake_plugin());
}

TEST(no_plugin_says_what_to_install) {
  const auto found = find_plugin({}, "");
  CHECK(!found.ok());
  CHECK_EQ(found.status().code(), Code::kNotFound);
  CHECK(found.status().message().find("pip install") != std::string::npos);
}

}  // namespace
