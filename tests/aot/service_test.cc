#include "aot/service.h"

#include "tests/pjrt/plugin_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::aot;
using namespace torch_tpu::testing;

namespace {

bool holds(const Answer& answer, const std::string& part) {
  return answer.json.find(part) != std::string::npos;
}

Result<Service> make_service() {
  ASSIGN_OR_RETURN(auto api, pjrt::Api::load(fake_plugin()));
  return Service(std::move(api));
}

TEST(greeting) {
  auto service = make_service();
  REQUIRE_OK(service);
  const Answer answer = service->greeting();
  CHECK(holds(answer, "\"ready\": true"));
  CHECK(holds(answer, "\"v5e:1x1\""));
  CHECK(answer.program.empty());
  CHECK(holds(failed_greeting(internal_error("no luck")), "\"message\": \"no luck\""));
}

TEST(bad_options) {
  auto service = make_service();
  REQUIRE_OK(service);
  for (const char* options :
       {"level=4", "level=", "level=1x", "replicas=0", "serialize=2", "nonsense=1", "x"}) {
    const Answer answer = service->compile({"v5e:1x1", options, ""});
    CHECK(holds(answer, "\"accepted\": false"));
    CHECK(holds(answer, "\"reason\": \"invalid_argument\""));
    CHECK(holds(answer, "compile option"));
  }
}

TEST(unknown_topology) {
  auto service = make_service();
  REQUIRE_OK(service);
  const Answer answer = service->compile({"v5e:0x0", "level=0\nxla_some=1\n", ""});
  CHECK(holds(answer, "'v5e:0x0' is no TPU topology"));
}

TEST(plugin_without_topologies) {
  auto service = make_service();
  REQUIRE_OK(service);
  CHECK(holds(service->compile({"v5e:1x1", "", ""}), "\"reason\": \"unimplemented\""));
}

}  // namespace
