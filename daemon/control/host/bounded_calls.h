// SPDX-License-Identifier: Apache-2.0
// BoundedCalls: calls into file systems that may hang, with a limit on how long anybody waits.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "kernels/base/error.h"

namespace meshloom::control {

/// Each call runs on a thread of its own; whoever asked stops waiting after the limit and leaves
/// the thread behind, since nothing can call it back from a file system. Any thread may use it.
class BoundedCalls {
 public:
  /// `most` calls may run at once, those left behind included.
  BoundedCalls(std::chrono::milliseconds limit, int most);

  /// What `body` returns or throws. DeadlineExceeded (FILE_SYSTEM_STUCK) after the limit,
  /// Unavailable (STOPPING) once stop() was called, ResourceExhausted (TOO_MANY_CALLS). `body` may
  /// outlive the wait, so it owns its arguments; other objects that it uses must not be destroyed
  /// while running() is above 0.
  template <typename T>
  T run(std::function<T()> body);
  /// The same of a call that can be ended: `alive` throws Cancelled once nobody waits for it.
  using Alive = std::function<void()>;
  template <typename T>
  T run(std::function<T(const Alive& alive)> body);

  /// All that wait are let go.
  void stop();
  int running() const;

 private:
  struct Shared;

  void start(std::function<void()> body);
  void wait(const std::function<bool()>& ready);

  std::chrono::milliseconds limit_;
  int most_;
  std::shared_ptr<Shared> shared_;
};

template <typename T>
T BoundedCalls::run(std::function<T()> body) {
  const auto task = std::make_shared<std::packaged_task<T()>>(std::move(body));
  auto result = task->get_future();
  start([task] { (*task)(); });
  wait([&] { return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  return result.get();
}

template <typename T>
T BoundedCalls::run(std::function<T(const Alive& alive)> body) {
  struct Waiter {
    std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
    ~Waiter() { *gone = true; }
  } const waiter;
  const Alive alive = [gone = waiter.gone] {
    if (*gone) throw Cancelled("nobody waits for the call any more");
  };
  return run<T>(std::function<T()>([body = std::move(body), alive] { return body(alive); }));
}

}  // namespace meshloom::control
