// Programs as rows of torch.profiler: a session of Kineto, which asks for what ran on the device.
#define USE_KINETO
#define FMT_HEADER_ONLY
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
// First the one above, which the others of Kineto rely on.
#include <libkineto.h>
#include <output_base.h>

#include "engine/runtime.h"
#include "engine/trace.h"

namespace torch_tpu {
namespace {

using libkineto::ActivityType;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  /// Rows are of the device where the profiler asks for those.
  explicit Session(const std::set<ActivityType>& types)
      : type_(types.contains(ActivityType::CONCURRENT_KERNEL) ? ActivityType::CONCURRENT_KERNEL
                                                              : ActivityType::PRIVATEUSE1_RUNTIME) {}

  void start() override {
    engine::Runtime::await_programs();
    trace_ = std::make_unique<engine::Trace>(/*with_sources=*/false);
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    if (trace_ == nullptr) return;
    engine::Runtime::await_programs();
    runs_ = trace_->take();
    trace_.reset();
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  void processTrace(libkineto::ActivityLogger& logger) override {
    for (const engine::Run& run : runs_) {
      const int64_t found_ns = run.start_ns + run.prepare_ns;
      if (run.origin != engine::Origin::kMemory) {
        const char* what = run.origin == engine::Origin::kDisk ? "tpu::load " : "tpu::compile ";
        add(logger, what + run.name(), run.device_index, run.start_ns, found_ns);
      }
      add(logger, "tpu::program " + run.name(), run.device_index, found_ns, found_ns + run.execute_ns);
    }
    runs_.clear();
  }

  std::vector<std::string> errors() override { return {}; }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(rows_); }

 private:
  void add(libkineto::ActivityLogger& logger, const std::string& name, int device_index, int64_t start_ns,
           int64_t end_ns) {
    rows_->emplace_activity(rows_->span, type_, name);
    libkineto::GenericTraceActivity& row = *rows_->activities.back();
    row.startTime = start_ns;
    row.endTime = end_ns;
    row.device = device_index;
    logger.handleGenericActivity(row);
  }

  const ActivityType type_;
  std::unique_ptr<engine::Trace> trace_;
  std::vector<engine::Run> runs_;
  std::unique_ptr<libkineto::CpuTraceBuffer> rows_ = std::make_unique<libkineto::CpuTraceBuffer>();
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return activities_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config&) override {
    return std::make_unique<Session>(types);
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t,
                                                                 const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "tpu";
  const std::set<ActivityType> activities_ = {ActivityType::CONCURRENT_KERNEL,
                                              ActivityType::PRIVATEUSE1_RUNTIME};
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

}  // namespace
}  // namespace torch_tpu
