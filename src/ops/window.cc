#include "ops/window.h"

#include <limits>

namespace torch_tpu::ops {

using namespace hlo;

std::vector<Dims> window_taps(const Dims& kernel) {
  std::vector<Dims> positions{Dims(kernel.size(), 0)};
  for (size_t i = 0; i < kernel.size(); ++i) {
    std::vector<Dims> longer;
    for (const Dims& position : positions) {
      for (int64_t k = 0; k < kernel[i]; ++k) {
        longer.push_back(position);
        longer.back()[i] = k;
      }
    }
    positions = std::move(longer);
  }
  return positions;
}

Value window_padded(const Value& x, const Windows& w, const Dims& kernel, const Dims& output, double fill) {
  const size_t first = x.dims().size() - w.rank();
  Dims low(x.dims().size(), 0);
  Dims high(x.dims().size(), 0);
  for (size_t i = 0; i < w.rank(); ++i) {
    const int64_t reach = (output[i] - 1) * w.stride[i] + (kernel[i] - 1) * w.dilation[i] + 1;
    low[first + i] = w.padding[i];
    high[first + i] = std::max<int64_t>(reach - w.padding[i] - x.dims()[first + i], 0);
  }
  const Type scalar{x.dtype(), {}};
  const bool lowest = fill == -std::numeric_limits<double>::infinity();
  return pad(x, lowest ? x.builder->lowest(scalar) : x.builder->splat(fill, scalar), low, high);
}

Value under_tap(const Value& padded, const Dims& tap, const Dims& output, const Windows& w) {
  const size_t first = padded.dims().size() - w.rank();
  Dims start(padded.dims().size(), 0);
  Dims limit = padded.dims();
  Dims stride(padded.dims().size(), 1);
  for (size_t i = 0; i < w.rank(); ++i) {
    start[first + i] = tap[i] * w.dilation[i];
    limit[first + i] = start[first + i] + (output[i] - 1) * w.stride[i] + 1;
    stride[first + i] = w.stride[i];
  }
  return slice(padded, start, limit, stride);
}

Value onto_input(const Value& values, const Dims& tap, const Dims& input, const Windows& w) {
  const size_t first = values.dims().size() - w.rank();
  Dims low(values.dims().size(), 0);
  Dims high(values.dims().size(), 0);
  Dims interior(values.dims().size(), 0);
  for (size_t i = 0; i < w.rank(); ++i) {
    const int64_t dilated = (values.dims()[first + i] - 1) * w.stride[i] + 1;
    low[first + i] = tap[i] * w.dilation[i] - w.padding[i];
    high[first + i] = input[i] - dilated - low[first + i];
    interior[first + i] = w.stride[i] - 1;
  }
  return pad(values, values.builder->splat(0.0, {values.dtype(), {}}), low, high, interior);
}

Dims per_dimension(const std::vector<int64_t>& numbers, size_t rank) {
  return numbers.size() == 1 ? Dims(rank, numbers[0]) : Dims(numbers);
}

Dims last_dims(const Dims& dims, size_t rank) { return Dims(dims.end() - rank, dims.end()); }

Dims with_last_dims(const Dims& dims, const Dims& tail) {
  Dims result(dims.begin(), dims.end() - tail.size());
  for (const int64_t size : tail) result.push_back(size);
  return result;
}

}  // namespace torch_tpu::ops
