// The fused cells that torch's LSTM and GRU call once per time step, with their gradients.
#include "ops/promotion.h"

namespace torch_tpu::ops {
namespace {

using namespace hlo;

Values split_gates(const Value& gates, int64_t count) {
  const int64_t size = gates.dim(-1) / count;
  Values parts;
  for (int64_t i = 0; i < count; ++i)
    parts.push_back(slice_dim(gates, gates.rank() - 1, i * size, (i + 1) * size));
  return parts;
}

Value joined(const Values& parts) { return concatenate(parts, parts[0].rank() - 1); }

// The input's and the hidden state's gates with their biases, in the computation type.
Value gates_of(Lowering& op, int gates, int bias) {
  const Value x = to_compute(op.tensor(gates));
  return op.has(bias) ? x + to_compute(op.tensor(bias)) : x;
}

Value sum_of_rows(const Value& x, DType dtype) { return convert(reduce(x, Reduction::kSum, Dims{0}), dtype); }

}  // namespace

// ATen's Meta kernel fails without biases.
OP("aten::_thnn_fused_lstm_cell", .meta_results = 0) {
  const DType dtype = op.tensor(2).dtype();
  const Value cx = to_compute(op.tensor(2));
  const Values gates = split_gates(gates_of(op, 0, 3) + gates_of(op, 1, 4), 4);
  const Value input = logistic(gates[0]);
  const Value forget = logistic(gates[1]);
  const Value cell = tanh(gates[2]);
  const Value output = logistic(gates[3]);
  const Value cy = forget * cx + input * cell;
  const Value hy = output * tanh(cy);
  return {convert(hy, dtype), convert(cy, dtype), convert(joined({input, forget, cell, output}), dtype)};
}

OP("aten::_thnn_fused_lstm_cell_backward_impl") {
  const Value workspace = op.tensor(4);
  const DType dtype = workspace.dtype();
  const Values gates = split_gates(to_compute(workspace), 4);
  const Value &input = gates[0], &forget = gates[1], &cell = gates[2], &output = gates[3];
  const Value cx = to_compute(op.tensor(2));
  const Value squashed = tanh(to_compute(op.tensor(3)));
  const Value zero = like(squashed, 0.0);
  const Value grad_hy = op.has(0) ? to_compute(op.tensor(0)) : zero;
  const Value grad_cy = op.has(1) ? to_compute(op.tensor(1)) : zero;
  const Value grad_cell_state = grad_hy * output * (1.0 - squashed * squashed) + grad_cy;
  const Value grad_gates =
      joined({grad_cell_state * cell * (1.0 - input) * input, grad_cell_state * cx * (1.0 - forget) * forget,
              grad_cell_state * input * (1.0 - cell * cell), grad_hy * squashed * (1.0 - output) * output});
  Values results{convert(grad_gates, dtype), convert(grad_cell_state * forget, dtype), Value{}};
  if (op.flag(5)) results[2] = sum_of_rows(grad_gates, dtype);
  return results;
}

// The workspace keeps reset, update and new gates, the previous state, and the hidden part of the
// new gate, in this order.
OP("aten::_thnn_fused_gru_cell") {
  const DType dtype = op.tensor(2).dtype();
  const Value hx = to_compute(op.tensor(2));
  const Values input = split_gates(gates_of(op, 0, 3), 3);
  const Values hidden = split_gates(gates_of(op, 1, 4), 3);
  const Value reset = logistic(input[0] + hidden[0]);
  const Value update = logistic(input[1] + hidden[1]);
  const Value fresh = tanh(input[2] + reset * hidden[2]);
  const Value hy = fresh + update * (hx - fresh);
  return {convert(hy, dtype), convert(joined({reset, update, fresh, hx, hidden[2]}), dtype)};
}

OP("aten::_thnn_fused_gru_cell_backward") {
  const DType dtype = op.tensor(1).dtype();
  const Value grad_hy = to_compute(op.tensor(0));
  const Values saved = split_gates(to_compute(op.tensor(1)), 5);
  const Value &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3], &hidden = saved[4];
  const Value grad_update = grad_hy * (hx - fresh) * (1.0 - update) * update;
  const Value grad_fresh = grad_hy * (1.0 - update) * (1.0 - fresh * fresh);
  const Value grad_reset = grad_fresh * hidden * (1.0 - reset) * reset;
  const Value grad_input_gates = joined({grad_reset, grad_update, grad_fresh});
  const Value grad_hidden_gates = joined({grad_reset, grad_update, grad_fresh * reset});
  Values results{convert(grad_input_gates, dtype), convert(grad_hidden_gates, dtype),
                 convert(grad_hy * update, dtype), Value{}, Value{}};
  if (op.flag(2)) {
    results[3] = sum_of_rows(grad_input_gates, dtype);
    results[4] = sum_of_rows(grad_hidden_gates, dtype);
  }
  return results;
}

}  // namespace torch_tpu::ops
