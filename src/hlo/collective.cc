// Collectives among replicas of a program.
#include "hlo/builder.h"
#include "hlo/operation_text.h"

namespace torch_tpu::hlo {
namespace {

/// "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"
std::string groups_text(const ReplicaGroups& groups) {
  std::string rows;
  for (size_t i = 0; i < groups.replicas.size(); ++i) {
    const bool starts = i % groups.size == 0;
    rows += starts ? (i == 0 ? "[" : "], [") : ", ";
    rows += std::to_string(groups.replicas[i]);
  }
  return "replica_groups = dense<[" + rows + "]]> : tensor<" +
         std::to_string(groups.replicas.size() / groups.size) + "x" + std::to_string(groups.size) + "xi64>";
}

Type scaled(const Type& type, int64_t dim, int64_t factor, int64_t divisor) {
  Type result = type;
  result.dims[dim] = type.dims[dim] * factor / divisor;
  return result;
}

std::string region_of(const Value& x, Reduction kind) {
  return x.builder->region({{x.dtype(), {}}, {x.dtype(), {}}}, combiner(kind));
}

}  // namespace

Value all_reduce(const Value& x, Reduction kind, const ReplicaGroups& groups) {
  return x.builder->emit("stablehlo.all_reduce", {x}, {x.type}, groups_text(groups), {region_of(x, kind)})[0];
}

Value all_gather(const Value& x, int64_t dim, const ReplicaGroups& groups) {
  return x.builder->emit("stablehlo.all_gather", {x},
                         {scaled(x.type, dim, static_cast<int64_t>(groups.size), 1)},
                         "all_gather_dim = " + std::to_string(dim) + " : i64, " + groups_text(groups))[0];
}

Value reduce_scatter(const Value& x, Reduction kind, int64_t dim, const ReplicaGroups& groups) {
  return x.builder->emit("stablehlo.reduce_scatter", {x},
                         {scaled(x.type, dim, 1, static_cast<int64_t>(groups.size))},
                         "scatter_dimension = " + std::to_string(dim) + " : i64, " + groups_text(groups),
                         {region_of(x, kind)})[0];
}

Value all_to_all(const Value& x, int64_t dim, const ReplicaGroups& groups) {
  const std::string place = std::to_string(dim) + " : i64, ";
  return x.builder->emit("stablehlo.all_to_all", {x}, {x.type},
                         "split_dimension = " + place + "concat_dimension = " + place + "split_count = " +
                             std::to_string(groups.size) + " : i64, " + groups_text(groups))[0];
}

Value replica_id(Builder& builder) {
  return builder.emit("stablehlo.replica_id", {}, {Type{DType::kU32, {}}}, "")[0];
}

}  // namespace torch_tpu::hlo
