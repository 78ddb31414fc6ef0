// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/comm/symm_mem/symmetric_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "kernels/base/error.h"
#include "tests/unit/comm/comm_fixture.h"

namespace meshloom::comm::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// A world group with its symmetric memory.
struct World {
  World(RankRuntime& runtime, const SymmetricOptions& options)
      : group(make_group(runtime)), memory(options), symmetric(enable_on_host(memory, *group)) {
    EXPECT_TRUE(symmetric.enabled()) << symmetric.why_not();
  }
  int rank() const { return group->rank(); }
  int size() const { return group->size(); }

  std::unique_ptr<ProcessGroup> group;
  HostSymmetricMemory memory;
  HostSymmetricGroup& symmetric;
};

TensorView ints(Segment& segment, std::int64_t offset, std::int64_t count) {
  return make_view(segment.data() + offset * 4, DType::kInt32, Shape{count});
}

/// The error of `call` has this reason and all these words.
template <typename Thrown, typename Call>
void expect_refused(Call&& call, const std::string& reason, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected " << reason;
  } catch (const Thrown& error) {
    EXPECT_EQ(error.reason(), reason) << error.what();
    for (const std::string& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

}  // namespace

void check_peer_views(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  // Pieces of different sizes at different offsets, in segments of different sizes.
  const auto count = [](int rank) { return 1000 + 17 * rank; };
  const auto segment =
      world.memory.make_segment(8192 + 4096 * static_cast<std::size_t>(world.rank()));
  const TensorView mine = ints(*segment, 16 * world.rank(), count(world.rank()));
  std::iota(mine.as<std::int32_t>(), mine.as<std::int32_t>() + mine.numel(), world.rank() * 10'000);
  const auto buffer = world.symmetric.rendezvous(mine);
  ASSERT_NE(buffer, nullptr);
  world.symmetric.barrier(0);
  for (int r = 0; r < world.size(); ++r) {
    ASSERT_EQ(buffer->bytes(r), static_cast<std::size_t>(count(r)) * 4);
    const TensorView whole = buffer->view(r, Shape{count(r)}, DType::kInt32);
    for (int i = 0; i < count(r); ++i) ASSERT_EQ(whole.as<std::int32_t>()[i], r * 10'000 + i);
    std::vector<std::int32_t> part(10);
    buffer->get(view_of(part), r, count(r) - 10);
    EXPECT_EQ(part[9], r * 10'000 + count(r) - 1);
  }
  EXPECT_EQ(buffer->view(world.rank(), mine.shape, mine.dtype).data, mine.data);
  world.symmetric.barrier(0);
  // Every rank writes its number into its own place of every rank.
  for (int r = 0; r < world.size(); ++r) {
    std::vector<std::int32_t> number{world.rank()};
    buffer->put(view_of(number), r, world.rank());
  }
  world.symmetric.barrier(0);
  for (int r = 0; r < world.size(); ++r) EXPECT_EQ(mine.as<std::int32_t>()[r], r);
}

void check_buffer_bounds(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  const auto segment = world.memory.make_segment(4096);
  const auto buffer = world.symmetric.rendezvous(ints(*segment, 1, 100));
  ASSERT_NE(buffer, nullptr);
  const auto refuse = [&](auto&& call, const char* reason, const std::string& word) {
    expect_refused<InvalidArgument>(call, reason, {word});
  };
  std::vector<std::int32_t> values(100);
  buffer->get(view_of(values), 0);
  buffer->view(0, Shape{0}, DType::kInt32, 100);
  refuse([&] { buffer->view(-1, Shape{1}, DType::kInt32); }, "SYMM_MEM_RANK", "must be in [0");
  refuse([&] { buffer->view(world.size(), Shape{1}, DType::kInt32); }, "SYMM_MEM_RANK",
         "must be in [0");
  refuse([&] { buffer->view(0, Shape{101}, DType::kInt32); }, "SYMM_MEM_BOUNDS", "exceed");
  refuse([&] { buffer->view(0, Shape{1}, DType::kInt32, 100); }, "SYMM_MEM_BOUNDS", "exceed");
  refuse([&] { buffer->view(0, Shape{1}, DType::kInt32, INT64_MAX); }, "SYMM_MEM_BOUNDS", "exceed");
  refuse([&] { buffer->view(0, Shape{1}, DType::kInt32, -1); }, "SYMM_MEM_BOUNDS", "negative");
  refuse([&] { buffer->view(0, Shape{1}, DType::kInt64); }, "SYMM_MEM_BOUNDS", "not aligned");
  refuse([&] { buffer->put(view_of(values), 0, 1); }, "SYMM_MEM_BOUNDS", "exceed");
  TensorView every_second = view_of(values);
  every_second.shape = Shape{50};
  every_second.strides = Strides{2};
  refuse([&] { buffer->get(every_second, 0); }, "SYMM_MEM_BOUNDS", "contiguous");
  world.symmetric.barrier(0);
}

void check_multicast(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  EXPECT_FALSE(world.symmetric.has_multicast());
  EXPECT_THAT(world.symmetric.why_no_multicast(), HasSubstr("an address of its own"));
  const auto buffer = world.symmetric.workspace(4096);
  expect_refused<Unimplemented>([&] { buffer->multicast_view(Shape{16}, DType::kFloat32); },
                                "SYMM_MEM_NO_MULTICAST",
                                {"[16] float32", world.symmetric.why_no_multicast()});
}

void check_plain_memory(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  const auto segment = world.memory.make_segment(4096);
  std::vector<std::int32_t> plain(8);
  const bool last = world.rank() == world.size() - 1;
  EXPECT_EQ(world.symmetric.rendezvous(last ? view_of(plain) : ints(*segment, 0, 8)), nullptr);
  // A piece that goes over the end of its segment is not symmetric either.
  EXPECT_EQ(world.symmetric.rendezvous(ints(*segment, 1000, last ? 25 : 24)), nullptr);
  EXPECT_NE(world.symmetric.rendezvous(ints(*segment, 1000, 24)), nullptr);
}

void check_signals_of_all_pairs(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  SymmetricGroup& symmetric = world.symmetric;
  const auto segment = world.memory.make_segment(4096);
  const auto buffer = symmetric.rendezvous(ints(*segment, 0, world.size()));
  ASSERT_NE(buffer, nullptr);
  for (int round = 0; round < 200; ++round) {
    const int channel = round % 2 == 0 ? 0 : symmetric.channels() - 1;
    for (int r = 0; r < world.size(); ++r) {
      std::vector<std::int32_t> value{round * 100 + world.rank()};
      buffer->put(view_of(value), r, world.rank());
      symmetric.put_signal(r, channel);
    }
    for (int r = 0; r < world.size(); ++r) {
      symmetric.wait_signal(r, channel);
      ASSERT_EQ(ints(*segment, 0, world.size()).as<std::int32_t>()[r], round * 100 + r);
    }
    // Values are overwritten only when all have read them.
    symmetric.barrier(channel);
  }
}

void check_barriers(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  const auto segment = world.memory.make_segment(4096);
  const auto buffer = world.symmetric.rendezvous(ints(*segment, 0, 1));
  ASSERT_NE(buffer, nullptr);
  for (int round = 1; round <= 100; ++round) {
    if (round % 10 == world.rank()) std::this_thread::sleep_for(1ms);
    const int channel = round % 3;
    *ints(*segment, 0, 1).as<std::int32_t>() = round;
    // A signal of the same channel is not counted as an arrival, nor taken by it.
    world.symmetric.put_signal((world.rank() + 1) % world.size(), channel);
    world.symmetric.barrier(channel);
    for (int r = 0; r < world.size(); ++r)
      ASSERT_EQ(*buffer->view(r, Shape{1}, DType::kInt32).as<std::int32_t>(), round);
    world.symmetric.wait_signal((world.rank() + world.size() - 1) % world.size(), channel);
    world.symmetric.barrier(channel);
  }
}

void check_deadlines(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  SymmetricGroup& symmetric = world.symmetric;
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  symmetric.put_signal(next, 3, 50ms);
  const auto start = Clock::now();
  expect_refused<DeadlineExceeded>(
      [&] { symmetric.put_signal(next, 3, 50ms); }, "SYMM_MEM_TIMEOUT",
      {"put_signal", "channel 3", "group 'world'", "rank " + std::to_string(next), "50 ms"});
  EXPECT_GE(Clock::now() - start, 50ms);
  expect_refused<DeadlineExceeded>([&] { symmetric.wait_signal(before, 4, 20ms); },
                                   "SYMM_MEM_TIMEOUT",
                                   {"wait_signal", "rank " + std::to_string(before)});
  world.group->barrier()->wait_host();
  // The second put told nothing: one signal is there.
  symmetric.wait_signal(before, 3);
  expect_refused<DeadlineExceeded>([&] { symmetric.wait_signal(before, 3, 20ms); },
                                   "SYMM_MEM_TIMEOUT", {"channel 3"});
  if (world.rank() == 0 && world.size() > 1)
    expect_refused<DeadlineExceeded>([&] { symmetric.barrier(5, 20ms); }, "SYMM_MEM_TIMEOUT",
                                     {"barrier on channel 5", "missing rank 1"});
  world.group->barrier()->wait_host();
  // The barrier that timed out is the same one when it is called again.
  for (int round = 0; round < 3; ++round) symmetric.barrier(5);
  symmetric.put_signal(next, 3);
  symmetric.wait_signal(before, 3);
}

void check_wrong_ranks_and_channels(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  HostSymmetricGroup& symmetric = world.symmetric;
  const int last = symmetric.channels() - 1;
  for (const int channel : {-1, last + 1}) {
    const std::vector<std::string> words{"maximum supported channel is " + std::to_string(last)};
    const auto refuse = [&](auto&& call) {
      expect_refused<InvalidArgument>(call, "SYMM_MEM_CHANNEL", words);
    };
    refuse([&] { symmetric.put_signal(0, channel); });
    refuse([&] { symmetric.wait_signal(0, channel); });
    refuse([&] { symmetric.barrier(channel); });
  }
  for (const int rank : {-1, world.size()}) {
    const auto refuse = [&](auto&& call) {
      expect_refused<InvalidArgument>(call, "SYMM_MEM_RANK", {"must be in [0"});
    };
    refuse([&] { symmetric.put_signal(rank, 0); });
    refuse([&] { symmetric.wait_signal(rank, 0); });
    refuse([&] { symmetric.sharing(rank); });
  }
  // The last channel works, and what was refused has written nothing.
  symmetric.barrier(last);
  symmetric.put_signal(world.rank(), last, 1s);
  symmetric.wait_signal(world.rank(), last, 1s);
  expect_refused<DeadlineExceeded>([&] { symmetric.wait_signal(world.rank(), last, 5ms); },
                                   "SYMM_MEM_TIMEOUT", {});
}

void check_groups_at_once(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  const int size = world.size();
  std::vector<std::vector<int>> halves(2), pairs;
  for (int r = 0; r < size; ++r) halves[r < (size + 1) / 2 ? 0 : 1].push_back(r);
  std::erase_if(halves, [](const auto& part) { return part.empty(); });
  // Pairs that begin at rank 1 overlap the halves; the first rank is alone.
  pairs.push_back({0});
  for (int r = 1; r < size; r += 2)
    pairs.push_back(r + 1 < size ? std::vector<int>{r + 1, r} : std::vector<int>{r});
  const auto half = world.group->split(halves, "half");
  const auto pair = world.group->split(pairs, "pair");
  SymmetricGroup* groups[] = {&world.symmetric, &world.memory.enable(*half),
                              &world.memory.enable(*pair)};
  const auto segment = world.memory.make_segment(4096);
  *ints(*segment, 0, 1).as<std::int32_t>() = world.rank() + 1;
  std::shared_ptr<SymmetricBuffer> buffers[3];
  for (int g = 0; g < 3; ++g) {
    buffers[g] = groups[g]->rendezvous(ints(*segment, 0, 1));
    ASSERT_NE(buffers[g], nullptr);
    EXPECT_EQ(buffers[g]->rank(), groups[g]->rank());
    EXPECT_EQ(buffers[g]->size(), groups[g]->size());
  }
  const auto value = [&](int g, int r) {
    return *buffers[g]->view(r, Shape{1}, DType::kInt32).as<std::int32_t>();
  };
  world.symmetric.barrier(0);
  for (int r = 0; r < half->size(); ++r)
    EXPECT_EQ(value(1, r),
              halves[world.rank() < (size + 1) / 2 ? 0 : 1][static_cast<std::size_t>(r)] + 1);
  EXPECT_EQ(value(2, pair->rank()), world.rank() + 1);
  for (int round = 0; round < 50; ++round)
    for (SymmetricGroup* group : groups) {
      for (int r = 0; r < group->size(); ++r) group->put_signal(r, 0);
      group->barrier(0);
      for (int r = 0; r < group->size(); ++r) group->wait_signal(r, 0);
    }
  world.memory.disable(*half);
  world.memory.disable(*pair);
}

void check_enable_and_workspace(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  EXPECT_EQ(world.memory.enabled(*world.group), &world.symmetric);
  const std::uint64_t calls = world.group->counter("all_gather").calls;
  EXPECT_EQ(&world.memory.enable(*world.group), &world.symmetric);
  EXPECT_EQ(world.group->counter("all_gather").calls, calls) << "enabling again is free";
  const auto other = make_group(runtime);
  EXPECT_EQ(world.memory.enabled(*other), nullptr);

  const auto small = world.symmetric.workspace(100);
  EXPECT_EQ(world.symmetric.workspace(4096), small) << "a page was there";
  const auto large = world.symmetric.workspace(5 << 20);
  EXPECT_NE(large, small);
  EXPECT_EQ(world.symmetric.workspace(10), large) << "it never shrinks";
  EXPECT_EQ(
      reinterpret_cast<std::uintptr_t>(large->view(world.rank(), Shape{1}, DType::kUInt8).data) %
          (2 << 20),
      0u);
  // What was there stays.
  const int next = (world.rank() + 1) % world.size();
  std::vector<std::int32_t> number{world.rank()};
  small->put(view_of(number), next, 5);
  large->put(view_of(number), next, 1'000'000);
  world.symmetric.barrier(0);
  const int before = (world.rank() + world.size() - 1) % world.size();
  small->get(view_of(number), world.rank(), 5);
  EXPECT_EQ(number[0], before);
  large->get(view_of(number), world.rank(), 1'000'000);
  EXPECT_EQ(number[0], before);
  expect_refused<ResourceExhausted>([&] { world.symmetric.workspace(std::size_t{1} << 50); },
                                    "SYMM_MEM_NO_ROOM", {"rank 0", "1125899906842624", "are left"});
  world.symmetric.barrier(0);
}

void check_further_segments(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  HostSymmetricGroup& symmetric = world.symmetric;
  constexpr int kSegments = 30;
  const auto names = world.memory.make_segment(kSegments * sizeof(SegmentName));
  const auto buffer = symmetric.rendezvous(
      make_view(names->data(), DType::kUInt8, Shape{static_cast<std::int64_t>(names->bytes())}));
  ASSERT_NE(buffer, nullptr);
  std::vector<std::shared_ptr<Segment>> mine;
  for (int i = 0; i < kSegments; ++i) {
    mine.push_back(world.memory.make_segment(4096));
    *ints(*mine.back(), 0, 1).as<std::int32_t>() = world.rank() * 100 + i;
    reinterpret_cast<SegmentName*>(names->data())[i] = mine.back()->name();
  }
  symmetric.barrier(0);
  for (int r = 0; r < world.size(); ++r) {
    if (r == world.rank()) continue;
    const auto* theirs = buffer->view(r, Shape{1}, DType::kUInt8).as<const SegmentName>();
    for (int i = kSegments - 1; i >= 0; --i) {
      const auto segment = symmetric.attach(r, theirs[i]);
      ASSERT_EQ(*ints(*segment, 0, 1).as<std::int32_t>(), r * 100 + i);
      EXPECT_EQ(symmetric.attach(r, theirs[i]), segment) << "mapped once";
    }
    // Nobody has this memory.
    SegmentName unknown = theirs[0];
    unknown.nonce[0] ^= 1;
    EXPECT_THROW(symmetric.attach(r, unknown, 20ms), Error);
  }
  symmetric.barrier(0);
}

void check_abort_flag_ends_waits(RankRuntime& runtime, const SymmetricOptions& options) {
  AbortFlag abort;
  SymmetricOptions with_flag = options;
  with_flag.abort = &abort;
  World world(runtime, with_flag);
  world.symmetric.barrier(0);
  std::thread raiser([&] {
    std::this_thread::sleep_for(20ms);
    abort.raised.store(true, std::memory_order_release);
  });
  expect_refused<Aborted>([&] { world.symmetric.wait_signal(0, 0); }, "COLLECTIVE_ABORTED",
                          {"wait_signal", "abort flag"});
  raiser.join();
  runtime.bootstrap().barrier();
}

void check_signals_after_recovery(RankRuntime& runtime, const SymmetricOptions& options) {
  World world(runtime, options);
  if (world.size() == 1 || world.group->failures() == nullptr) return;
  SymmetricGroup& symmetric = world.symmetric;
  const int size = world.size();
  const int next = (world.rank() + 1) % size, before = (world.rank() + size - 1) % size;
  for (int round = 0; round < 20; ++round) {
    const int failing = round % size;
    std::string mine;
    const auto workspace = symmetric.workspace(100);
    symmetric.put_signal(next, 0);  // some of these are never taken
    if (world.rank() == failing) {
      mine = "broken on purpose";
      world.group->failures()->raise(mine);
    } else {
      try {
        symmetric.barrier(1);
        ADD_FAILURE() << "the barrier ended without rank " << failing;
      } catch (const PeerFailed& error) {
        EXPECT_EQ(error.failure().rank, failing);
        EXPECT_THAT(error.what(), HasSubstr("barrier on channel 1"));
      }
    }
    world.group->failures()->recover(mine);
    EXPECT_NE(symmetric.workspace(100), workspace) << "ranks may hold different ones";
    for (int again = 0; again < 5; ++again) {
      symmetric.put_signal(next, 0);
      symmetric.wait_signal(before, 0);
      symmetric.barrier(1);
    }
    runtime.bootstrap().barrier();
  }
}

}  // namespace meshloom::comm::testing
