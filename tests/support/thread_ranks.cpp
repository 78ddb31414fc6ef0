// SPDX-License-Identifier: Apache-2.0
#include "tests/support/thread_ranks.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "daemon/comm/mesh/shared_memory_world.h"
#include "kernels/base/error.h"

namespace meshloom::testing {
namespace {

using namespace comm;

/// Where the threads meet: one exchange at a time.
class MeetingPoint {
 public:
  MeetingPoint(int world_size, std::chrono::milliseconds timeout)
      : timeout_(timeout), values_(static_cast<std::size_t>(world_size)) {}

  std::vector<std::string> exchange(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = round_;
    values_[static_cast<std::size_t>(rank)] = mine;
    if (++arrived_ == values_.size()) {
      arrived_ = 0;
      ++round_;
      results_ = values_;
      all_here_.notify_all();
      return results_;
    }
    // results_ stays until all have met again, for which this thread is needed.
    const bool met =
        all_here_.wait_for(lock, timeout_, [&] { return round_ != round || given_up_; });
    if (round_ != round) return results_;
    if (met) throw Aborted(fmt::format("bootstrap on rank {}: another rank failed", rank));
    throw DeadlineExceeded(fmt::format("bootstrap on rank {}: {} of {} ranks came within {} ms",
                                       rank, arrived_, values_.size(), timeout_.count()),
                           "BOOTSTRAP_TIMEOUT");
  }

  void give_up() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    all_here_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::chrono::milliseconds timeout_;
  std::vector<std::string> values_, results_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
  bool given_up_ = false;
};

class ThreadBootstrap : public Bootstrap {
 public:
  ThreadBootstrap(MeetingPoint& meeting, int rank, int world_size)
      : meeting_(meeting), rank_(rank), world_size_(world_size) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::vector<std::string> exchange(const std::string& mine) override {
    return meeting_.exchange(rank_, mine);
  }
  std::string broadcast(const std::string& value, int root) override {
    return exchange(value)[static_cast<std::size_t>(root)];
  }
  void barrier() override { exchange({}); }

 private:
  MeetingPoint& meeting_;
  int rank_;
  int world_size_;
};

class ThreadRank : public RankRuntime {
 public:
  ThreadRank(MeetingPoint& meeting, const std::shared_ptr<SharedMemoryWorld>& world, int rank,
             std::chrono::milliseconds timeout, const SymmetricOptions& symmetric,
             const HierarchyOptions& hierarchy)
      : bootstrap_(meeting, rank, world->world_size()),
        self_(world, rank, timeout, symmetric, hierarchy) {}

  int rank() const override { return bootstrap_.rank(); }
  int world_size() const override { return bootstrap_.world_size(); }
  Bootstrap& bootstrap() override { return bootstrap_; }
  /// Lets the others' waits end.
  void raise(const char* error) { self_.groups()->raise(error); }
  std::unique_ptr<ProcessGroup> make_world_group(const GroupOptions& options) override {
    return self_.make_world_group(options);
  }

 private:
  ThreadBootstrap bootstrap_;
  SharedMemoryRank self_;
};

/// By rank order; what a rank only heard of another one comes last.
void rethrow_first(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr heard;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const PeerFailed&) {
      if (!heard) heard = error;
    }
  }
  if (heard) std::rethrow_exception(heard);
}

}  // namespace

void run_thread_ranks(int world_size, const std::function<void(RankRuntime&)>& body,
                      std::chrono::milliseconds timeout, const SymmetricOptions& symmetric,
                      const HierarchyOptions& hierarchy) {
  MeetingPoint meeting(world_size, timeout);
  const auto world = std::make_shared<SharedMemoryWorld>(world_size);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world_size));
  const auto run = [&](int rank) {
    try {
      ThreadRank self(meeting, world, rank, timeout, symmetric, hierarchy);
      try {
        body(self);
      } catch (const std::exception& error) {
        self.raise(error.what());
        throw;
      }
    } catch (...) {
      errors[static_cast<std::size_t>(rank)] = std::current_exception();
      meeting.give_up();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < world_size; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads) thread.join();
  rethrow_first(errors);
}

}  // namespace meshloom::testing
