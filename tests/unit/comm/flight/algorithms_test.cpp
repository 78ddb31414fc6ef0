// SPDX-License-Identifier: Apache-2.0
// What every implementation of Algorithms gets from its group: shown by one that has no transport.
// Ranks are threads which read each other's memory in place.
#include "daemon/comm/flight/algorithms.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "daemon/comm/collectives/ordered_reduce.h"
#include "daemon/comm/failure.h"
#include "daemon/comm/flight/collective_group.h"
#include "daemon/comm/group_checks.h"
#include "daemon/comm/mesh/shared_memory_world.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;

/// What a rank shows the others of its newest collective.
struct Slot {
  Signature signature;
  const void* data = nullptr;
  std::atomic<std::uint64_t> shown{0};  ///< collectives that this rank has shown
  std::atomic<std::uint64_t> read{0};   ///< collectives in which it has read all others
};
using Board = std::deque<Slot>;

/// A board for every group, found by the group's key and its first rank of the world.
class Boards {
 public:
  Board& of(std::uint64_t key, int first, std::size_t size) {
    const std::lock_guard lock(mutex_);
    Board& board = boards_[{key, first}];
    while (board.size() < size) board.emplace_back();
    return board;
  }
  /// Of the groups that a rank of the world was in, in the order in which they were made.
  std::map<int, std::vector<GroupKey>> keys() const { return keys_; }
  void note(GroupKey key, int world_rank) {
    const std::lock_guard lock(mutex_);
    keys_[world_rank].push_back(key);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::uint64_t, int>, Board> boards_;
  std::map<int, std::vector<GroupKey>> keys_;
};

/// Every rank shows its data, sums what all show, and writes once all have read: all_reduce, and
/// barrier, which has no data.
class PeerRead : public Collective {
 public:
  PeerRead(Board& board, int rank, std::uint64_t number, const Call& call)
      : board_(board), rank_(rank), number_(number), call_(call) {
    if (!call.outputs.empty()) output_ = call.outputs[0];
  }

  bool advance() override {
    Slot& own = board_[static_cast<std::size_t>(rank_)];
    if (own.shown.load() < number_) {
      if (!missing_of(&Slot::read, number_ - 1).empty()) return false;
      own.signature = call_.signature;
      own.data = output_.data;
      own.shown.store(number_);
      *call_.bytes_sent += output_.bytes();
    }
    if (own.read.load() < number_) {
      if (!missing_of(&Slot::shown, number_).empty()) return false;
      sum();
      own.read.store(number_);
    }
    if (!missing_of(&Slot::read, number_).empty()) return false;
    if (!sum_.empty()) std::memcpy(output_.data, sum_.data(), sum_.size());
    return true;
  }
  std::uint64_t progress() const override {
    return board_.size() * 2 - missing_of(&Slot::shown, number_).size() -
           missing_of(&Slot::read, number_).size();
  }
  std::vector<int> missing() const override {
    const std::vector<int> absent = missing_of(&Slot::shown, number_);
    return absent.empty() ? missing_of(&Slot::read, number_) : absent;
  }

 private:
  std::vector<int> missing_of(std::atomic<std::uint64_t> Slot::*counter,
                              std::uint64_t number) const {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < board_.size(); ++r)
      if ((board_[r].*counter).load() < number) ranks.push_back(static_cast<int>(r));
    return ranks;
  }

  void sum() {
    std::vector<const void*> inputs;
    for (std::size_t r = 0; r < board_.size(); ++r) {
      if (board_[r].signature != call_.signature) {
        SignatureDiffers difference(call_.signature, board_[r].signature);
        difference.set_peer(static_cast<int>(r));
        throw difference;
      }
      inputs.push_back(board_[r].data);
    }
    sum_.resize(output_.bytes());
    if (!sum_.empty())
      reduce_in_order({}, output_.dtype, call_.signature.op, sum_.data(), inputs, output_.numel());
  }

  Board& board_;
  int rank_;
  std::uint64_t number_;
  Call call_;
  TensorView output_ = make_view(nullptr, DType::kFloat32, {0});
  std::vector<std::byte> sum_;
};

class PeerReadAlgorithms : public Algorithms {
 public:
  PeerReadAlgorithms(Boards& boards, std::vector<int> members, int rank, std::uint64_t key)
      : boards_(boards),
        members_(std::move(members)),
        rank_(rank),
        board_(boards.of(key, members_[0], members_.size())) {
    boards.note(key, members_[static_cast<std::size_t>(rank)]);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::unique_ptr<Collective> start(const Call& call) override {
    const CollectiveKind kind = call.signature.kind;
    if (kind != CollectiveKind::kAllReduce && kind != CollectiveKind::kBarrier)
      throw Unimplemented(fmt::format("{} between threads that read", kind_name(kind)));
    return std::make_unique<PeerRead>(board_, rank_, ++started_, call);
  }
  void progress() override {}
  std::unique_ptr<Algorithms> split(const std::vector<std::vector<int>>& parts,
                                    std::uint64_t key) override {
    std::vector<int> members;
    int rank = 0;
    for (const int member : part_of(parts, rank_)) {
      if (member == rank_) rank = static_cast<int>(members.size());
      members.push_back(members_[static_cast<std::size_t>(member)]);
    }
    return std::make_unique<PeerReadAlgorithms>(boards_, std::move(members), rank, key);
  }
  void renew() override {
    Slot& own = board_[static_cast<std::size_t>(rank_)];
    own.shown.store(0);
    own.read.store(0);
    started_ = 0;
  }
  void abandon_memory() override {}

 private:
  Boards& boards_;
  std::vector<int> members_;  ///< by their ranks of the world
  int rank_;
  Board& board_;
  std::uint64_t started_ = 0;
};

/// A world group of this rank.
using MakeGroup = std::function<std::unique_ptr<ProcessGroup>()>;

void run_worlds(Boards& boards, int size, std::chrono::milliseconds timeout,
                const std::function<void(const MakeGroup&)>& body) {
  const auto world = std::make_shared<SharedMemoryWorld>(size);
  std::vector<int> members;
  for (int r = 0; r < size; ++r) members.push_back(r);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      SharedMemoryRank self(world, r, 10s);
      GroupOptions options;
      options.timeout = timeout;
      try {
        body([&] {
          const GroupKey key = self.groups()->next_world_key();
          return make_collective_group(
              std::make_unique<PeerReadAlgorithms>(boards, members, r, key), options, self.groups(),
              key);
        });
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

void run_ranks(int size, std::chrono::milliseconds timeout,
               const std::function<void(ProcessGroup&)>& body) {
  Boards boards;
  run_worlds(boards, size, timeout, [&](const MakeGroup& make_group) { body(*make_group()); });
}

WorkPtr sum(ProcessGroup& group, std::vector<float>& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return group.all_reduce(make_view(values.data(), DType::kFloat32, {n}), ReduceOp::kSum);
}

void expect_sums(ProcessGroup& group) {
  std::vector<float> a(5, static_cast<float>(group.rank() + 1)), b(7, 1.0f);
  const WorkPtr first = sum(group, a), second = sum(group, b);
  second->wait_host();
  first->wait_host();
  const int size = group.size();
  EXPECT_EQ(a, std::vector<float>(5, static_cast<float>(size * (size + 1) / 2)));
  EXPECT_EQ(b, std::vector<float>(7, static_cast<float>(size)));
}

TEST(Algorithms, CallsAreNumberedRecordedAndCounted) {
  run_ranks(3, 20s, [](ProcessGroup& group) {
    expect_sums(group);
    group.barrier()->wait_host();
    EXPECT_EQ(group.counter("all_reduce").calls, 2u);
    EXPECT_EQ(group.counter("all_reduce").bytes_sent, 48u);
    EXPECT_EQ(group.counter("barrier").calls, 1u);
    const std::string record = group.flight_record();
    EXPECT_NE(record.find("#1 all_reduce 28 bytes"), std::string::npos) << record;
    EXPECT_NE(record.find("#2 barrier 0 bytes"), std::string::npos) << record;
  });
}

TEST(Algorithms, PartsOfAGroupWorkAtOnce) {
  run_ranks(4, 20s, [](ProcessGroup& group) {
    const auto part = group.split({{0, 2}, {3, 1}}, "part");
    EXPECT_EQ(part->size(), 2);
    expect_sums(*part);
    expect_sums(group);
    group.barrier()->wait_host();
  });
}

TEST(Algorithms, NoTwoGroupsOfARankHaveOneKey) {
  Boards boards;
  run_worlds(boards, 4, 20s, [](const MakeGroup& make_group) {
    std::vector<std::unique_ptr<ProcessGroup>> groups;
    // Each as the n-th group of the n-th world, and of parts of these: what a hash of both numbers
    // may map to one value. Parts of parts leave the ranks with other numbers of groups.
    for (int n = 1; n <= 4; ++n) {
      groups.push_back(make_group());
      ProcessGroup& world = *groups.back();
      for (int split = 1; split <= n; ++split) {
        groups.push_back(world.split({{0, 2}, {1, 3}}, "columns"));
        groups.push_back(world.split({{3}, {2, 1, 0}}, "three"));
        if (groups.back()->size() == 1) continue;
        ProcessGroup& three = *groups.back();
        groups.push_back(three.split({{0, 1}, {2}}, "two of three"));
      }
    }
    for (const auto& group : groups) expect_sums(*group);
  });
  for (const auto& [rank, keys] : boards.keys()) {
    const std::set<GroupKey> different(keys.begin(), keys.end());
    EXPECT_EQ(different.size(), keys.size()) << "rank " << rank;
    EXPECT_EQ(different.count(0), 0u) << "rank " << rank;
  }
}

TEST(GroupKey, IdsTellGroupsApartThatHaveOneKey) {
  EXPECT_NE(group_id(part_key(7), std::vector{2, 0}), group_id(part_key(7), std::vector{1, 3}));
  EXPECT_EQ(group_id(part_key(7), std::vector{2, 0}), group_id(part_key(7), std::vector{0, 2}));
  EXPECT_NE(group_id(part_key(7), std::vector{0}), group_id(world_key(7), std::vector{0}));
  EXPECT_NE(host_key(part_key(7)), part_key(7));
  EXPECT_NE(host_key(part_key(7)), host_key(world_key(7)));
}

TEST(Algorithms, AWaitEndsAtItsDeadlineAndPoisonsTheGroup) {
  run_ranks(3, 100ms, [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    std::vector<float> values(4, 1.0f);
    try {
      sum(group, values)->wait_host();
      ADD_FAILURE() << "a sum without rank 1";
    } catch (const DeadlineExceeded& error) {
      EXPECT_EQ(error.metadata().at("missing"), "rank 1") << error.what();
      EXPECT_EQ(error.metadata().at("collective"), "all_reduce");
    }
    EXPECT_THROW(group.barrier(), GroupBroken);
  });
}

TEST(Algorithms, ADroppedWorkPoisonsTheGroup) {
  run_ranks(2, 20s, [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    std::vector<float> values(4, 1.0f);
    sum(group, values).reset();
    EXPECT_THROW(group.barrier(), FailedPrecondition);
  });
}

TEST(Algorithms, RanksThatDifferAreToldAndRecover) {
  run_ranks(3, 20s, [](ProcessGroup& group) {
    expect_sums(group);
    std::vector<float> values(group.rank() == 0 ? 3 : 4, 1.0f);
    std::string told;
    try {
      sum(group, values)->wait_host();
    } catch (const Error& error) {
      told = error.what();
    }
    EXPECT_NE(told.find("all_reduce #2 of float32 (sum), 3 elements"), std::string::npos) << told;
    EXPECT_NE(told.find("all_reduce #2 of float32 (sum), 4 elements"), std::string::npos) << told;
    EXPECT_THROW(group.barrier(), PeerFailed);
    EXPECT_FALSE(group.failures()->recover("").in_step);
    expect_sums(group);
  });
}

}  // namespace
}  // namespace meshloom::comm
