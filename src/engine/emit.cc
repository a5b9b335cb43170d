// The StableHLO of a program.
#include "engine/program.h"
#include "ops/op.h"

namespace torch_tpu::engine {

Result<hlo::Values> append(hlo::Builder& builder, const Program& program, std::span<const ops::CallPtr> calls,
                           std::span<const hlo::Type> leaf_types, const Target& target) {
  const Graph& graph = program.graph;
  hlo::Values leaves(graph.leaves.size());
  for (size_t i = 0; i < program.leaves.size(); ++i) {
    const uint32_t leaf = program.leaves[i];
    leaves[leaf] = builder.parameter(leaf_types[i], program.successors[i]);
  }
  int64_t integers = 0;
  int64_t floats = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!program.needed[i]) continue;
    const ops::Call& call = *calls[i];
    for (const ops::ScalarSlot& slot : call.scalars) (slot.is_integer() ? integers : floats) += slot.words();
    if (call.op->traits.random) integers += 2;
  }
  const hlo::DType float_dtype =
      target.platform == pjrt::Platform::kTpu ? hlo::DType::kF32 : hlo::DType::kF64;
  hlo::Value packed_integers;
  hlo::Value packed_floats;
  if (integers > 0) packed_integers = builder.parameter({hlo::DType::kS64, {integers}});
  if (floats > 0) packed_floats = builder.parameter({float_dtype, {floats}});
  int64_t next_integer = 0;
  int64_t next_float = 0;
  const auto unpack = [](const hlo::Value& packed, int64_t& next) {
    const int64_t position = next++;
    return hlo::reshape(hlo::slice_dim(packed, 0, position, position + 1), hlo::Dims{});
  };
  const auto next_number = [&](const ops::ScalarSlot& slot) {
    hlo::Value number =
        slot.is_integer() ? unpack(packed_integers, next_integer) : unpack(packed_floats, next_float);
    if (slot.words() == 2) number = hlo::complex(number, unpack(packed_floats, next_float));
    return hlo::convert(number, slot.dtype);
  };

  hlo::Values outputs(program.outcomes.size());
  hlo::Values offenders;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!program.needed[i]) continue;
    const Graph::Node& node = graph.nodes[i];
    const ops::Call& call = *calls[i];
    hlo::Values inputs;
    for (const Reference reference : graph.references_of(node)) {
      inputs.push_back(reference < 0 ? leaves[-1 - reference] : outputs[reference]);
    }
    ASSIGN_OR_RETURN(
        const ops::Lowered lowered,
        ops::lower(builder, call, inputs, ops::run_time_numbers(call, next_number), graph.source_of(i)));
    const hlo::Values& results = lowered.results;
    for (const hlo::Value& offender : lowered.offenders) {
      offenders.push_back(hlo::reshape(offender, hlo::Dims{1}));
    }
    for (size_t k = 0; k < results.size(); ++k) {
      if (!(results[k].type == call.outputs[k])) {
        return internal_error("the lowering of " + call.op->name + " gave " + results[k].type.text() +
                              " after it announced " + call.outputs[k].text());
      }
      outputs[node.first_output + k] = results[k];
    }
  }
  hlo::Values results;
  for (const uint32_t result : program.results) results.push_back(outputs[result]);
  if (target.checks_values && !offenders.empty()) results.push_back(hlo::concatenate(offenders, 0));
  return results;
}

Result<std::string> emit(const Program& program, const Target& target) {
  std::vector<hlo::Type> leaf_types;
  for (const uint32_t leaf : program.leaves)
    leaf_types.push_back(program.graph.leaves[leaf].outcome->buffer->type());
  hlo::Builder builder({}, /*keeps_operations=*/false, target.products);
  ASSIGN_OR_RETURN(const hlo::Values results,
                   append(builder, program, program.graph.calls, leaf_types, target));
  return builder.module(results);
}

}  // namespace torch_tpu::engine
