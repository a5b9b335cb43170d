// A recorded graph as one operator: recording it again costs as much as one call.
#include "ops/op.h"

namespace torch_tpu::ops {

OP("tpu::graph") {
  Values results;
  auto number = op.scalar_values().begin();
  for (const Body::Step& step : op.call().body->steps) {
    Values inputs;
    for (const int32_t reference : step.references)
      inputs.push_back(reference < 0 ? op.inputs()[-1 - reference] : results[reference]);
    const RunTimeNumbers numbers = run_time_numbers(*step.call, [&](const ScalarSlot&) { return *number++; });
    const auto lowered = lower(op.builder(), *step.call, inputs, numbers, step.source);
    if (!lowered.ok()) op.fail(lowered.status().code(), lowered.status().message());
    results.insert(results.end(), lowered->results.begin(), lowered->results.end());
    op.adopt(step.call->checks, lowered->offenders);
  }
  Values wanted;
  for (const uint32_t result : op.call().body->results) wanted.push_back(results[result]);
  return wanted;
}

Call graph_call(Body body, std::vector<Type> inputs) {
  Call call;
  call.op = find_op("tpu::graph");
  call.inputs = std::move(inputs);
  call.hash.append(call.op->identity);
  for (const Type& type : call.inputs) type.append_to(call.hash);
  std::vector<Type> results;
  for (const Body::Step& step : body.steps) {
    const Call& part = *step.call;
    call.hash.append(part.hash);
    for (const int32_t reference : step.references) call.hash.append(static_cast<uint64_t>(reference));
    call.scalars.insert(call.scalars.end(), part.scalars.begin(), part.scalars.end());
    if (part.op->traits.random) call.scalars.insert(call.scalars.end(), 2, kRandomSlot);
    call.checks.insert(call.checks.end(), part.checks.begin(), part.checks.end());
    results.insert(results.end(), part.outputs.begin(), part.outputs.end());
  }
  for (const uint32_t result : body.results) {
    call.hash.append(uint64_t{result});
    call.outputs.push_back(results[result]);
    call.returned.push_back(true);
  }
  call.body = std::make_shared<const Body>(std::move(body));
  return call;
}

}  // namespace torch_tpu::ops
