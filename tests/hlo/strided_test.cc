// What views become; tests/engine/strided_test.cc checks the numbers.
#include "hlo/strided.h"

#include "tests/check.h"

using namespace torch_tpu;
using namespace torch_tpu::hlo;

namespace {

struct Base {
  Builder builder;
  Value value;
  Dims strides;

  explicit Base(std::initializer_list<int64_t> dims, DType dtype = DType::kF32)
      : value(builder.parameter({dtype, Dims(dims)})), strides(contiguous_strides(Dims(dims))) {}
  Value read(const Layout& view, DType dtype = DType::kF32) {
    return read_strided(value, strides, view, dtype);
  }
  Value write(const Layout& view) {
    return write_strided(value, strides, view, builder.parameter({DType::kF32, view.sizes}));
  }
  bool uses(std::string_view operation) {
    return builder.module({}).find("\"stablehlo." + std::string(operation) + "\"") != std::string::npos;
  }
};

TEST(dense_layouts) {
  const auto dense = [](Dims sizes, Dims strides, int64_t offset = 0) {
    return is_dense({std::move(sizes), std::move(strides), offset});
  };
  CHECK(dense({}, {}));
  CHECK(dense({2, 3}, {3, 1}));
  CHECK(dense({2, 3}, {1, 2}));
  CHECK(dense({2, 3}, {3, 1}, 5));
  CHECK(dense({2, 1, 3}, {3, 99, 1}));
  CHECK(dense({4, 2, 3}, {1, 12, 4}));
  CHECK(!dense({2, 3}, {4, 1}));
  CHECK(!dense({2, 3}, {0, 1}));
  CHECK(!dense({2, 3}, {1, 1}));
  CHECK(!dense({3}, {2}));
}

TEST(contiguous_layout) {
  const Layout layout = Layout::contiguous(Dims{2, 3});
  CHECK(layout == (Layout{{2, 3}, {3, 1}, 0}));
  CHECK(is_dense(layout));
}

TEST(whole_storage_is_itself) {
  Base base({2, 3});
  CHECK_EQ(base.read(Layout::contiguous(Dims{2, 3})).name, base.value.name);
  CHECK(base.read(Layout::contiguous(Dims{3, 2})).type == (Type{DType::kF32, {3, 2}}));
  CHECK(!base.uses("slice") && !base.uses("gather"));
}

TEST(reads_without_a_gather) {
  Base base({6, 8});
  const Layout views[] = {
      {{8, 6}, {1, 8}, 0},         // transposed
      {{3, 8}, {8, 1}, 16},        // rows
      {{6, 2}, {8, 1}, 5},         // columns
      {{2, 4}, {24, 2}, 9},        // steps of both
      {{48}, {1}, 0},              // flat
      {{6}, {9}, 0},               // the diagonal
      {{6, 5, 8}, {8, 0, 1}, 0},   // expanded
      {{6, 1, 8}, {8, 77, 1}, 0},  // an inserted dimension
      {{2, 2, 2}, {16, 4, 1}, 2},  // parts of split dimensions
      {{}, {}, 11},                // one element
  };
  for (const Layout& view : views) CHECK(base.read(view).type == (Type{DType::kF32, view.sizes}));
  CHECK(!base.uses("gather"));
  // The base of a transposed storage, read in the order of memory.
  CHECK(read_strided(base.value, Dims{1, 6}, {{48}, {1}, 0}, DType::kF32).type == (Type{DType::kF32, {48}}));
}

TEST(places) {
  const Layout base = Layout::contiguous(Dims{6, 8});
  const Placement row = place(base, {{8}, {1}, 24});
  CHECK(row.view.offset == 0 && row.grid == (Dims{6, 8}) && row.starts == Dims{3});
  const Placement column = place(base, {{6}, {8}, 5});
  CHECK(column.view.offset == 0 && column.starts == Dims{5});
  const Placement element = place(base, {{}, {}, 29});
  CHECK(element.view.offset == 0 && element.starts == (Dims{3, 5}));
  // Steps of a row start where the program says, at run time the row does.
  const Placement steps = place(base, {{4}, {2}, 25});
  CHECK(steps.view.offset == 1 && steps.starts == Dims{3});
  // A column of a flat base seen as a matrix.
  const Placement split = place(Layout::contiguous(Dims{48}), {{6}, {8}, 5});
  CHECK(split.grid == (Dims{6, 8}) && split.starts == Dims{5});
  // Short windows of the outermost dimension; others have a fixed place, and so have rows of a few.
  CHECK(place(Layout::contiguous(Dims{40, 3}), {{10, 3}, {3, 1}, 6}).starts == Dims{2});
  CHECK(place(Layout::contiguous(Dims{40, 3}), {{39, 3}, {3, 1}, 3}).starts == Dims{1});
  CHECK(place(Layout::contiguous(Dims{40, 3}), {{40, 3}, {3, 1}, 0}).starts.empty());
  CHECK(place(Layout::contiguous(Dims{4, 8}), {{8}, {1}, 16}).starts.empty());
  CHECK(place(base, {{6, 2}, {8, 1}, 4}).starts.empty());
}

TEST(placed_reads_and_writes) {
  Base base({6, 8});
  const PlacedGrid row{{6, 8}, {0}, {base.builder.parameter({DType::kS64, {}})}};
  CHECK(read_strided(base.value, base.strides, {{8}, {1}, 0}, DType::kF32, row).type ==
        (Type{DType::kF32, {8}}));
  const Value update = base.builder.parameter({DType::kF32, {8}});
  CHECK(write_strided(base.value, base.strides, {{8}, {1}, 0}, update, row).type == base.value.type);
  CHECK(base.uses("dynamic_slice") && base.uses("dynamic_update_slice"));
}

TEST(overlapping_reads_gather) {
  Base base({16});
  CHECK(base.read({{5, 4}, {1, 1}, 2}).type == (Type{DType::kF32, {5, 4}}));
  CHECK(base.uses("gather"));
}

TEST(reads_without_elements) {
  Base base({4});
  CHECK(base.read({{0, 3}, {3, 1}, 0}).type == (Type{DType::kF32, {0, 3}}));
  CHECK(base.read({{3, 0}, {1, 1}, 99}).type == (Type{DType::kF32, {3, 0}}));
}

TEST(reinterpreting_reads) {
  Base base({2, 6});
  CHECK(base.read({{12}, {1}, 0}, DType::kS32).type == (Type{DType::kS32, {12}}));
  CHECK(base.read({{2, 24}, {24, 1}, 0}, DType::kU8).type == (Type{DType::kU8, {2, 24}}));
  CHECK(base.read({{3, 2}, {2, 1}, 0}, DType::kF64).type == (Type{DType::kF64, {3, 2}}));
  CHECK(base.read({{6}, {1}, 0}, DType::kC64).type == (Type{DType::kC64, {6}}));
  Base pairs({3}, DType::kC64);
  CHECK(pairs.read({{3, 2}, {2, 1}, 0}).type == (Type{DType::kF32, {3, 2}}));
  Base odd({5});
  CHECK(odd.read({{2}, {1}, 0}, DType::kC64).type == (Type{DType::kC64, {2}}));
  CHECK(odd.read({{2}, {1}, 0}, DType::kF64).type == (Type{DType::kF64, {2}}));
}

TEST(flat_memory) {
  Base base({2, 3});
  CHECK(flatten_memory(base.value, base.strides, 4, DType::kF32).type == (Type{DType::kF32, {4}}));
  CHECK(flatten_memory(base.value, base.strides, 9, DType::kF32).type == (Type{DType::kF32, {9}}));
  CHECK(flatten_memory(base.value, Dims{1, 2}, 3, DType::kF64).type == (Type{DType::kF64, {3}}));
}

TEST(writes) {
  Base base({6, 8});
  CHECK(base.write(Layout::contiguous(Dims{6, 8})).type == base.value.type);
  CHECK(!base.uses("dynamic_update_slice") && !base.uses("scatter"));
  CHECK(base.write({{2, 3}, {8, 1}, 10}).type == base.value.type);
  CHECK(base.uses("dynamic_update_slice"));
  CHECK(base.write({{3, 4}, {16, 2}, 1}).type == base.value.type);
  CHECK(base.uses("pad") && !base.uses("scatter"));
  CHECK(base.write({{3, 2}, {7, 3}, 2}).type == base.value.type);
  CHECK(base.uses("scatter"));
  CHECK_EQ(base.write({{0, 8}, {8, 1}, 0}).name, base.value.name);
}

}  // namespace
