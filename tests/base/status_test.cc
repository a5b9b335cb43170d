#include "base/status.h"

#include <memory>
#include <vector>

#include "tests/check.h"

using namespace torch_tpu;

namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return invalid_argument(std::to_string(number) + " is odd");
  return number / 2;
}

Result<int> quarter(int number) {
  ASSIGN_OR_RETURN(const int once, half(number));
  ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

Status check_quarter(int number, int& checks) {
  RETURN_IF_ERROR(quarter(number).status());
  ++checks;
  RETURN_IF_ERROR(Status());
  ++checks;
  return {};
}

TEST(success) {
  const Status status;
  CHECK(status.ok());
  CHECK_EQ(status.code(), Code::kOk);
  CHECK(status.message().empty());
  CHECK(status.with_context("reading").ok());
  CHECK(status.with_context("reading").message().empty());
}

TEST(failure) {
  const Status status(Code::kNotFound, "no file");
  CHECK(!status.ok());
  CHECK_EQ(status.code(), Code::kNotFound);
  CHECK_EQ(status.message(), std::string("no file"));
  CHECK_EQ(status.with_context("opening").message(), std::string("opening: no file"));
  CHECK_EQ(status.with_context("opening").code(), Code::kNotFound);
  CHECK_EQ(invalid_argument("x").code(), Code::kInvalidArgument);
  CHECK_EQ(internal_error("x").code(), Code::kInternal);
}

TEST(result) {
  Result<int> good = half(8);
  REQUIRE_OK(good);
  CHECK_EQ(*good, 4);
  CHECK(good.status().ok());
  good.value() = 5;
  CHECK_EQ(*good, 5);
  const Result<int> bad = half(7);
  CHECK(!bad.ok());
  CHECK_EQ(bad.status().message(), std::string("7 is odd"));
}

TEST(result_of_a_type_that_only_moves) {
  Result<std::unique_ptr<int>> pointer(std::make_unique<int>(3));
  REQUIRE_OK(pointer);
  const std::unique_ptr<int> taken = std::move(pointer).value();
  CHECK_EQ(*taken, 3);
  Result<std::vector<int>> numbers(std::vector<int>{1, 2});
  CHECK_EQ(numbers->size(), size_t{2});
  const std::vector<int> moved = *std::move(numbers);
  CHECK_EQ(moved.size(), size_t{2});
}

TEST(first_error_returns) {
  const Result<int> good = quarter(12);
  REQUIRE_OK(good);
  CHECK_EQ(*good, 3);
  CHECK_EQ(quarter(6).status().message(), std::string("3 is odd"));
  int checks = 0;
  CHECK_EQ(check_quarter(6, checks).code(), Code::kInvalidArgument);
  CHECK_EQ(checks, 0);
  CHECK(check_quarter(4, checks).ok());
  CHECK_EQ(checks, 2);
}

}  // namespace
