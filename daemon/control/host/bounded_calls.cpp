// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/bounded_calls.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "kernels/base/error.h"

namespace meshloom::control {

struct BoundedCalls::Shared {
  mutable std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  bool stopped = false;
};

BoundedCalls::BoundedCalls(std::chrono::milliseconds limit, int most)
    : limit_(limit), most_(most), shared_(std::make_shared<Shared>()) {}

void BoundedCalls::start(std::function<void()> body) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->stopped) throw Unavailable("the daemon is stopping", "STOPPING");
    if (shared_->running >= most_)
      throw ResourceExhausted(
          fmt::format("{} requests are looking at files already, or hang in a file system",
                      shared_->running),
          "TOO_MANY_CALLS");
    ++shared_->running;
  }
  const auto end = [shared = shared_] {
    const std::lock_guard lock(shared->mutex);
    --shared->running;
    shared->changed.notify_all();
  };
  try {
    std::thread([end, body = std::move(body)]() mutable {
      body();
      // What the call owns is gone before it counts as ended.
      body = nullptr;
      end();
    }).detach();
  } catch (const std::system_error& error) {
    end();
    throw ResourceExhausted(fmt::format("no thread for a request: {}", error.what()),
                            "TOO_MANY_CALLS");
  }
}

void BoundedCalls::wait(const std::function<bool()>& ready) {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_for(lock, limit_, [&] { return shared_->stopped || ready(); });
  if (ready()) return;
  if (shared_->stopped) throw Unavailable("the daemon is stopping", "STOPPING");
  throw DeadlineExceeded(
      fmt::format("the files that the request names could not be looked at within {} s: their file "
                  "system does not answer",
                  std::chrono::duration<double>(limit_).count()),
      "FILE_SYSTEM_STUCK", {{"limit_ms", std::to_string(limit_.count())}});
}

void BoundedCalls::stop() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stopped = true;
  shared_->changed.notify_all();
}

int BoundedCalls::running() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->running;
}

}  // namespace meshloom::control
