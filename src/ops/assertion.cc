// Assertions in graphs: they fail at the next host read.
#include "ops/op.h"

namespace torch_tpu::ops {
namespace {

void check_assertion(Lowering& op, const std::string& message) {
  const Value x = op.tensor(0);
  const int64_t count = x.type.elements();
  if (count != 1) {
    op.fail(std::string("Boolean value of Tensor with ") +
            (count == 0 ? "no values" : "more than one value") + " is ambiguous");
  }
  op.check(!hlo::convert(x, DType::kPred), Code::kInvalidArgument, message);
}

}  // namespace

OP("aten::_assert_async") {
  check_assertion(op, "Expected Tensor with single nonzero value, but got zero");
  return {};
}

OP("aten::_assert_async.msg") {
  check_assertion(op, op.text(1));
  return {};
}

}  // namespace torch_tpu::ops
