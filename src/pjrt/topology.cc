#include "pjrt/topology.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "pjrt/arguments.h"

namespace torch_tpu::pjrt {
namespace {

using Sizes = std::array<int64_t, 3>;

constexpr Sizes kPlanes[] = {{1, 1, 1}, {2, 2, 1}, {2, 4, 1},  {4, 4, 1},
                             {4, 8, 1}, {8, 8, 1}, {8, 16, 1}, {16, 16, 1}};
constexpr Sizes kBlocks[] = {{1, 1, 1}, {2, 2, 1}, {2, 2, 2}, {2, 2, 4},
                             {2, 4, 4}, {4, 4, 4}, {4, 4, 8}, {4, 8, 8}};

/// Megacore: the two cores of a chip are one device.
struct Generation {
  std::string_view name;
  std::span<const Sizes> slices;
  size_t rank;
  bool is_megacore;
};

constexpr Generation kGenerations[] = {
    {"v4", kBlocks, 3, true},   {"v5e", kPlanes, 2, false},   {"v5p", kBlocks, 3, true},
    {"v6e", kPlanes, 2, false}, {"tpu7x", kBlocks, 3, false},
};

std::string name_of(const Generation& generation, const Sizes& chips) {
  std::string name(generation.name);
  for (size_t i = 0; i < generation.rank; ++i) name += (i == 0 ? ":" : "x") + std::to_string(chips[i]);
  return name;
}

/// What the plugin is told beside the name.
struct Slice {
  bool is_megacore = false;
  Sizes chips_per_host{1, 1, 1};
  Sizes wrap{0, 0, 0};  // which dimensions are rings
};

std::optional<Slice> find_slice(std::string_view name) {
  for (const Generation& generation : kGenerations) {
    for (const Sizes& chips : generation.slices) {
      if (name_of(generation, chips) != name) continue;
      Slice slice{.is_megacore = generation.is_megacore};
      if (chips != Sizes{1, 1, 1}) slice.chips_per_host = {2, 2, 1};
      // Planes close into rings at 16 chips, blocks when they are made of whole 4x4x4 cubes.
      const bool is_torus = std::all_of(chips.begin(), chips.end(), [](int64_t n) { return n % 4 == 0; });
      for (size_t i = 0; i < 3; ++i) slice.wrap[i] = generation.rank == 2 ? chips[i] == 16 : is_torus;
      return slice;
    }
  }
  return std::nullopt;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::vector<std::string> topology_names() {
  std::vector<std::string> names;
  for (const Generation& generation : kGenerations) {
    for (const Sizes& chips : generation.slices) names.push_back(name_of(generation, chips));
  }
  return names;
}

void prepare_environment_for_libtpu() {
  constexpr std::pair<const char*, const char*> kSettings[] = {
      {"TPU_SKIP_MDS_QUERY", "1"},  // else minutes of questions to a metadata server
      {"ALLOW_MULTIPLE_LIBTPU_LOAD", "1"},
      {"TPU_MIN_LOG_LEVEL", "3"},
      {"TPU_STDERR_LOG_LEVEL", "3"},
      {"TPU_LOG_DIR", "disabled"},
      {"TPU_ACCELERATOR_TYPE", "v5litepod-1"},  // any: it only silences a line
      {"TPU_WORKER_HOSTNAMES", "localhost"},
  };
  for (const auto& [name, value] : kSettings) setenv(name, value, /*overwrite=*/1);
  unsetenv("LIBTPU_INIT_ARGS");
  unsetenv("XLA_FLAGS");
}

Result<std::shared_ptr<const Topology>> Topology::create(std::shared_ptr<const Api> api,
                                                         std::string_view name) {
  const std::optional<Slice> slice = find_slice(name);
  if (!slice.has_value()) {
    return invalid_argument("'" + std::string(name) + "' is no TPU topology; there are " +
                            joined(topology_names()));
  }
  std::vector<PJRT_NamedValue> options{named_integers("chips_per_host_bounds", slice->chips_per_host),
                                       named_integers("wrap", slice->wrap)};
  if (slice->is_megacore) options.push_back(named_text("chip_config_name", "megacore"));
  PJRT_TopologyDescription_Create_Args args{};
  args.topology_name = name.data();
  args.topology_name_size = name.size();
  args.create_options = options.data();
  args.num_options = options.size();
  RETURN_IF_ERROR(api->call(&PJRT_Api::PJRT_TopologyDescription_Create, args,
                            PJRT_TopologyDescription_Create_Args_STRUCT_SIZE)
                      .with_context("cannot describe the topology " + std::string(name)));
  std::shared_ptr<Topology> topology(new Topology(std::move(api), args.topology, name));
  RETURN_IF_ERROR(topology->read_devices());
  return std::shared_ptr<const Topology>(std::move(topology));
}

Topology::~Topology() {
  PJRT_TopologyDescription_Destroy_Args args{};
  args.topology = handle_;
  (void)api_->call(&PJRT_Api::PJRT_TopologyDescription_Destroy, args,
                   PJRT_TopologyDescription_Destroy_Args_STRUCT_SIZE);
}

Status Topology::read_devices() {
  PJRT_TopologyDescription_GetDeviceDescriptions_Args list{};
  list.topology = handle_;
  RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_TopologyDescription_GetDeviceDescriptions, list,
                             PJRT_TopologyDescription_GetDeviceDescriptions_Args_STRUCT_SIZE));
  for (size_t i = 0; i < list.num_descriptions; ++i) {
    TopologyDevice device;
    PJRT_DeviceDescription_Id_Args id{};
    id.device_description = list.descriptions[i];
    RETURN_IF_ERROR(
        api_->call(&PJRT_Api::PJRT_DeviceDescription_Id, id, PJRT_DeviceDescription_Id_Args_STRUCT_SIZE));
    device.id = id.id;
    PJRT_DeviceDescription_Kind_Args kind{};
    kind.device_description = list.descriptions[i];
    RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_DeviceDescription_Kind, kind,
                               PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE));
    device.kind.assign(kind.device_kind, kind.device_kind_size);
    PJRT_DeviceDescription_Attributes_Args attributes{};
    attributes.device_description = list.descriptions[i];
    RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_DeviceDescription_Attributes, attributes,
                               PJRT_DeviceDescription_Attributes_Args_STRUCT_SIZE));
    for (size_t k = 0; k < attributes.num_attributes; ++k) {
      const PJRT_NamedValue& attribute = attributes.attributes[k];
      if (std::string_view(attribute.name, attribute.name_size) == "device_memory_bytes_limit" &&
          attribute.type == PJRT_NamedValue_kInt64) {
        device.memory_bytes = attribute.int64_value;
      }
    }
    devices_.push_back(std::move(device));
  }
  return {};
}

Result<std::unique_ptr<AheadOfTimeExecutable>> Topology::compile(const std::string& stablehlo,
                                                                 const AheadOfTimeOptions& options) const {
  const int64_t used = options.build.replicas * options.build.partitions;
  if (used < 1 || used > static_cast<int64_t>(devices_.size())) {
    return invalid_argument("a program for " + std::to_string(options.build.replicas) + " replicas of " +
                            std::to_string(options.build.partitions) + " partitions does not fit the " +
                            std::to_string(devices_.size()) + " devices of " + name_);
  }
  RETURN_IF_ERROR(check_program(stablehlo));
  PJRT_Program program = program_of(stablehlo);
  const std::string bytes = encode_compile_options(options.overrides, {}, options.build);
  PJRT_Compile_Args args{};
  args.topology = handle_;
  args.program = &program;
  args.compile_options = bytes.data();
  args.compile_options_size = bytes.size();
  RETURN_IF_ERROR(api_->call(&PJRT_Api::PJRT_Compile, args, PJRT_Compile_Args_STRUCT_SIZE));
  return std::make_unique<AheadOfTimeExecutable>(api_, args.executable);
}

}  // namespace torch_tpu::pjrt
