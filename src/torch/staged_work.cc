#include "torch/staged_work.h"

#include <algorithm>

#include "torch/record.h"
#include "torch/storage.h"

namespace torch_tpu {
namespace {

// What two tensors of one storage have in common.
const void* storage_identity(const at::Tensor& tensor) {
  if (is_tpu(tensor)) return &content_of(*tensor.unsafeGetTensorImpl());
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

HostScope::HostScope() : python_(c10::python_ks) {}

void PendingWorks::add(c10::intrusive_ptr<StagedWork> work) {
  const std::lock_guard lock(mutex_);
  works_.push_back(std::move(work));
}

c10::intrusive_ptr<StagedWork> PendingWorks::front_if_pending(const StagedWork& work) {
  const std::lock_guard lock(mutex_);
  const bool found =
      std::any_of(works_.begin(), works_.end(), [&](const auto& w) { return w.get() == &work; });
  return found ? works_.front() : nullptr;
}

void PendingWorks::remove_front(const StagedWork& work) {
  const std::lock_guard lock(mutex_);
  if (!works_.empty() && works_.front().get() == &work) works_.pop_front();
}

void PendingWorks::complete_through(StagedWork& work, std::chrono::milliseconds timeout) {
  while (const auto front = front_if_pending(work)) {
    front->complete(timeout);
    remove_front(*front);
  }
  work.complete(timeout);
}

void PendingWorks::complete_arrived() {
  for (;;) {
    c10::intrusive_ptr<StagedWork> front;
    {
      const std::lock_guard lock(mutex_);
      if (works_.empty() || !works_.front()->has_arrived()) return;
      front = works_.front();
    }
    front->complete(kNoTimeout);
    remove_front(*front);
  }
}

void PendingWorks::complete_writers_of(const at::Tensor& tensor) {
  c10::intrusive_ptr<StagedWork> last;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& work : works_) {
      if (work->writes_into_storage_of(tensor)) last = work;
    }
  }
  if (last != nullptr) complete_through(*last, kNoTimeout);
}

void PendingWorks::clear() {
  std::deque<c10::intrusive_ptr<StagedWork>> works;
  const std::lock_guard lock(mutex_);
  works.swap(works_);
}

StagedWork::StagedWork(int rank, c10d::OpType type, Flight flight, std::shared_ptr<PendingWorks> pending)
    : Work(rank, type),
      works_(std::move(flight.works)),
      outputs_(std::move(flight.outputs)),
      pending_(std::move(pending)),
      deliveries_(std::move(flight.deliveries)) {}

void StagedWork::complete(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(complete_mutex_);
  if (done_) return;
  try {
    for (const auto& work : works_) {
      try {
        work->wait(timeout);
      } catch (...) {
        if (!work->isCompleted()) throw;
        if (error_ == nullptr) error_ = std::current_exception();
      }
    }
  } catch (...) {
    error_ = nullptr;  // the next wait sees it again
    throw;
  }
  try {
    const HostScope scope;
    if (error_ == nullptr) {
      for (const auto& deliver : deliveries_) deliver();
    }
  } catch (...) {
    error_ = std::current_exception();
  }
  deliveries_.clear();  // and with them the host copies
  done_ = true;
}

void StagedWork::complete_in_order(std::chrono::milliseconds timeout) {
  if (done_) return;
  if (pending_ != nullptr) {
    pending_->complete_through(*this, timeout);
  } else {
    complete(timeout);
  }
}

bool StagedWork::has_arrived() {
  return done_ ||
         std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

bool StagedWork::writes_into_storage_of(const at::Tensor& tensor) const {
  const void* storage = storage_identity(tensor);
  return std::any_of(outputs_.begin(), outputs_.end(),
                     [&](const at::Tensor& output) { return storage_identity(output) == storage; });
}

bool StagedWork::isCompleted() {
  if (done_) return true;
  if (pending_ != nullptr) {
    pending_->complete_arrived();
  } else if (has_arrived()) {
    complete(kNoTimeout);
  }
  return done_;
}

bool StagedWork::isSuccess() const { return done_ && error_ == nullptr; }

std::exception_ptr StagedWork::exception() const { return done_ ? error_ : nullptr; }

int StagedWork::sourceRank() const { return works_.empty() ? rank_ : works_.front()->sourceRank(); }

std::vector<at::Tensor> StagedWork::result() {
  wait(kNoTimeout);
  return outputs_;
}

void StagedWork::synchronize() { wait(kNoTimeout); }

bool StagedWork::wait(std::chrono::milliseconds timeout) {
  complete_in_order(timeout);
  if (error_ != nullptr) std::rethrow_exception(error_);
  return true;
}

void StagedWork::abort() {
  for (const auto& work : works_) work->abort();
}

c10::intrusive_ptr<c10::ivalue::Future> StagedWork::getFuture() {
  complete_in_order(kNoTimeout);
  const std::lock_guard lock(complete_mutex_);
  if (future_ != nullptr) return future_;
  std::vector<c10::Device> devices;  // a future refuses tensors of devices that it was not told of
  for (const at::Tensor& output : outputs_) {
    if (is_tpu(output)) devices.push_back(output.device());
  }
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
  if (error_ != nullptr) {
    future_->setError(error_);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
  return future_;
}

uint64_t StagedWork::getSequencenumber() const {
  return works_.empty() ? 0 : works_.front()->getSequencenumber();
}

}  // namespace torch_tpu
