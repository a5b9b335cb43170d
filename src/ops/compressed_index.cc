// Indices of compressed sparse matrices: from coordinates and back.
#include "ops/indexing.h"

namespace torch_tpu::ops {

// Row r starts where the sorted rows reach r.
OP("aten::_convert_indices_from_coo_to_csr") {
  const Value rows = flatten(op.tensor(0));
  const Dims bounds{1, op.integer(1) + 1};
  const Value starts =
      binary_search(reshape(rows, Dims{1, rows.dim(0)}), op.builder().iota({rows.dtype(), bounds}, 1), false);
  return {hlo::convert(flatten(starts), op.flag(2) ? DType::kS32 : DType::kS64)};
}

// One line per batch dimension, then the rows and the columns of the entries.
OP("aten::_convert_indices_from_csr_to_coo") {
  Builder& builder = op.builder();
  const Value starts = op.tensor(0);
  const Value plain = op.tensor(1);
  const int64_t entries = plain.type.elements();
  const DType dtype = op.flag(2) ? DType::kS32 : DType::kS64;
  const auto line = [&](const Value& x) { return hlo::convert(reshape(x, Dims{1, entries}), dtype); };
  Values lines;
  for (int64_t dim = 0; dim + 1 < plain.rank(); ++dim) {
    lines.push_back(line(builder.iota({dtype, plain.dims()}, dim)));
  }
  const Dims batched{starts.type.elements() / starts.dim(-1), plain.dim(-1)};
  const Value places = builder.iota({starts.dtype(), batched}, 1);
  const Value compressed =
      line(binary_search(reshape(starts, Dims{batched[0], starts.dim(-1)}), places, true)) - 1.0;
  const bool transposed = op.flag(3);
  lines.push_back(transposed ? line(plain) : compressed);
  lines.push_back(transposed ? compressed : line(plain));
  return {concatenate(lines, 0)};
}

}  // namespace torch_tpu::ops
