// SPDX-License-Identifier: Apache-2.0
// BoundedCalls: calls into file systems that may hang, with a limit on how long anybody waits.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
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

  using Alive = std::function<void()>;

  /// Returns or throws what `body` does, which is called once and moved alone. DeadlineExceeded
  /// (FILE_SYSTEM_STUCK) after the limit, Unavailable (STOPPING) once stop() was called,
  /// ResourceExhausted (TOO_MANY_CALLS). `body` may outlive the wait, so it owns its arguments;
  /// other objects that it uses must not be destroyed while running() is above 0.
  template <typename T, std::invocable Body>
  T run(Body body);
  /// The same of a call that can be ended: `alive` throws Cancelled once nobody waits for it.
  template <typename T, std::invocable<const Alive&> Body>
  T run(Body body);

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

template <typename T, std::invocable Body>
T BoundedCalls::run(Body body) {
  const auto task = std::make_shared<std::packaged_task<T()>>(std::move(body));
  auto result = task->get_future();
  start([task] { (*task)(); });
  wait([&] { return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  return result.get();
}

template <typename T, std::invocable<const BoundedCalls::Alive&> Body>
T BoundedCalls::run(Body body) {
  struct Waiter {
    std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
    ~Waiter() { *gone = true; }
  } const waiter;
  const Alive alive = [gone = waiter.gone] {
    if (*gone) throw Cancelled("nobody waits for the call any more");
  };
  return run<T>([body = std::move(body), alive]() mutable -> T { return body(alive); });
}

}  // namespace meshloom::control
