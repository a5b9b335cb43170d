// Views against a plain walk over memory. On the fake plugin, which computes nothing, only the types.
#include "hlo/strided.h"

#include <cstring>
#include <numeric>
#include <random>

#include "tests/engine/engine_under_test.h"

using namespace torch_tpu;
using namespace torch_tpu::testing;
using hlo::Layout;

namespace {

Layout layout_of(ops::Lowering& op, int i) {
  return {Dims(op.integers(i)), Dims(op.integers(i + 1)), op.integer(i + 2)};
}

OP("test::strided_read") {
  return {hlo::read_strided(op.tensor(0), op.integers(1), layout_of(op, 2), *op.dtype(5))};
}
OP("test::strided_write") {
  return {hlo::write_strided(op.tensor(0), op.integers(2), layout_of(op, 3), op.tensor(1))};
}
OP("test::flat_memory") {
  return {hlo::flatten_memory(op.tensor(0), op.integers(1), op.integer(2), *op.dtype(3))};
}

using Bytes = std::vector<uint8_t>;

std::vector<int64_t> list(const Dims& dims) { return {dims.begin(), dims.end()}; }

/// Calls `visit(place in the row-major value, place in memory)` for each element of the view.
template <class Visit>
void walk(const Layout& view, Visit visit) {
  const int64_t count = hlo::element_count(view.sizes);
  for (int64_t i = 0; i < count; ++i) {
    int64_t place = view.offset;
    int64_t rest = i;
    for (size_t d = view.sizes.size(); d-- > 0;) {
      place += rest % view.sizes[d] * view.strides[d];
      rest /= view.sizes[d];
    }
    visit(i, place);
  }
}

/// The view's elements; zeros where memory ends before an element does.
Bytes read_memory(const Bytes& memory, const Layout& view, DType dtype) {
  const int64_t size = hlo::byte_size(dtype);
  Bytes value(static_cast<size_t>(hlo::element_count(view.sizes) * size));
  walk(view, [&](int64_t i, int64_t place) {
    if ((place + 1) * size > static_cast<int64_t>(memory.size())) return;
    std::memcpy(value.data() + i * size, memory.data() + place * size, static_cast<size_t>(size));
  });
  if (dtype == DType::kPred) {
    for (uint8_t& byte : value) byte = byte != 0;
  }
  return value;
}

void write_memory(Bytes& memory, const Layout& view, DType dtype, const Bytes& value) {
  const int64_t size = hlo::byte_size(dtype);
  walk(view, [&](int64_t i, int64_t place) {
    std::memcpy(memory.data() + place * size, value.data() + i * size, static_cast<size_t>(size));
  });
}

std::string text(const Layout& layout) {
  std::string text;
  for (const Dims& dims : {layout.sizes, layout.strides}) {
    text += "[";
    for (const int64_t number : dims) text += " " + std::to_string(number);
    text += " ] ";
  }
  return text + "+ " + std::to_string(layout.offset);
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  /// At least `low`, at most `high`.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int64_t percent) { return between(1, 100) <= percent; }
  template <typename Container>
  auto pick(const Container& container) {
    return container[static_cast<size_t>(between(0, static_cast<int64_t>(std::size(container)) - 1))];
  }
  /// Bytes that are ordinary numbers as any float, so that no NaN loses bits; 0 and 1 for pred.
  Bytes bytes(const Type& type) {
    Bytes bytes(static_cast<size_t>(type.bytes()));
    for (uint8_t& byte : bytes) {
      byte = static_cast<uint8_t>(type.dtype == DType::kPred ? between(0, 1) : between(0x38, 0x3f));
    }
    return bytes;
  }
  /// Dense strides of these sizes in any order of memory.
  Layout dense(const Dims& sizes) {
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), engine_);
    Layout layout{sizes, Dims(sizes.size(), 0), 0};
    int64_t stride = 1;
    for (const size_t d : order) {
      layout.strides[d] = stride;
      stride *= sizes[d];
    }
    return layout;
  }

  /// A few of torch's view operations in a row; `overlaps` admits those that repeat elements.
  Layout view(Layout layout, bool overlaps) {
    for (int64_t step = between(0, 4); step > 0; --step) {
      const auto rank = static_cast<int64_t>(layout.sizes.size());
      if (rank == 0 || chance(10)) {
        layout.sizes.insert(static_cast<size_t>(rank), overlaps && chance(50) ? between(2, 3) : 1);
        layout.strides.insert(static_cast<size_t>(rank),
                              layout.sizes[static_cast<size_t>(rank)] > 1 ? 0 : between(0, 9));
        continue;
      }
      const auto a = static_cast<size_t>(between(0, rank - 1));
      const auto b = static_cast<size_t>(between(0, rank - 1));
      int64_t& size = layout.sizes[a];
      int64_t& stride = layout.strides[a];
      switch (between(0, 5)) {
        case 0:  // transpose
          std::swap(layout.sizes[a], layout.sizes[b]);
          std::swap(layout.strides[a], layout.strides[b]);
          break;
        case 1:
        case 2: {  // slice
          const int64_t start = between(0, size - 1);
          const int64_t jump = between(1, 3);
          layout.offset += start * stride;
          size = between(1, (size - start + jump - 1) / jump);
          stride *= jump;
          break;
        }
        case 3:  // select
          layout.offset += between(0, size - 1) * stride;
          layout.sizes.erase(a);
          layout.strides.erase(a);
          break;
        case 4:  // split, or windows that overlap
          if (overlaps && size > 2) {
            const int64_t window = between(2, size);
            const int64_t jump = between(1, 2);
            layout.sizes.push_back(window);
            layout.strides.push_back(layout.strides[a]);
            layout.sizes[a] = (layout.sizes[a] - window) / jump + 1;
            layout.strides[a] *= jump;
          } else if (size % 2 == 0) {
            layout.sizes.insert(a + 1, 2);
            layout.strides.insert(a + 1, layout.strides[a]);
            layout.sizes[a] /= 2;
            layout.strides[a] *= 2;
          }
          break;
        default:  // diagonal
          if (a == b) break;
          size = std::min(size, layout.sizes[b]);
          stride += layout.strides[b];
          layout.sizes.erase(b);
          layout.strides.erase(b);
      }
    }
    return layout;
  }

  Dims sizes() {
    Dims sizes;
    if (chance(30)) return {between(1, 40)};
    for (int64_t rank = between(0, 4); rank > 0; --rank) sizes.push_back(between(1, 6));
    return sizes;
  }

 private:
  std::mt19937 engine_;
};

constexpr DType kTypes[] = {DType::kU8,  DType::kS16, DType::kF32,  DType::kF32,
                            DType::kF64, DType::kC64, DType::kBF16, DType::kPred};

/// Dtypes that a storage of `dtype` is seen as.
DType other_type(Random& random, DType dtype) {
  if (dtype == DType::kPred) return random.chance(50) ? DType::kU8 : dtype;
  return random.pick(kTypes);
}

/// What a recorded call should give.
struct Expectation {
  TensorPtr result;
  Bytes bytes;
  std::string description;
};

void check(Engine& engine, std::vector<Expectation>& expectations) {
  for (const Expectation& expected : expectations) {
    const auto buffer = must(engine.queue.materialize(expected.result));
    Bytes content(static_cast<size_t>(expected.result->type.bytes()));
    CHECK_EQ(content.size(), expected.bytes.size());
    CHECK(buffer->copy_to_host(content.data()).ok());
    if (is_real() && content != expected.bytes) fail(__FILE__, __LINE__, "wrong: " + expected.description);
  }
  expectations.clear();
}

/// A storage in both places.
struct Storage {
  Type type;
  Layout layout;
  Bytes memory;
  TensorPtr tensor;

  Storage(Engine& engine, Random& random, Type of)
      : type(std::move(of)), layout(random.dense(type.dims)), memory(random.bytes(type)) {
    tensor = engine.upload(value(), type);
  }
  Bytes value() const { return read_memory(memory, layout, type.dtype); }
  /// All of memory as a view of `dtype` to begin with.
  Layout whole(Random& random, DType dtype) const {
    if (dtype == type.dtype && random.chance(70)) return layout;
    return Layout::contiguous(Dims{type.bytes() / hlo::byte_size(dtype)});
  }
  std::string text() const { return type.text() + " " + ::text(layout); }
};

constexpr int kBatches = 4;

TEST(reads) {
  Engine engine(is_real() ? real_plugin() : fake_plugin());
  Random random(1);
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<Expectation> expectations;
    for (int i = 0; i < 40; ++i) {
      const Storage base(engine, random, {random.pick(kTypes), random.sizes()});
      const DType dtype = random.chance(60) ? base.type.dtype : other_type(random, base.type.dtype);
      Layout view = base.whole(random, dtype);
      if (hlo::element_count(view.sizes) > 0) view = random.view(view, true);
      if (random.chance(5)) view.offset += random.between(1, 4);  // past the end
      const TensorPtr result = engine.record(
          "test::strided_read", {base.tensor},
          {list(base.layout.strides), list(view.sizes), list(view.strides), view.offset, dtype});
      CHECK(result->type == (Type{dtype, view.sizes}));
      expectations.push_back({result, read_memory(base.memory, view, dtype),
                              base.text() + " read as " + text(view) + " " + std::string(name(dtype))});
    }
    check(engine, expectations);
  }
}

TEST(writes) {
  Engine engine(is_real() ? real_plugin() : fake_plugin());
  Random random(2);
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<Expectation> expectations;
    for (int i = 0; i < 30; ++i) {
      Storage base(engine, random, {random.pick(kTypes), random.sizes()});
      const DType dtype = random.chance(60) ? base.type.dtype : other_type(random, base.type.dtype);
      Layout view = base.whole(random, dtype);
      if (dtype == DType::kPred && base.type.dtype != dtype) continue;
      if (hlo::element_count(view.sizes) > 0) view = random.view(view, false);
      const Type type{dtype, view.sizes};
      // A pred is stored as 0 or 1, whatever byte is written.
      const Bytes value =
          random.bytes(base.type.dtype == DType::kPred ? Type{DType::kPred, type.dims} : type);
      const TensorPtr result =
          engine.record("test::strided_write", {base.tensor, engine.upload(value, type)},
                        {list(base.layout.strides), list(view.sizes), list(view.strides), view.offset});
      CHECK(result->type == base.type);
      const std::string description = base.text() + " written as " + text(view) + " " + type.text();
      write_memory(base.memory, view, dtype, value);
      expectations.push_back({result, base.value(), description});
    }
    check(engine, expectations);
  }
}

TEST(flat_memory) {
  Engine engine(is_real() ? real_plugin() : fake_plugin());
  Random random(3);
  std::vector<Expectation> expectations;
  for (int i = 0; i < 40; ++i) {
    const Storage base(engine, random, {random.pick(kTypes), random.sizes()});
    const DType dtype = other_type(random, base.type.dtype);
    const int64_t count = random.between(0, 2 * base.type.bytes() / hlo::byte_size(dtype));
    const TensorPtr result =
        engine.record("test::flat_memory", {base.tensor}, {list(base.layout.strides), count, dtype});
    expectations.push_back({result, read_memory(base.memory, Layout::contiguous(Dims{count}), dtype),
                            base.text() + " flat as " + result->type.text()});
  }
  check(engine, expectations);
}

}  // namespace
