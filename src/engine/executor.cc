#include "engine/executor.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/env.h"
#include "base/heap.h"
#include "engine/capture.h"
#include "engine/counters.h"
#include "engine/history.h"
#include "ops/op.h"

namespace torch_tpu::engine {
namespace {

// Programs that touch less than this are not worth the compiler's full effort.
constexpr int64_t kQuickProgramBytes = int64_t{256} << 10;
constexpr size_t kLargeProgramOps = 64;

std::atomic<bool>& frozen_storage() {
  static std::atomic<bool> instance = env::text(env::kCache) == "frozen";
  return instance;
}

std::string megabytes(int64_t bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

int64_t capacity_of(const pjrt::Device& device) {
  const int64_t limit = env::integer(env::kMemoryLimit);
  return limit > 0 ? limit : device.memory_bytes;
}

void dump(const Hash128& key, const std::string& text) {
  const std::filesystem::path folder = env::text(env::kDebug);
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  std::ofstream(folder / (key.hex() + ".mlir")) << text;
}

/// Of the results of all operators that the call stands for.
int64_t bytes_of(const ops::Call& call) {
  int64_t bytes = call.result_bytes();
  if (call.body == nullptr) return bytes;
  for (const ops::Body::Step& step : call.body->steps) bytes += bytes_of(*step.call);
  return bytes;
}

/// Whether a program touches little memory.
bool is_small(const Program& program) {
  int64_t bytes = 0;
  for (const uint32_t leaf : program.leaves) {
    const auto& buffer = program.graph.leaves[leaf].outcome->buffer;
    if (buffer == nullptr) return false;  // another program failed to give it
    bytes += buffer->type().bytes();
  }
  for (size_t i = 0; i < program.graph.nodes.size() && bytes < kQuickProgramBytes; ++i) {
    if (program.needed[i]) bytes += bytes_of(*program.graph.nodes[i].call);
  }
  return bytes < kQuickProgramBytes;
}

/// `message` with a number in the place of "{}", or with its halves in the places of two.
std::string with_number(std::string message, int64_t number) {
  const size_t first = message.find("{}");
  if (first == std::string::npos) return message;
  if (const size_t second = message.find("{}", first + 2); second != std::string::npos) {
    message.replace(second, 2, std::to_string(number & 0xffffffff));
    number >>= 32;
  }
  return message.replace(first, 2, std::to_string(number));
}

}  // namespace

bool cache_is_frozen() { return frozen_storage(); }
void set_cache_frozen(bool frozen) { frozen_storage() = frozen; }

Executor::Executor(std::shared_ptr<pjrt::Client> client, cache::ProgramCache& cache, int device_index,
                   cache::DiskCache* disk)
    : client_(std::move(client)),
      cache_(cache),
      disk_(disk),
      device_index_(device_index),
      memory_limit_bytes_(capacity_of(client_->devices()[device_index])),
      target_{client_->platform(), checks_values_on(client_->platform()),
              client_->has_host_kernels() ? hlo::Products::kHost : hlo::Products::kCompiler},
      families_(env::integer(env::kOwnSizes)) {}

bool Executor::checks_values_on(pjrt::Platform platform) {
  return platform == pjrt::Platform::kCpu || env::flag(env::kCheckValues);
}

Status Executor::check_capacity(int64_t bytes) const {
  if (memory_limit_bytes_ <= 0 || is_dry_run()) return {};
  const int64_t in_use = pjrt::memory_statistics(device_index_).live_bytes;
  if (bytes <= memory_limit_bytes_ - in_use) return {};
  return {Code::kOutOfMemory, "tpu:" + std::to_string(device_index_) + " out of memory. Tried to allocate " +
                                  megabytes(bytes) + ". The device has " + megabytes(memory_limit_bytes_) +
                                  ", of which " + megabytes(in_use) + " are in use."};
}

Status Executor::capture(const Program& program) const {
  const auto platform = capture_platform();
  if (!platform) return {};
  ASSIGN_OR_RETURN(std::string text, emit(program, {*platform, checks_values_on(*platform)}));
  add_to_capture(std::move(text));
  return {};
}

std::vector<std::shared_ptr<pjrt::Buffer>> Executor::results_without_content(const Program& program) const {
  std::vector<std::shared_ptr<pjrt::Buffer>> buffers;
  for (const hlo::Type& type : program.result_types())
    buffers.push_back(client_->buffer_without_content(type, device_index_));
  return buffers;
}

bool Executor::runs_at_once(const Program& program) {
  return is_small(program) && cache_.find(program.key) != nullptr;
}

Result<Executor::Found> Executor::executable_for(const Program& program) {
  if (auto found = cache_.find(program.key)) {
    ++counters().cache_hits;
    return Found{found, {}, Origin::kMemory, {}};
  }
  // Inputs are padded and results cropped on the host, which only the CPU platform shares its memory with.
  if (client_->platform() == pjrt::Platform::kCpu) {
    const Families::Match match = families_.find(program);
    if (match.program != nullptr) {
      Found found = bounded_executable(program, match);
      if (found.executable != nullptr) return found;
      families_.give_up(program);
    }
  }
  Found found{load(program.key), {}, Origin::kDisk, {}};
  if (found.executable == nullptr) {
    if (cache_is_frozen()) return missing_program(program);
    ASSIGN_OR_RETURN(const std::string text, emit(program, target_));
    ASSIGN_OR_RETURN(found.executable, compile(program, program.key, text));
    found.origin = Origin::kCompiled;
  }
  remember(program, found);
  return found;
}

void Executor::remember(const Program& program, Found& found) {
  if (found.origin == Origin::kCompiled && is_traced())
    found.difference = History::of_process().difference(program);
  History::of_process().add(program);
}

Executor::Found Executor::bounded_executable(const Program& program, const Families::Match& match) {
  const Hash128& key = match.program->key;
  Found found{cache_.find(key), match, Origin::kMemory, {}};
  if (found.executable != nullptr) {
    ++counters().cache_hits;
    return found;
  }
  found = {load(key), match, Origin::kDisk, {}};
  if (found.executable != nullptr) return found;
  if (cache_is_frozen()) return {};
  const auto text = emit(program, *match.program, target_);
  if (!text.ok()) return {};
  auto compiled = compile(program, key, *text);
  if (!compiled.ok()) return {};
  found = {*compiled, match, Origin::kCompiled, {}};
  remember(program, found);
  return found;
}

std::shared_ptr<pjrt::Executable> Executor::load(const Hash128& key) {
  if (disk_ == nullptr) return nullptr;
  const std::optional<std::string> bytes = disk_->find(key);
  if (!bytes) return nullptr;
  auto loaded = client_->load(*bytes);
  if (loaded.ok()) {
    ++counters().disk_hits;
    cache_.insert(key, *loaded);
    heap::release_freed();  // a load or compile leaves tens of megabytes behind
    return *loaded;
  }
  disk_->discard(key);
  return nullptr;
}

Status Executor::missing_program(const Program& program) const {
  std::string ops;
  for (size_t i = 0; i < program.graph.nodes.size() && ops.size() < 500; ++i) {
    if (program.needed[i]) ops += (ops.empty() ? "" : ", ") + program.graph.nodes[i].call->op->name;
  }
  return {Code::kUnavailable, "the compilation cache is frozen and has no program for: " + ops};
}

Result<std::shared_ptr<pjrt::Executable>> Executor::compile(const Program& program, const Hash128& key,
                                                            const std::string& stablehlo) {
  ++counters().modules_emitted;
  static const bool debugging = !env::text(env::kDebug).empty();
  if (debugging) dump(key, stablehlo);
  size_t operators = 0;
  for (const ops::CallPtr& call : program.graph.calls) operators += ops::operators_of(*call);
  pjrt::CompileOptions options;
  options.effort = is_small(program) ? pjrt::Effort::kQuick : pjrt::Effort::kFull;
  // For a minGPT step: compile time 20 -> 12 s of CPU, run time 0.138 -> 0.120 s.
  if (operators > kLargeProgramOps && client_->platform() == pjrt::Platform::kCpu) {
    options.overrides["xla_backend_extra_options"] =
        "xla_cpu_disable_new_fusion_emitters,xla_cpu_disable_loop_unrolling";
  }
  ++counters().compiles;
  ASSIGN_OR_RETURN(auto executable, client_->compile(stablehlo, options));
  if (disk_ != nullptr) {
    // A program that cannot be kept is compiled again next time.
    if (const auto bytes = executable->serialize(); bytes.ok()) (void)disk_->insert(key, *bytes);
  }
  cache_.insert(key, executable);
  heap::release_freed();
  return executable;
}

Result<std::vector<std::shared_ptr<pjrt::Buffer>>> Executor::pack_words(const Program& program) const {
  InlineVector<int64_t, 16> integers;
  InlineVector<double, 16> floats;
  for (size_t i = 0; i < program.graph.nodes.size(); ++i) {
    if (!program.needed[i]) continue;
    const Graph::Node& node = program.graph.nodes[i];
    const uint64_t* word = program.graph.words.data() + node.first_word;
    for (const ops::ScalarSlot& slot : node.call->scalars) {
      for (int k = 0; k < slot.words(); ++k, ++word) {
        if (slot.is_integer()) {
          integers.push_back(static_cast<int64_t>(*word));
        } else {
          floats.push_back(std::bit_cast<double>(*word));
        }
      }
    }
    if (node.call->op->traits.random) {
      integers.push_back(static_cast<int64_t>(word[0]));
      integers.push_back(static_cast<int64_t>(word[1]));
    }
  }
  std::vector<std::shared_ptr<pjrt::Buffer>> buffers;
  if (!integers.empty()) {
    const hlo::Type type{hlo::DType::kS64, {static_cast<int64_t>(integers.size())}};
    ASSIGN_OR_RETURN(auto buffer, client_->copy_to_device(integers.data(), type, device_index_));
    buffers.push_back(std::move(buffer));
  }
  if (!floats.empty()) {
    const int64_t count = static_cast<int64_t>(floats.size());
    if (client_->platform() == pjrt::Platform::kTpu) {
      const std::vector<float> narrow(floats.begin(), floats.end());
      ASSIGN_OR_RETURN(auto buffer,
                       client_->copy_to_device(narrow.data(), {hlo::DType::kF32, {count}}, device_index_));
      buffers.push_back(std::move(buffer));
    } else {
      ASSIGN_OR_RETURN(auto buffer,
                       client_->copy_to_device(floats.data(), {hlo::DType::kF64, {count}}, device_index_));
      buffers.push_back(std::move(buffer));
    }
  }
  return buffers;
}

Result<Executor::Inputs> Executor::inputs_of(const Program& program, const Families::Match& bounded) const {
  Inputs inputs;
  const auto add = [&inputs](std::shared_ptr<pjrt::Buffer> buffer) {
    inputs.arguments.push_back(buffer.get());
    inputs.temporary.push_back(std::move(buffer));
  };
  for (size_t i = 0; i < program.leaves.size(); ++i) {
    // Held by the program alone: who records meanwhile counts the holders.
    const pjrt::Buffer& buffer = *program.graph.leaves[program.leaves[i]].outcome->buffer;
    if (!buffer.has_content()) return buffer.await();
    if (bounded.program == nullptr || buffer.type() == bounded.program->leaf_types[i]) {
      inputs.arguments.push_back(program.graph.leaves[program.leaves[i]].outcome->buffer.get());
    } else {
      ASSIGN_OR_RETURN(auto padded, buffer.resized(bounded.program->leaf_types[i]));
      add(std::move(padded));
    }
  }
  ASSIGN_OR_RETURN(auto packed, pack_words(program));
  for (auto& buffer : packed) add(std::move(buffer));
  if (bounded.program != nullptr) {
    const auto size = static_cast<int32_t>(bounded.size);
    ASSIGN_OR_RETURN(auto buffer, client_->copy_to_device(&size, {hlo::DType::kS32, {}}, device_index_));
    add(std::move(buffer));
  }
  for (const int32_t successor : program.successors) inputs.donate.push_back(successor >= 0);
  inputs.donate.resize(inputs.arguments.size());
  return inputs;
}

Status Executor::crop(const Program& program, std::vector<std::shared_ptr<pjrt::Buffer>>& results) const {
  const std::vector<hlo::Type> types = program.result_types();
  for (size_t i = 0; i < types.size(); ++i) {
    if (!(results[i]->type() == types[i])) {
      ASSIGN_OR_RETURN(results[i], results[i]->resized(types[i]));
    }
  }
  return {};
}

Result<Executor::Execution> Executor::run(const Program& program) {
  RunTimer timer(program, device_index_);
  RETURN_IF_ERROR(capture(program));
  if (is_dry_run()) return Execution{results_without_content(program), {}};
  ASSIGN_OR_RETURN(const Found found, executable_for(program));
  timer.found(found.origin, found.bounded.program != nullptr ? found.bounded.program->bound : 0,
              found.difference);
  const pjrt::Executable& executable = *found.executable;
  int64_t bytes = 0;
  for (const hlo::Type& type : executable.outputs()) bytes += type.bytes();
  if (bytes > memory_limit_bytes_ / 16) RETURN_IF_ERROR(check_capacity(bytes));
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const Inputs inputs, inputs_of(program, found.bounded));
  ++counters().programs_run;
  for (const uint8_t flag : inputs.donate) counters().donated_buffers += flag;
  Execution execution;
  ASSIGN_OR_RETURN(execution.buffers, executable.execute(inputs.arguments, inputs.donate, device_index_));
  timer.await(execution.buffers);
  if (execution.buffers.size() > program.results.size()) {
    RETURN_IF_ERROR(read_checks(program, *execution.buffers.back(), execution.broken_check));
    execution.buffers.pop_back();
  }
  if (found.bounded.program != nullptr) {
    RETURN_IF_ERROR(crop(program, execution.buffers));
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    families_.spend(program, spent.count());
  }
  return execution;
}

namespace {

/// The first check of `call` that its offenders break, which are read from `number` on.
Status broken_check_of(const ops::Call& call, const std::string& source, std::span<const int64_t>& numbers) {
  if (call.body != nullptr) {
    Status broken;
    for (const ops::Body::Step& step : call.body->steps) {
      const Status status = broken_check_of(*step.call, step.source, numbers);
      if (broken.ok()) broken = status;
    }
    return broken;
  }
  Status broken;
  for (const ops::Check& check : call.checks) {
    const int64_t offender = numbers.front();
    numbers = numbers.subspan(1);
    if (offender == ops::kNoOffender || !broken.ok()) continue;
    broken = Status(check.code, with_number(check.message, offender) + " (" + call.op->name +
                                    (source.empty() ? "" : ", " + source) + ")");
  }
  return broken;
}

}  // namespace

Status Executor::read_checks(const Program& program, const pjrt::Buffer& offenders, Status& broken) const {
  std::vector<int64_t> content(static_cast<size_t>(offenders.type().elements()));
  RETURN_IF_ERROR(offenders.copy_to_host(content.data()));
  std::span<const int64_t> numbers(content);
  for (size_t i = 0; i < program.graph.nodes.size() && broken.ok(); ++i) {
    if (program.needed[i])
      broken = broken_check_of(*program.graph.nodes[i].call, program.graph.source_of(i), numbers);
  }
  return {};
}

}  // namespace torch_tpu::engine
