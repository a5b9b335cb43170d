#include "hlo/builder.h"

#include <cmath>

#include "tests/check.h"

using namespace torch_tpu;
using namespace torch_tpu::hlo;

namespace {

Type f32(std::initializer_list<int64_t> dims) { return {DType::kF32, Dims(dims)}; }

size_t occurrences(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Whether `body` throws a LoweringError of this code whose message holds `part`.
template <class Body>
bool refuses(Code code, std::string_view part, Body body) {
  try {
    body();
  } catch (const LoweringError& error) {
    return error.code == code && holds(error.what(), part);
  }
  return false;
}

/// The text of the constant that `make` adds to a program.
template <class Make>
std::string constant_text(Make make) {
  Builder builder;
  const std::string text = builder.module({make(builder)});
  const size_t start = text.find("dense<");
  return start == std::string::npos ? text : text.substr(start, text.find('}', start) - start);
}

TEST(module) {
  Builder builder;
  const Value a = builder.parameter(f32({2, 3}));
  const Value b = builder.parameter(f32({2, 3}), /*result=*/0);
  builder.comment("aten::add.Tensor  model.py:3");
  const Value c = a + b;
  CHECK(c.type == f32({2, 3}));
  CHECK(static_cast<bool>(c));
  CHECK(!static_cast<bool>(Value{}));
  const std::string text = builder.module({c, a});
  CHECK(holds(
      text,
      "func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}) "
      "-> (tensor<2x3xf32>, tensor<2x3xf32>) {"));
  CHECK(
      holds(text, "\"stablehlo.add\"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>"));
  CHECK(holds(text, "// aten::add.Tensor  model.py:3\n"));
  CHECK(holds(text, "return " + c.name + ", %arg0 : tensor<2x3xf32>, tensor<2x3xf32>"));
}

TEST(module_without_results) {
  Builder builder;
  CHECK(holds(builder.module({}), "@main() -> () {\nreturn \n}"));
}

TEST(constants) {
  const auto splat = [](double number, DType dtype) {
    return constant_text([&](Builder& b) { return b.splat(number, {dtype, {}}); });
  };
  CHECK_EQ(splat(1, DType::kF32), std::string("dense<1.0> : tensor<f32>"));
  CHECK_EQ(splat(0.5, DType::kPred), std::string("dense<true> : tensor<i1>"));
  CHECK_EQ(splat(-2.75, DType::kS32), std::string("dense<-2> : tensor<i32>"));
  CHECK_EQ(splat(1e30, DType::kF32), std::string("dense<1.0e+30> : tensor<f32>"));
  CHECK_EQ(splat(0.1, DType::kF64), std::string("dense<0.10000000000000001> : tensor<f64>"));
  CHECK_EQ(splat(INFINITY, DType::kF32), std::string("dense<0x7F800000> : tensor<f32>"));
  CHECK_EQ(splat(-INFINITY, DType::kBF16), std::string("dense<0xFF80> : tensor<bf16>"));
  CHECK_EQ(splat(NAN, DType::kF64), std::string("dense<0x7FF8000000000000> : tensor<f64>"));
  CHECK_EQ(splat(2, DType::kC64), std::string("dense<(2.0, 0.0)> : tensor<complex<f32>>"));
  const auto whole = [](int64_t number, DType dtype) {
    return constant_text([&](Builder& b) { return b.splat(number, {dtype, {3}}); });
  };
  CHECK_EQ(whole(-1, DType::kU8), std::string("dense<255> : tensor<3xui8>"));
  CHECK_EQ(whole(-1, DType::kU64), std::string("dense<18446744073709551615> : tensor<3xui64>"));
  CHECK_EQ(whole(300, DType::kS8), std::string("dense<44> : tensor<3xi8>"));
  CHECK_EQ(whole(int64_t{1} << 62, DType::kS64), std::string("dense<4611686018427387904> : tensor<3xi64>"));
  const int64_t numbers[] = {3, -1};
  CHECK_EQ(constant_text([&](Builder& b) { return b.integers(numbers, DType::kS64); }),
           std::string("dense<[3, -1]> : tensor<2xi64>"));
}

TEST(bounds_of_types) {
  const auto highest = [](DType dtype) {
    return constant_text([&](Builder& b) { return b.highest({dtype, {}}); });
  };
  const auto lowest = [](DType dtype) {
    return constant_text([&](Builder& b) { return b.lowest({dtype, {}}); });
  };
  CHECK_EQ(highest(DType::kS8), std::string("dense<127> : tensor<i8>"));
  CHECK_EQ(lowest(DType::kS8), std::string("dense<-128> : tensor<i8>"));
  CHECK_EQ(highest(DType::kS64), std::string("dense<9223372036854775807> : tensor<i64>"));
  CHECK_EQ(lowest(DType::kS64), std::string("dense<-9223372036854775808> : tensor<i64>"));
  CHECK_EQ(highest(DType::kU32), std::string("dense<4294967295> : tensor<ui32>"));
  CHECK_EQ(lowest(DType::kU32), std::string("dense<0> : tensor<ui32>"));
  CHECK_EQ(highest(DType::kF32), std::string("dense<0x7F800000> : tensor<f32>"));
  CHECK_EQ(lowest(DType::kF16), std::string("dense<0xFC00> : tensor<f16>"));
  CHECK_EQ(lowest(DType::kPred), std::string("dense<false> : tensor<i1>"));
}

TEST(broadcasting) {
  Builder builder;
  const Value row = builder.parameter(f32({3}));
  const Value column = builder.parameter(f32({4, 1}));
  const Value empty = builder.parameter(f32({0, 3}));
  const Value scalar = builder.parameter(f32({}));
  CHECK((row + column).type == f32({4, 3}));
  CHECK((column * row).type == f32({4, 3}));
  CHECK((row - empty).type == f32({0, 3}));
  CHECK((scalar / column).type == f32({4, 1}));
  CHECK((2.0 * row).type == f32({3}));
  CHECK(compare(Compare::kLt, row, column).type == (Type{DType::kPred, {4, 3}}));
  CHECK(select(compare(Compare::kLt, row, 0.0), scalar, column).type == f32({4, 3}));
  CHECK(broadcast_to(row, Dims{2, 4, 3}).type == f32({2, 4, 3}));
  CHECK_EQ(broadcast_to(row, Dims{3}).name, row.name);
}

TEST(mistakes_throw) {
  Builder builder;
  const Value a = builder.parameter(f32({3}));
  const Value b = builder.parameter(f32({2, 4}));
  const Value whole = builder.parameter({DType::kS32, {3}});
  // torch's words: the first operand is a, and the last dimension that differs is named.
  CHECK(refuses(Code::kInvalidArgument,
                "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
                [&] { a + b; }));
  CHECK(refuses(Code::kInvalidArgument,
                "The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 1",
                [&] { b + a; }));
  CHECK(refuses(Code::kInternal, "tensor<3xi32>", [&] { a + whole; }));
  CHECK(refuses(Code::kInternal, "reshape", [&] { reshape(a, Dims{2, 2}); }));
  CHECK(refuses(Code::kInternal, "slice", [&] { slice_dim(a, 0, 1, 4); }));
  CHECK(refuses(Code::kInvalidArgument, "broadcast", [&] { broadcast_to(b, Dims{4}); }));
  CHECK(refuses(Code::kIndexError, "mine", [&] { builder.fail(Code::kIndexError, "mine"); }));
  Builder other;
  CHECK(
      refuses(Code::kInternal, "another program", [&] { other.emit_one("stablehlo.negate", {a}, a.type); }));
}

TEST(conversions) {
  Builder builder;
  const Value x = builder.parameter(f32({2}));
  const Value z = builder.parameter({DType::kC64, {2}});
  CHECK_EQ(convert(x, DType::kF32).name, x.name);
  CHECK(convert(x, DType::kS64).type == (Type{DType::kS64, {2}}));
  CHECK(convert(x, DType::kPred).type == (Type{DType::kPred, {2}}));
  CHECK(convert(z, DType::kF64).type == (Type{DType::kF64, {2}}));
  CHECK(real(z).type == f32({2}));
  CHECK(abs(z).type == f32({2}));
  CHECK(complex(x, x).type == (Type{DType::kC64, {2}}));
  CHECK(bitcast(x, {DType::kS32, {2}}).type == (Type{DType::kS32, {2}}));
  CHECK(holds(builder.module({}), "comparison_direction NE"));
}

TEST(moving_elements) {
  Builder builder;
  const Value x = builder.parameter(f32({2, 3, 4}));
  const Value zero = builder.splat(0.0, f32({}));
  CHECK(transpose(x, Dims{2, 0, 1}).type == f32({4, 2, 3}));
  CHECK(slice_dim(x, 2, 1, 4, 2).type == f32({2, 3, 2}));
  CHECK(pad(x, zero, Dims{1, 0, 0}, Dims{0, 2, 0}, Dims{0, 0, 3}).type == f32({3, 5, 13}));
  CHECK(concatenate({x, x, x}, 1).type == f32({2, 9, 4}));
  CHECK(reverse(x, Dims{0}).type == x.type);
  const Value start = builder.splat(int64_t{0}, {DType::kS64, {}});
  CHECK(dynamic_slice(x, {start, start, start}, Dims{1, 2, 4}).type == f32({1, 2, 4}));
  CHECK(dynamic_update_slice(x, slice_dim(x, 0, 0, 1), {start, start, start}).type == x.type);
  // What changes nothing adds nothing.
  CHECK_EQ(reshape(x, x.dims()).name, x.name);
  CHECK_EQ(transpose(x, Dims{0, 1, 2}).name, x.name);
  CHECK_EQ(slice_dim(x, 0, 0, 2).name, x.name);
  CHECK_EQ(pad(x, zero, Dims{0, 0, 0}, Dims{0, 0, 0}).name, x.name);
  CHECK_EQ(concatenate({x}, 0).name, x.name);
}

// A matrix that is multiplied with one vector is read in its own order.
TEST(products_with_vectors_read_through_transposes) {
  Builder builder;
  const Value row = builder.parameter(f32({1, 8}));
  const Value rows = builder.parameter(f32({2, 8}));
  const Value weight = builder.parameter(f32({4, 8}));
  const Value batched = builder.parameter(f32({3, 4, 8}));
  const DotDims plain{{}, {}, {1}, {0}};
  const auto product = [&](const Value& a, const Value& b, const DotDims& dims) {
    const Value result = dot_general(a, b, dims, DType::kF32);
    return std::pair(result.type, builder.module({result}));
  };
  const Value flipped = transpose(weight, Dims{1, 0});
  const auto [type, text] = product(row, flipped, plain);
  CHECK(type == f32({1, 4}));
  CHECK(holds(text, "(%arg0, %arg2) {dot_dimension_numbers"));
  CHECK(holds(text, "rhs_contracting_dimensions = [1]"));
  CHECK(!holds(product(rows, flipped, plain).second, "(%arg1, %arg2)"));
  // Batches keep their order, free dimensions would not.
  const Value vectors = builder.parameter(f32({3, 1, 8}));
  const auto batches = product(vectors, transpose(batched, Dims{0, 2, 1}), {{0}, {0}, {2}, {1}});
  CHECK(batches.first == f32({3, 1, 4}));
  CHECK(holds(batches.second, "(%arg4, %arg3)"));
  const auto turned = product(row, transpose(batched, Dims{2, 1, 0}), plain);
  CHECK(turned.first == f32({1, 4, 3}));
  CHECK(!holds(turned.second, "(%arg0, %arg3)"));
}

// Products whose left operand comes with the summed dimension first.
TEST(large_gradients_of_weights_are_products_of_the_host) {
  const auto product = [](Products products, const Type& a, const Type& b, bool turned) {
    Builder builder({}, /*keeps_operations=*/false, products);
    const Value x = builder.parameter(a);
    const Value y = builder.parameter(b);
    const Value flipped = transpose(x, Dims{1, 0});
    const Value result = turned ? hlo::product(flipped, y, {{}, {}, {1}, {0}}, a.dtype)
                                : hlo::product(x, y, {{}, {}, {0}, {0}}, a.dtype);
    CHECK((result.type == Type{a.dtype, {a.dims[1], b.dims[1]}}));
    return builder.module({result});
  };
  const auto calls_host = [&](Products products, const Type& a, const Type& b) {
    const bool calls = holds(product(products, a, b, false), kMatrixProduct);
    CHECK_EQ(holds(product(products, a, b, true), kMatrixProduct), calls);
    return calls;
  };
  const Type large = f32({64, 512});
  CHECK(holds(product(Products::kHost, large, large, true), "(%arg0, %arg1)"));
  CHECK(holds(product(Products::kHost, large, large, true), "transpose_rhs = 0 : i64"));
  CHECK(calls_host(Products::kHost, large, large));
  CHECK(calls_host(Products::kHost, {DType::kF64, {64, 512}}, {DType::kF64, {64, 512}}));
  CHECK(!calls_host(Products::kCompiler, large, large));
  CHECK(!calls_host(Products::kHost, f32({64, 512}), f32({64, 1})));
  CHECK(!calls_host(Products::kHost, f32({8, 8}), f32({8, 8})));
  CHECK(!calls_host(Products::kHost, {DType::kBF16, {64, 512}}, {DType::kBF16, {64, 512}}));
  // XLA is as fast at the others.
  Builder builder({}, /*keeps_operations=*/false, Products::kHost);
  const Value x = builder.parameter(large);
  const Value y = builder.parameter(f32({512, 64}));
  CHECK(!holds(builder.module({hlo::product(x, y, {{}, {}, {1}, {0}}, DType::kF32)}), kMatrixProduct));
  // Batches stay in front.
  const Value batched = builder.parameter(f32({4, 64, 512}));
  CHECK(!holds(builder.module({dot_general(batched, batched, {{0}, {0}, {1}, {1}}, DType::kF32)}),
               kMatrixProduct));
  const Value product_of_batches = hlo::product(batched, batched, {{0}, {0}, {1}, {1}}, DType::kF32);
  CHECK(product_of_batches.type == f32({4, 512, 512}));
  CHECK(holds(builder.module({product_of_batches}), kMatrixProduct));
}

TEST(reductions_and_dots) {
  Builder builder;
  const Value x = builder.parameter(f32({2, 3, 4}));
  CHECK(reduce(x, Reduction::kSum, Dims{2, 0}).type == f32({3}));
  CHECK(reduce_keep(x, Reduction::kMax, Dims{1}).type == f32({2, 1, 4}));
  CHECK_EQ(reduce(x, Reduction::kSum, Dims{}).name, x.name);
  const Value y = builder.parameter(f32({2, 5, 4}));
  const DotDims dims{.lhs_batch = {0}, .rhs_batch = {0}, .lhs_contract = {2}, .rhs_contract = {2}};
  CHECK(dot_general(x, y, dims, DType::kF32).type == f32({2, 3, 5}));
  Window window;
  window.size = {1, 2, 2};
  window.strides = {1, 1, 2};
  CHECK(reduce_window(x, Reduction::kMax, window).type == f32({2, 2, 2}));
  const std::string text = builder.module({});
  CHECK(holds(text, "dimensions = array<i64: 0, 2>"));
}

TEST(loops_and_sorts) {
  Builder builder;
  const Value x = builder.parameter(f32({8}));
  const Value index = builder.iota({DType::kS32, {8}}, 0);
  const Values sorted = sort({x, index}, 0, true, [](const Values& pair) {
    return Values{compare(Compare::kLt, pair[0], pair[1])};
  });
  CHECK_EQ(sorted.size(), size_t{2});
  CHECK(sorted[0].type == x.type && sorted[1].type == index.type);
  const Values state = while_loop(
      {x, builder.splat(int64_t{0}, {DType::kS32, {}})},
      [](const Values& s) { return Values{compare(Compare::kLt, s[1], 10.0)}; },
      [](const Values& s) { return Values{s[0] * 2.0, s[1] + 1.0}; });
  CHECK_EQ(state.size(), size_t{2});
  CHECK(state[0].type == x.type);
  const std::string text = builder.module(state);
  CHECK_EQ(occurrences(text, "stablehlo.return"), size_t{3});
  CHECK_EQ(occurrences(text, "{"), occurrences(text, "}"));
}

TEST(functions_are_emitted_once) {
  Builder builder;
  const Value x = builder.parameter(f32({4}));
  const Value y = builder.parameter(f32({5}));
  int bodies = 0;
  const Region twice = [&](const Values& arguments) {
    ++bodies;
    return Values{arguments[0] + arguments[0]};
  };
  const Value once = builder.call("twice", {x}, twice)[0];
  const Value again = builder.call("twice", {once}, twice)[0];
  const Value other = builder.call("twice", {y}, twice)[0];
  CHECK(again.type == x.type && other.type == y.type);
  CHECK_EQ(bodies, 2);
  const std::string text = builder.module({again, other});
  CHECK_EQ(occurrences(text, "func.func private"), size_t{2});
  CHECK_EQ(occurrences(text, "func.call"), size_t{3});
}

}  // namespace
