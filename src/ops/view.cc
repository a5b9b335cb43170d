// The internal operators behind views: the only way in which the layer above reads a part of a
// storage, or writes one.
#include "hlo/strided.h"
#include "ops/indexing.h"

namespace torch_tpu::ops {

// (base, base_strides, sizes, strides, offset, dtype, grid, dimensions of it, starts in them at run time)
OP("tpu::strided_read") {
  const hlo::Layout view{op.integers(2), op.integers(3), op.integer(4)};
  return {hlo::read_strided(op.tensor(0), op.integers(1), view, *op.dtype(5),
                            {op.integers(6), op.integers(7), op.scalars(8)})};
}

// (base, value, base_strides, strides, offset, grid, dimensions of it, starts in them at run time): value has
// the view's sizes
OP("tpu::strided_write") {
  const Value value = op.tensor(1);
  const hlo::Layout view{value.dims(), op.integers(3), op.integer(4)};
  const Value base = op.tensor(0);
  return {written_once(base, value,
                       hlo::write_strided(base, op.integers(2), view, value,
                                          {op.integers(5), op.integers(6), op.scalars(7)}))};
}

// (base, base_strides, count, dtype): the storage's memory as rank 1
OP("tpu::flatten") {
  return {hlo::flatten_memory(op.tensor(0), op.integers(1), op.integer(2), *op.dtype(3))};
}

// (sizes, dtype): what an uninitialised storage reads as
OP("tpu::zeros") { return {op.builder().splat(int64_t{0}, {*op.dtype(1), op.integers(0)})}; }

}  // namespace torch_tpu::ops
