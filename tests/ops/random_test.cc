// What random operators announce and build; tests/engine/random_test.cc checks the numbers.
#include "ops/random.h"

#include "tests/check.h"

using namespace torch_tpu;
using namespace torch_tpu::ops;

OP("test::bits", .random = true) { return {op.random_bits(op.integer(0))}; }
OP("test::two_draws", .random = true) { return {op.random_bits(4), op.random_bits(5), op.random_bits(4)}; }
OP("test::uniforms", .random = true) {
  const Dims dims{2, 3};
  return {random_words(op, dims), unit_uniform(op, DType::kBF16, dims),
          positive_uniform(op, DType::kF64, dims), standard_exponential(op, DType::kF32, dims)};
}

namespace {

Call call_of(std::string_view name, std::vector<Arg> args) {
  Call call;
  call.op = find_op(name);
  call.args = std::move(args);
  return call;
}

size_t occurrences(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A block is 64 bits: two words.
TEST(blocks) {
  for (const int64_t count : {0, 1, 2, 3, 1000, 1001}) {
    Call call = call_of("test::bits", {count});
    REQUIRE_OK(infer(call));
    CHECK_EQ(call.random_blocks, (count + 1) / 2);
    CHECK(call.outputs[0] == (Type{DType::kU32, {count}}));
  }
}

TEST(draws_share_one_function) {
  Call call = call_of("test::two_draws", {});
  REQUIRE_OK(infer(call));
  CHECK_EQ(call.random_blocks, 2 + 3 + 2);
  Builder builder;
  const Value seed = builder.parameter({DType::kS64, {}});
  const Value offset = builder.parameter({DType::kS64, {}});
  const auto lowered = lower(builder, call, {}, {{}, seed, offset}, "");
  REQUIRE_OK(lowered);
  const std::string text = builder.module(lowered->results);
  // One for the draws of four words, one for the draw of five.
  CHECK_EQ(occurrences(text, "func.func private @threefry"), size_t{2});
  CHECK_EQ(occurrences(text, "\"func.call\""), size_t{3});
}

TEST(types_of_numbers) {
  Call call = call_of("test::uniforms", {});
  REQUIRE_OK(infer(call));
  CHECK_EQ(call.outputs.size(), size_t{4});
  const DType expected[] = {DType::kU32, DType::kF32, DType::kF64, DType::kF32};
  for (size_t i = 0; i < call.outputs.size(); ++i) CHECK(call.outputs[i] == (Type{expected[i], {2, 3}}));
  // 6 words, 6 words, twice 6 words for doubles, 6 words.
  CHECK_EQ(call.random_blocks, 3 + 3 + 6 + 3);
}

// torch's operators that draw are declared as such, or they would get no seed.
TEST(declared_as_random) {
  for (const char* name : {"aten::uniform", "aten::normal_functional", "aten::bernoulli",
                           "aten::native_dropout", "aten::multinomial", "aten::exponential"}) {
    const Op* op = find_op(name);
    if (op == nullptr) {
      testing::fail(__FILE__, __LINE__, std::string(name) + " is missing");
    } else {
      CHECK(op->traits.random);
    }
  }
}

}  // namespace
