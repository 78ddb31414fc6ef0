// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/operation_wait.h"

#include <chrono>

#include "daemon/base/field_error.h"
#include "daemon/control/net/status.h"

namespace meshloom::control {
namespace {

constexpr std::int64_t kLongestMs = 60'000;

}  // namespace

template <typename Look>
void OperationWait::answer_with(Look look) {
  {
    const std::lock_guard lock(mutex_);
    if (answered_) return;
    answered_ = true;
  }
  end(guarded("WaitOperation", [&] { *response_->mutable_operation() = look(); }));
}

void OperationWait::start() {
  const grpc::Status status = guarded("WaitOperation", request_, [&] {
    if (request_.timeout_ms() < 0)
      base::refuse_field("timeout_ms", "{} is negative", request_.timeout_ms());
    of_holder_ = runs_.session_of(name_)->is_of_holder(caller_.run_token());
    wait(request_.has_timeout_ms() ? std::min(request_.timeout_ms(), kLongestMs) : kLongestMs);
  });
  if (!status.ok()) answer(status);
}

void OperationWait::wait(std::int64_t timeout_ms) {
  const std::int64_t waiter = runs_.operations().when_ended(name_, weak_from_this());
  if (waiter == 0) return;  // it had ended
  bool done = false;
  {
    // The door may be done with the call already: the operation has ended or the client has gone
    // since.
    const std::lock_guard lock(mutex_);
    done = done_;
    waiter_ = waiter;
    if (!done)
      timeout_ = timer_.set(
          SteadyTimer::Clock::now() + std::chrono::milliseconds(timeout_ms),
          [self = shared_from_this()] {
            self->answer_with([&] { return self->runs_.operation(self->name_, self->of_holder_); });
          });
  }
  if (done) runs_.operations().forget_waiter(name_, waiter);
}

void OperationWait::answer(const grpc::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (answered_) return;
    answered_ = true;
  }
  end(status);
}

void OperationWait::wake() {
  answer_with([&] { return runs_.operations().get(name_, of_holder_); });
}

void OperationWait::cancel() { answer(grpc::Status::CANCELLED); }

void OperationWait::let_go() {
  std::int64_t waiter = 0, timeout = 0;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    waiter = waiter_;
    timeout = timeout_;
  }
  runs_.operations().forget_waiter(name_, waiter);
  timer_.cancel(timeout);
}

}  // namespace meshloom::control
