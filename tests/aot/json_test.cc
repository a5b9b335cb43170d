#include "aot/json.h"

#include <limits>

#include "tests/check.h"

using namespace torch_tpu::aot;

namespace {

TEST(object) {
  JsonObject inner;
  inner.number("bytes", int64_t{-1});
  JsonObject json;
  json.flag("accepted", true).text("message", "a \"b\"\n").number("flops", 1.5).object("memory", inner);
  json.texts("names", {"x", "y"});
  CHECK_EQ(json.json(),
           std::string("{\"accepted\": true, \"message\": \"a \\\"b\\\"\\u000a\", \"flops\": 1.5, "
                       "\"memory\": {\"bytes\": -1}, \"names\": [\"x\", \"y\"]}"));
  CHECK_EQ(JsonObject().json(), std::string("{}"));
}

TEST(numbers) {
  JsonObject json;
  json.number("whole", 3.0).number("infinite", std::numeric_limits<double>::infinity());
  CHECK_EQ(json.json(), std::string("{\"whole\": 3, \"infinite\": null}"));
}

TEST(characters) {
  CHECK_EQ(quoted("\\\x01"), std::string("\"\\\\\\u0001\""));
  CHECK_EQ(quoted("\u00fc\u20ac"), std::string("\"\u00fc\u20ac\""));
  CHECK_EQ(quoted("a\xff\xe2\x82"), std::string("\"a\ufffd\ufffd\ufffd\""));
}

}  // namespace
