// What the bounded form of a program contains, and what has none. tests/python/test_sizes.py checks values.
#include "hlo/bounded.h"

#include <array>
#include <functional>

#include "hlo/operation_text.h"
#include "tests/check.h"

using namespace torch_tpu;
using namespace torch_tpu::hlo;

namespace {

using Body = std::function<Value(Builder&, const Value& x, int64_t size)>;

/// The bounded form of `body` on f32[size, 3], for sizes up to 16.
Result<std::string> bounded(const Body& body) {
  std::array<Builder, 3> builders{Builder({}, true), Builder({}, true), Builder({}, true)};
  std::vector<SizedProgram> programs;
  for (size_t i = 0; i < builders.size(); ++i) {
    const int64_t size = 16 - static_cast<int64_t>(i);
    const Value x = builders[i].parameter({DType::kF32, {size, 3}});
    programs.push_back({size, &builders[i], {body(builders[i], x, size)}});
  }
  return bounded_module(std::span<const SizedProgram, 3>(programs), Products::kCompiler);
}

std::string text_of(const Body& body) {
  const auto text = bounded(body);
  CHECK(text.ok());
  return text.ok() ? *text : text.status().message();
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(lines) {
  const std::array<int64_t, 3> sizes{16, 15, 14};
  CHECK((extent_through(sizes, std::array<int64_t, 3>{33, 31, 29}) == Extent{1, 2}));
  CHECK((extent_through(sizes, std::array<int64_t, 3>{7, 7, 7}) == Extent{7, 0}));
  CHECK(!extent_through(sizes, std::array<int64_t, 3>{256, 225, 196}));
  CHECK(!extent_through(std::array<int64_t, 3>{16, 14, 12}, std::array<int64_t, 3>{8, 7, 6}));
}

TEST(elementwise_needs_no_mask) {
  const std::string text = text_of([](Builder&, const Value& x, int64_t) { return exp(x) * x; });
  CHECK(holds(text, "%arg1: tensor<i32>") && holds(text, "tensor<16x3xf32>") && !holds(text, "select"));
}

TEST(sums_are_masked) {
  const auto sum = [](const Value& x, int64_t dim) { return reduce(x, Reduction::kSum, Dims{dim}); };
  CHECK(holds(text_of([&](Builder&, const Value& x, int64_t) { return sum(x, 0); }), "stablehlo.select"));
  CHECK(!holds(text_of([&](Builder&, const Value& x, int64_t) { return sum(x, 1); }), "stablehlo.select"));
}

TEST(products_of_the_host_are_masked) {
  std::array<Builder, 3> builders{Builder({}, true), Builder({}, true), Builder({}, true)};
  std::vector<SizedProgram> programs;
  for (size_t i = 0; i < builders.size(); ++i) {
    const int64_t size = 64 - static_cast<int64_t>(i);
    const Value x = builders[i].parameter({DType::kF32, {size, 512}});
    programs.push_back({size, &builders[i], {dot_general(x, x, {{}, {}, {0}, {0}}, DType::kF32)}});
  }
  const auto text = bounded_module(std::span<const SizedProgram, 3>(programs), Products::kHost);
  CHECK(text.ok() && holds(*text, "stablehlo.select") && holds(*text, kMatrixProduct));
}

TEST(numbers_of_the_size_are_computed) {
  const std::string mean = text_of([](Builder&, const Value& x, int64_t size) {
    return reduce(x, Reduction::kSum, Dims{0}) / static_cast<double>(size);
  });
  CHECK(holds(mean, "\"stablehlo.convert\"(%arg1)"));
  CHECK(!bounded([](Builder&, const Value& x, int64_t size) { return x * (1.0 / size); }).ok());
  CHECK(!bounded([](Builder&, const Value& x, int64_t size) { return x * (1.0 * size * size); }).ok());
}

TEST(products) {
  const auto product = [](const Value& x, DotDims dims) { return dot_general(x, x, dims, DType::kF32); };
  CHECK(holds(text_of([&](Builder&, const Value& x, int64_t) { return product(x, {{}, {}, {0}, {0}}); }),
              "stablehlo.select"));
  CHECK(!holds(text_of([&](Builder&, const Value& x, int64_t) { return product(x, {{}, {}, {1}, {1}}); }),
               "stablehlo.select"));
}

TEST(moves) {
  const auto last = [](Builder&, const Value& x, int64_t size) { return slice_dim(x, 0, size - 1, size); };
  CHECK(holds(text_of(last), "stablehlo.dynamic_slice"));
  const auto twice = [](Builder&, const Value& x, int64_t) { return concatenate({x, x}, 0); };
  CHECK(holds(text_of(twice), "stablehlo.dynamic_update_slice"));
  const auto front = [](Builder&, const Value& x, int64_t size) { return reshape(x, Dims{size * 3}); };
  CHECK(!holds(text_of(front), "dynamic"));
  const auto inner = [](Builder&, const Value& x, int64_t size) {
    return reshape(transpose(x, Dims{1, 0}), Dims{size * 3});
  };
  CHECK(holds(text_of(inner), "stablehlo.dynamic_update_slice"));
  const auto flipped = [](Builder&, const Value& x, int64_t) { return reverse(x, Dims{0}); };
  CHECK(holds(text_of(flipped), "stablehlo.dynamic_slice"));
}

TEST(refusals) {
  const auto refusal = [](const Body& body) { return bounded(body).status(); };
  const Status other =
      refusal([](Builder&, const Value& x, int64_t size) { return size == 15 ? exp(x) : -x; });
  CHECK_EQ(other.code(), Code::kUnimplemented);
  const Status square = refusal([](Builder&, const Value& x, int64_t size) {
    return reshape(broadcast_in_dim(x, Dims{size, 3, size}, Dims{0, 1}), Dims{size * size * 3});
  });
  CHECK_EQ(square.code(), Code::kUnimplemented);
  const Status sorted = refusal([](Builder&, const Value& x, int64_t) {
    return sort({x}, 0, false,
                [](const Values& v) -> Values { return {compare(Compare::kLt, v[0], v[1])}; })[0];
  });
  CHECK_EQ(sorted.code(), Code::kUnimplemented);
}

TEST(reading_text) {
  CHECK(numbers_of("start = array<i64: 1, -2>, limit = [3, 4]", "start") == (Dims{1, -2}));
  CHECK(numbers_of("start = array<i64: 1, -2>, limit = [3, 4]", "limit") == (Dims{3, 4}));
  CHECK(numbers_of("dimension = 5 : i64", "dimension") == Dims{5});
  CHECK(numbers_of("start = array<i64>", "start").empty());
  CHECK(!captures("{\n^bb0(%1: tensor<f32>, %2: tensor<f32>):\n%3 = \"a\"(%1, %2)\n\"r\"(%3)\n}"));
  CHECK(captures("{\n^bb0(%1: tensor<f32>):\n%3 = \"a\"(%1, %arg0)\n}"));
}

}  // namespace
