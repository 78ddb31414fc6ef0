// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/wait_teller.h"

#include <chrono>

namespace meshloom::cli {
namespace {

using std::chrono::seconds;

constexpr seconds kFirstWait{3}, kBetweenWaits{20}, kCallDeadline{5};

}  // namespace

WaitTeller::WaitTeller(Client& client, std::string job,
                       std::function<void(const v1::RanksWait&)> tell)
    : client_(client), job_(std::move(job)), tell_(std::move(tell)), thread_([this] { run(); }) {}

void WaitTeller::end() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    if (asking_) asking_->TryCancel();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void WaitTeller::run() {
  std::unique_lock lock(mutex_);
  for (seconds pause = kFirstWait; !changed_.wait_for(lock, pause, [&] { return over_; });
       pause = kBetweenWaits) {
    lock.unlock();
    ask();
    lock.lock();
  }
}

bool WaitTeller::begin_asking(grpc::ClientContext& context) {
  const std::lock_guard lock(mutex_);
  if (!over_) asking_ = &context;
  return !over_;
}

void WaitTeller::end_asking() {
  const std::lock_guard lock(mutex_);
  asking_ = nullptr;
}

/// What cannot be asked is not told: the stream of events finds out what is wrong.
void WaitTeller::ask() {
  grpc::ClientContext context;
  client_.introduce(context);
  context.set_deadline(std::chrono::system_clock::now() + kCallDeadline);
  v1::GetJobRequest request;
  request.set_name(job_);
  v1::GetJobResponse response;
  if (!begin_asking(context)) return;
  const bool is_answered = client_.jobs().GetJob(&context, request, &response).ok();
  end_asking();
  if (!is_answered) return;
  if (const v1::RanksWait& wait = response.job().wait(); !wait.reason().empty()) tell_(wait);
}

}  // namespace meshloom::cli
