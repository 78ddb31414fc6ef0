// SPDX-License-Identifier: Apache-2.0
// Collectives on tensors that lie in symmetric memory, and how often data is copied.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/comm/comm_fixture.h"
#include "tests/unit/comm/process_ranks.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;
using testing::make_group;
using testing::run_process_ranks;

constexpr std::int64_t kLargest = 300'007;  // of float32: several slices of any part

/// Tensors of one rank, each in a piece of symmetric memory or of its own.
class Memory {
 public:
  Memory(ProcessGroup& group, bool symmetric)
      : memory_(symmetric ? group.symmetric_memory() : nullptr) {}

  TensorView floats(std::int64_t n, float first) {
    std::byte* data = nullptr;
    const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
    if (memory_) {
      pieces_.push_back(memory_->allocate(std::max<std::size_t>(bytes, 1)));
      data = pieces_.back().get();
    } else {
      plain_.emplace_back(static_cast<std::size_t>(n));
      data = reinterpret_cast<std::byte*>(plain_.back().data());
    }
    const TensorView view = make_view(data, DType::kFloat32, {n});
    for (std::int64_t i = 0; i < n; ++i) view.as<float>()[i] = value(first, i);
    return view;
  }

  /// Small whole numbers, so that every sum is exact.
  static float value(float first, std::int64_t i) { return first + static_cast<float>(i % 5); }

 private:
  std::shared_ptr<SymmetricMemory> memory_;
  std::vector<std::shared_ptr<std::byte>> pieces_;
  std::vector<std::vector<float>> plain_;
};

void expect_values(const TensorView& view, float factor, float first, const char* what) {
  for (std::int64_t i = 0; i < view.numel(); ++i)
    ASSERT_EQ(view.as<float>()[i], factor * Memory::value(0, i) + first)
        << what << " element " << i;
}

/// Elements that rank r brings; one rank brings none.
std::int64_t share(int r, int size) { return r == size - 1 ? 0 : kLargest / (r + 1); }

void check_reductions(ProcessGroup& group, Memory& memory) {
  const int size = group.size(), rank = group.rank();
  const auto ranks = static_cast<float>(size), sum = ranks * (ranks - 1) / 2;
  const TensorView data = memory.floats(kLargest, static_cast<float>(rank));
  group.all_reduce(data, ReduceOp::kSum)->wait_host();
  expect_values(data, ranks, sum, "all_reduce");

  std::vector<TensorView> inputs;
  for (int r = 0; r < size; ++r)
    inputs.push_back(memory.floats(share(r, size), static_cast<float>(rank + r)));
  // In its own place.
  group.reduce_scatter(inputs[static_cast<std::size_t>(rank)], inputs, ReduceOp::kSum)->wait_host();
  expect_values(inputs[static_cast<std::size_t>(rank)], ranks,
                sum + ranks * static_cast<float>(rank), "reduce_scatter");
}

void check_moves(ProcessGroup& group, Memory& memory) {
  const int size = group.size(), rank = group.rank();
  std::vector<TensorView> outputs, inputs;
  for (int r = 0; r < size; ++r) {
    outputs.push_back(memory.floats(share(r, size), -1));
    inputs.push_back(memory.floats(kLargest, static_cast<float>(rank * size + r)));
  }
  const TensorView input = memory.floats(share(rank, size), static_cast<float>(rank));
  group.all_gather(outputs, input)->wait_host();
  for (int r = 0; r < size; ++r)
    expect_values(outputs[static_cast<std::size_t>(r)], 1, static_cast<float>(r), "all_gather");

  outputs.clear();
  for (int r = 0; r < size; ++r) outputs.push_back(memory.floats(kLargest, -1));
  group.all_to_all(outputs, inputs)->wait_host();
  for (int r = 0; r < size; ++r)
    expect_values(outputs[static_cast<std::size_t>(r)], 1, static_cast<float>(r * size + rank),
                  "all_to_all");
  const int root = size - 1;
  group.broadcast(outputs[0], root)->wait_host();
  expect_values(outputs[0], 1, static_cast<float>(root), "broadcast");
}

/// What comes from a peer is written where the data for it lies.
void check_all_to_all_in_place(ProcessGroup& group, Memory& memory) {
  std::vector<TensorView> data;
  for (int r = 0; r < group.size(); ++r)
    data.push_back(memory.floats(kLargest, static_cast<float>(group.rank() * 10 + r)));
  group.all_to_all(data, data)->wait_host();
  for (int r = 0; r < group.size(); ++r)
    expect_values(data[static_cast<std::size_t>(r)], 1, static_cast<float>(r * 10 + group.rank()),
                  "all_to_all in place");
}

void check_all(RankRuntime& runtime) {
  const auto group = make_group(runtime);
  for (const bool symmetric : {true, false}) {
    Memory memory(*group, symmetric);
    group->reset_counters();
    check_reductions(*group, memory);
    check_moves(*group, memory);
    const std::uint64_t staged = group->counter("all_to_all").bytes_staged;
    check_all_to_all_in_place(*group, memory);
    for (const auto& [name, counter] : group->counters()) {
      if (symmetric && name != "all_to_all") {
        EXPECT_EQ(counter.bytes_staged, 0u) << name;
      }
    }
    if (symmetric || group->size() == 1) {
      EXPECT_EQ(staged, 0u);
      continue;
    }
    // Once in; in an all_reduce the others' sums come out as well. This rank's own part stays.
    const auto all = static_cast<std::uint64_t>(kLargest) * sizeof(float);
    EXPECT_EQ(staged, all * static_cast<std::uint64_t>(group->size() - 1));
    EXPECT_LE(group->counter("all_reduce").bytes_staged, 2 * all);
  }
}

class InPlace : public ::testing::TestWithParam<int> {};

TEST_P(InPlace, Threads) { meshloom::testing::run_thread_ranks(GetParam(), check_all); }

TEST_P(InPlace, Processes) { run_process_ranks(GetParam(), check_all); }

INSTANTIATE_TEST_SUITE_P(Ranks, InPlace, ::testing::Values(1, 2, 3, 4, 8));

/// Ranks that show their data in different ways are in one collective all the same.
TEST(InPlace, SomeRanksHaveSymmetricTensors) {
  meshloom::testing::run_thread_ranks(3, [](RankRuntime& runtime) {
    const auto group = make_group(runtime);
    Memory memory(*group, runtime.rank() == 1);
    check_reductions(*group, memory);
    check_moves(*group, memory);
    check_all_to_all_in_place(*group, memory);
  });
}

/// A rank throws in the middle of a collective of which its peers are already copying; whatever was
/// in flight, afterwards everything is right.
TEST(InPlace, AFailureInTheMiddleOfEachCollective) {
  meshloom::testing::run_thread_ranks(3, [](RankRuntime& runtime) {
    const auto group = make_group(runtime);
    FailureDomain& failures = *group->failures();
    for (int round = 0; round < 40; ++round) {
      Memory memory(*group, round % 2 == 0);
      const TensorView data = memory.floats(kLargest, 1);
      std::vector<TensorView> parts;
      for (int r = 0; r < 3; ++r) parts.push_back(memory.floats(kLargest, 1));
      failures.begin_verb();
      try {
        std::vector<WorkPtr> works;
        works.push_back(group->all_reduce(data, ReduceOp::kSum));
        works.push_back(group->all_to_all(parts, parts));
        if (round % 3 == runtime.rank()) {
          for (int i = 0; i < round; ++i) works[static_cast<std::size_t>(i % 2)]->poll();
          failures.raise("expected by the test");
        }
        works.push_back(group->all_gather(parts, parts[static_cast<std::size_t>(runtime.rank())]));
        for (const WorkPtr& work : works) work->wait_host();
      } catch (const PeerFailed&) {
      }
      failures.recover("");
      // Peers write no more: what is here now stays.
      const TensorView quiet = memory.floats(kLargest, 3);
      check_reductions(*group, memory);
      expect_values(quiet, 1, 3, "after the failure");
    }
  });
}

}  // namespace
}  // namespace meshloom::comm
