// SPDX-License-Identifier: Apache-2.0
// The one way to run a loop on several threads. No other file uses OpenMP directly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace meshloom {

/// An op may use so many threads. 1 means inline on the caller; ranks that are threads of one
/// process always use 1.
struct Threads {
  int count = 1;
};

namespace detail {
using ParallelBody = void (*)(void* closure, int thread);
/// Runs body(closure, t) for t in [0, threads), in parallel, and waits. The first exception of any
/// thread is thrown on the caller.
void run_parallel(int threads, ParallelBody body, void* closure);
}  // namespace detail

/// Calls fn(begin, end) on consecutive ranges that cover [0, n). The split depends on n, grain and
/// the thread count alone (thread t of T gets one range), so results are reproducible. Ranges hold
/// at least `grain` items, so small loops stay on the caller.
template <typename Fn>
void parallel_for(Threads threads, std::int64_t n, std::int64_t grain, Fn&& fn) {
  if (n <= 0) return;
  const std::int64_t most =
      (n + std::max<std::int64_t>(grain, 1) - 1) / std::max<std::int64_t>(grain, 1);
  const int used = static_cast<int>(std::min<std::int64_t>(std::max(threads.count, 1), most));
  if (used == 1) {
    fn(std::int64_t{0}, n);
    return;
  }
  auto body = [&](int thread) {
    const std::int64_t begin = n * thread / used;
    const std::int64_t end = n * (thread + 1) / used;
    if (begin < end) fn(begin, end);
  };
  using Body = decltype(body);
  detail::run_parallel(
      used, [](void* closure, int thread) { (*static_cast<Body*>(closure))(thread); }, &body);
}

/// Calls fn(item) for every item in [0, n), handed out one by one: for items of unequal cost. Which
/// thread runs an item is not fixed, so fn(item) must not depend on it.
void parallel_dynamic(Threads threads, std::int64_t n, void (*fn)(void*, std::int64_t),
                      void* closure);

template <typename Fn>
void parallel_dynamic(Threads threads, std::int64_t n, Fn&& fn) {
  using F = std::remove_reference_t<Fn>;
  parallel_dynamic(
      threads, n, [](void* closure, std::int64_t item) { (*static_cast<F*>(closure))(item); },
      const_cast<void*>(static_cast<const void*>(&fn)));
}

}  // namespace meshloom
