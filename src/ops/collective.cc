// Collectives of torch.distributed as operators of a program that several replicas run. Their arguments: the
// tensor, flat; of a reduction its code, or of what one replica gives the replica's place in its group; the
// replicas of all groups; how many are in each.
#include <optional>

#include "ops/op.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

ReplicaGroups groups_of(const Lowering& op, int first) {
  return {op.integers(first), static_cast<size_t>(op.integer(first + 1))};
}

/// Truth values add up as in C: whether any is true.
Reduction reduction_for(Reduction kind, DType dtype) {
  const bool is_any = dtype == DType::kPred && (kind == Reduction::kSum || kind == Reduction::kMax);
  const bool is_all = dtype == DType::kPred && (kind == Reduction::kProduct || kind == Reduction::kMin);
  return is_any ? Reduction::kOr : is_all ? Reduction::kAnd : kind;
}

Reduction reduction_of(const Lowering& op) {
  return reduction_for(static_cast<Reduction>(op.integer(1)), op.tensor(0).dtype());
}

/// The tensor on the replica that is the root of its group, zeros on the others.
Value from_root(const Lowering& op, const ReplicaGroups& all) {
  const Value x = op.tensor(0);
  const Value id = hlo::convert(replica_id(*x.builder), DType::kS64);
  std::optional<Value> is_root;
  for (size_t i = static_cast<size_t>(op.integer(1)); i < all.replicas.size(); i += all.size) {
    const Value here = compare(Compare::kEq, id, x.builder->splat(all.replicas[i], {DType::kS64, {}}));
    is_root = is_root ? *is_root | here : here;
  }
  return select(*is_root, x, like(x, 0.0));
}

}  // namespace

OP("tpu::all_reduce") { return {hlo::all_reduce(op.tensor(0), reduction_of(op), groups_of(op, 2))}; }

OP("tpu::all_gather") { return {hlo::all_gather(op.tensor(0), 0, groups_of(op, 1))}; }

OP("tpu::reduce_scatter") {
  return {hlo::reduce_scatter(op.tensor(0), reduction_of(op), 0, groups_of(op, 2))};
}

OP("tpu::all_to_all") { return {hlo::all_to_all(op.tensor(0), 0, groups_of(op, 1))}; }

// TPUs have no broadcast among replicas: the others add zeros.
OP("tpu::broadcast_from") {
  const ReplicaGroups groups = groups_of(op, 2);
  const Value x = from_root(op, groups);
  return {hlo::all_reduce(x, reduction_for(Reduction::kSum, x.dtype()), groups)};
}

OP("tpu::scatter_from") {
  const ReplicaGroups groups = groups_of(op, 2);
  const Value x = from_root(op, groups);
  return {hlo::reduce_scatter(x, reduction_for(Reduction::kSum, x.dtype()), 0, groups)};
}

}  // namespace torch_tpu::ops
