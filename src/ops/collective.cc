// Collectives of torch.distributed as operators of a program that several replicas run: arguments are the
// tensor, flat, where they reduce the code of the reduction, the replicas of all groups, and how many are in
// each.
#include <optional>

#include "ops/op.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

ReplicaGroups groups_of(const Lowering& op, int first) {
  return {op.integers(first), static_cast<size_t>(op.integer(first + 1))};
}

Reduction reduction_of(const Lowering& op, int i, DType dtype) {
  const auto kind = static_cast<Reduction>(op.integer(i));
  // Truth values add up as in C: whether any is true.
  const bool is_any = dtype == DType::kPred && (kind == Reduction::kSum || kind == Reduction::kMax);
  const bool is_all = dtype == DType::kPred && (kind == Reduction::kProduct || kind == Reduction::kMin);
  return is_any ? Reduction::kOr : is_all ? Reduction::kAnd : kind;
}

/// x on the replica that is `root` in its group, zeros on the others.
Value from_root(const Value& x, const Lowering& op, int root, int groups) {
  const ReplicaGroups all = groups_of(op, groups);
  const Value id = hlo::convert(replica_id(*x.builder), DType::kS64);
  std::optional<Value> is_root;
  for (size_t i = static_cast<size_t>(op.integer(root)); i < all.replicas.size(); i += all.size) {
    const Value here = compare(Compare::kEq, id, x.builder->splat(all.replicas[i], {DType::kS64, {}}));
    is_root = is_root ? *is_root | here : here;
  }
  return select(*is_root, x, like(x, 0.0));
}

}  // namespace

OP("tpu::all_reduce") {
  const Value x = op.tensor(0);
  return {hlo::all_reduce(x, reduction_of(op, 1, x.dtype()), groups_of(op, 2))};
}

OP("tpu::all_gather") { return {hlo::all_gather(op.tensor(0), 0, groups_of(op, 1))}; }

OP("tpu::reduce_scatter") {
  const Value x = op.tensor(0);
  return {hlo::reduce_scatter(x, reduction_of(op, 1, x.dtype()), 0, groups_of(op, 2))};
}

OP("tpu::all_to_all") { return {hlo::all_to_all(op.tensor(0), 0, groups_of(op, 1))}; }

// TPUs have no broadcast among replicas: the others add zeros.
OP("tpu::broadcast_from") {
  const Value x = op.tensor(0);
  return {hlo::all_reduce(from_root(x, op, 1, 2), reduction_of(op, 4, x.dtype()), groups_of(op, 2))};
}

OP("tpu::scatter_from") {
  const Value x = op.tensor(0);
  return {hlo::reduce_scatter(from_root(x, op, 1, 2), reduction_of(op, 4, x.dtype()), 0, groups_of(op, 2))};
}

}  // namespace torch_tpu::ops
