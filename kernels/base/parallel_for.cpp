// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/parallel_for.h"

#include <atomic>
#include <exception>
#include <mutex>

#ifdef MESHLOOM_OPENMP
#include <omp.h>
#else
#include <thread>
#include <vector>
#endif

namespace meshloom::detail {
namespace {

// Exceptions must not leave a worker; the first is kept and thrown on the caller.
struct FirstException {
  std::mutex mutex;
  std::exception_ptr error;

  template <typename Fn>
  void guard(Fn&& fn) {
    try {
      fn();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  }
};

}  // namespace

void run_parallel(int threads, ParallelBody body, void* closure) {
  FirstException first;
#ifdef MESHLOOM_OPENMP
  // A runtime may give fewer threads than asked for; the loop covers every index all the same.
#pragma omp parallel num_threads(threads)
  {
    const int step = omp_get_num_threads();
    for (int t = omp_get_thread_num(); t < threads; t += step)
      first.guard([&] { body(closure, t); });
  }
#else
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t)
    workers.emplace_back([&, t] { first.guard([&] { body(closure, t); }); });
  first.guard([&] { body(closure, 0); });
  for (std::thread& w : workers) w.join();
#endif
  if (first.error) std::rethrow_exception(first.error);
}

}  // namespace meshloom::detail

namespace meshloom {

void parallel_dynamic(Threads threads, std::int64_t n, void (*fn)(void*, std::int64_t),
                      void* closure) {
  std::atomic<std::int64_t> next{0};
  const auto used = std::min<std::int64_t>(std::max(threads.count, 1), n);
  parallel_for({static_cast<int>(used)}, used, 1, [&](std::int64_t, std::int64_t) {
    for (std::int64_t item = next.fetch_add(1); item < n; item = next.fetch_add(1))
      fn(closure, item);
  });
}

}  // namespace meshloom
