#include "ops/op.h"

#include <set>

#include "tests/check.h"

using namespace torch_tpu;
using namespace torch_tpu::ops;

OP("test::everything", .structural = {2}) {
  CHECK(op.has(0));
  CHECK(!op.has(1));
  CHECK(op.optional_tensor(1).builder == nullptr);
  CHECK_EQ(op.constant(2), 2.5);
  CHECK_EQ(op.integer(3), -1);
  CHECK_EQ(op.integer_or(1, 9), 9);
  CHECK(op.flag(4));
  CHECK(!op.flag(1));
  CHECK_EQ(op.integers(5).size(), size_t{2});
  CHECK(op.integers(1).empty());
  CHECK(op.text(6) == "mean");
  CHECK(op.dtype(7) == DType::kF64);
  CHECK(!op.dtype(1));
  CHECK_EQ(op.tensors(8).size(), size_t{2});
  CHECK(op.tensors(8)[1].builder == nullptr);
  CHECK(!op.number(9));
  CHECK_EQ(op.scalar(9).dtype(), DType::kS64);
  CHECK(op.scalar(9).wrapped);
  CHECK(!op.scalar(9, DType::kF32).wrapped);
  CHECK(op.tensor(9).rank() == 0 && op.tensor(9).wrapped);
  CHECK_EQ(op.dim(3, 4), 3);
  CHECK(op.dims(5, 3) == (Dims{0, 2}));
  CHECK(op.dims(3, 3) == Dims{2});
  CHECK(op.dims_or_all(1, 3) == (Dims{0, 1, 2}));
  CHECK(op.dims_or_all(5, 3) == (Dims{0, 2}));
  return {op.tensor(0), Value{}, hlo::convert(op.tensor(0), DType::kS32)};
}
OP("test::wraps") { return {op.builder().splat(op.dim(0, op.integer(1)), {DType::kS64, {}})}; }
OP("test::repeats") { return {op.builder().integers(op.dims(0, 3), DType::kS64)}; }
OP("test::wrong_kind") { return {op.builder().splat(op.integer(0), {DType::kS64, {}})}; }
OP("test::twice") { return {op.tensor(0)}; }
OP("test::twice") { return {op.tensor(1)}; }

namespace {

Call call_of(std::string_view name, std::vector<Type> inputs, std::vector<Arg> args) {
  Call call;
  call.op = find_op(name);
  call.inputs = std::move(inputs);
  call.args = std::move(args);
  return call;
}

Type f32(std::initializer_list<int64_t> dims) { return {DType::kF32, Dims(dims)}; }

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(registry) {
  size_t schemas = 0;
  std::set<std::string> names;
  std::set<std::string> identities;
  for (const Op* op : all_ops()) {
    CHECK(names.insert(op->name).second);
    CHECK(identities.insert(op->identity.hex()).second);
    CHECK(op->lower != nullptr);
    CHECK(find_op(op->name) == op);
    if (op->name.starts_with("test::")) continue;
    ++schemas;
    CHECK(op->name.starts_with("aten::") || op->name.starts_with("tpu::"));
  }
  CHECK(schemas >= 150);
  CHECK(find_op("aten::add.Tensor") != nullptr);
  CHECK(find_op("aten::no_such_operator") == nullptr);
}

TEST(duplicates) {
  CHECK_EQ(duplicate_ops().size(), size_t{1});
  for (const std::string& name : duplicate_ops()) CHECK_EQ(name, std::string("test::twice"));
  // The first declaration counts.
  Call call = call_of("test::twice", {f32({2}), f32({3})}, {TensorArg{0}, TensorArg{1}});
  REQUIRE_OK(infer(call));
  CHECK(call.outputs[0] == f32({2}));
}

TEST(arguments) {
  Call call = call_of("test::everything", {f32({2, 2})},
                      {TensorArg{0}, std::monostate(), 2.5, int64_t{-1}, true, std::vector<int64_t>{0, -1},
                       std::string("mean"), DType::kF64, TensorListArg{{0, -1}}, ScalarArg{0}});
  call.scalars.push_back({DType::kS64, true});
  REQUIRE_OK(infer(call));
  CHECK_EQ(call.outputs.size(), size_t{2});
  CHECK(call.outputs.back() == (Type{DType::kS32, {2, 2}}));
  CHECK(call.returned == (std::vector<bool>{true, false, true}));
  CHECK_EQ(call.random_blocks, 0);
}

TEST(dimensions_out_of_range) {
  const auto wrap = [](int64_t dim, int64_t rank) {
    Call call = call_of("test::wraps", {}, {dim, rank});
    return infer(call);
  };
  CHECK(wrap(-3, 3).ok() && wrap(2, 3).ok() && wrap(-1, 0).ok() && wrap(0, 0).ok());
  CHECK_EQ(wrap(3, 3).code(), Code::kIndexError);
  CHECK_EQ(wrap(3, 3).message(),
           std::string("Dimension out of range (expected to be in range of [-3, 2], but got 3)"));
  CHECK_EQ(wrap(-2, 0).code(), Code::kIndexError);
  Call call = call_of("test::repeats", {}, {std::vector<int64_t>{1, -2}});
  CHECK_EQ(infer(call).message(), std::string("dim 1 appears multiple times in the list of dims"));
}

TEST(wrong_kind_of_argument) {
  Call call = call_of("test::wrong_kind", {}, {std::string("text")});
  CHECK_EQ(infer(call).code(), Code::kInternal);
  CHECK(holds(infer(call).message(), "test::wrong_kind"));
}

TEST(words_of_scalars) {
  Call call;
  call.scalars = {{DType::kS64, true}, {DType::kC128, true}, {DType::kF64, false}, {DType::kPred, true}};
  CHECK_EQ(call.scalar_words(), 5);
  CHECK(call.scalars[0].is_integer() && call.scalars[3].is_integer());
  CHECK(!call.scalars[1].is_integer() && !call.scalars[2].is_integer());
}

TEST(inference) {
  struct Row {
    std::string_view op;
    std::vector<Type> inputs;
    std::vector<Arg> args;
    Type result;
  };
  const TensorArg first{0}, second{1};
  const Type whole{DType::kS64, {3}};
  const Type half{DType::kF16, {3}};
  const std::monostate none;
  const Row rows[] = {
      {"aten::add.Tensor", {f32({2, 3}), f32({3})}, {first, second, int64_t{1}}, f32({2, 3})},
      {"aten::add.Tensor", {whole, half}, {first, second, int64_t{1}}, half},
      {"aten::mul.Tensor", {whole, f32({4, 1})}, {first, second}, f32({4, 3})},
      {"aten::div.Tensor", {whole, whole}, {first, second}, f32({3})},
      {"aten::eq.Tensor", {half, whole}, {first, second}, {DType::kPred, {3}}},
      {"aten::mm", {f32({2, 3}), f32({3, 5})}, {first, second}, f32({2, 5})},
      {"aten::bmm", {f32({7, 2, 3}), f32({7, 3, 5})}, {first, second}, f32({7, 2, 5})},
      {"aten::exp", {whole}, {first}, f32({3})},
      {"aten::sum.dim_IntList",
       {f32({2, 3, 4})},
       {first, std::vector<int64_t>{0, -1}, false, none},
       f32({3})},
      {"aten::sum.dim_IntList",
       {{DType::kPred, {2, 3}}},
       {first, std::vector<int64_t>{1}, true, none},
       {DType::kS64, {2, 1}}},
      {"aten::argmax", {f32({2, 3})}, {first, int64_t{1}, false}, {DType::kS64, {2}}},
      {"tpu::convert", {f32({2})}, {first, DType::kS8}, {DType::kS8, {2}}},
      {"tpu::zeros", {}, {std::vector<int64_t>{2, 0}, DType::kC64}, {DType::kC64, {2, 0}}},
  };
  for (const Row& row : rows) {
    Call call = call_of(row.op, row.inputs, row.args);
    if (call.op == nullptr) {
      testing::fail(__FILE__, __LINE__, std::string(row.op) + " is missing");
      continue;
    }
    const Status status = infer(call);
    CHECK_EQ(status.message(), std::string());
    CHECK_EQ(call.outputs.size(), size_t{1});
    if (call.outputs.size() == 1) CHECK_EQ(call.outputs[0].text(), row.result.text());
  }
}

TEST(refusals) {
  Call sum = call_of("aten::add.Tensor", {f32({3}), f32({2, 4})}, {TensorArg{0}, TensorArg{1}, int64_t{1}});
  CHECK_EQ(infer(sum).code(), Code::kInvalidArgument);
  CHECK(holds(infer(sum).message(), "The size of tensor a (3) must match the size of tensor b (4)"));
  Call product = call_of("aten::dot", {f32({2, 3}), f32({3})}, {TensorArg{0}, TensorArg{1}});
  CHECK_EQ(infer(product).message(), std::string("1D tensors expected, but got 2D and 1D tensors"));
}

// What runs is what was announced.
TEST(lowering_follows_inference) {
  Call call = call_of("aten::add.Tensor", {f32({2, 3}), {DType::kS32, {}}},
                      {TensorArg{0}, TensorArg{1}, ScalarArg{0}});
  call.scalars.push_back({DType::kS64, true});
  REQUIRE_OK(infer(call));
  Builder builder;
  const Values inputs{builder.parameter(call.inputs[0]), builder.parameter(call.inputs[1])};
  const RunTimeNumbers numbers{{builder.parameter({DType::kS64, {}})}, {}, {}};
  const auto lowered = lower(builder, call, inputs, numbers, "");
  REQUIRE_OK(lowered);
  CHECK_EQ(lowered->results.size(), call.outputs.size());
  CHECK(lowered->results.front().type == call.outputs[0]);
  CHECK(holds(builder.module(lowered->results), "stablehlo.add"));
}

}  // namespace
