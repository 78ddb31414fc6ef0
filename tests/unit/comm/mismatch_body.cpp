// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/comm/mismatch_body.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "kernels/base/error.h"
#include "tests/unit/comm/comm_fixture.h"

namespace meshloom::comm::testing {
namespace {

using namespace std::chrono_literals;

/// Some elements for every rank, in and out.
class Parts {
 public:
  explicit Parts(const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t size : sizes)
      memory_.emplace_back(static_cast<std::size_t>(size), 1.0f);
  }
  Parts(int ranks, std::int64_t size)
      : Parts(std::vector<std::int64_t>(static_cast<std::size_t>(ranks), size)) {}

  TensorView at(int rank) {
    auto& values = memory_[static_cast<std::size_t>(rank)];
    return make_view(values.data(), DType::kFloat32, {static_cast<std::int64_t>(values.size())});
  }
  std::vector<TensorView> views() {
    std::vector<TensorView> views;
    for (std::size_t r = 0; r < memory_.size(); ++r) views.push_back(at(static_cast<int>(r)));
    return views;
  }

 private:
  std::vector<std::vector<float>> memory_;
};

struct Call {
  std::string text;  ///< begins the collective's side of the error
  std::function<void(ProcessGroup&)> run;
};

void reduce(ProcessGroup& group, DType dtype, std::int64_t size, ReduceOp op) {
  std::vector<std::byte> memory(static_cast<std::size_t>(size) * dtype_size(dtype));
  group.all_reduce(make_view(memory.data(), dtype, {size}), op)->wait_host();
}

void gather(ProcessGroup& group, const std::vector<std::int64_t>& sizes) {
  Parts outputs(sizes);
  Parts input({sizes[static_cast<std::size_t>(group.rank())]});
  group.all_gather(outputs.views(), input.at(0))->wait_host();
}

void exchange(ProcessGroup& group, std::int64_t size, bool direct) {
  Parts in(group.size(), size), out(group.size(), size);
  (direct ? group.send_recv(out.views(), in.views()) : group.all_to_all(out.views(), in.views()))
      ->wait_host();
}

void scatter(ProcessGroup& group, std::int64_t size, int root) {
  Parts in(group.size(), size), out(1, size);
  group.scatter(out.at(0), in.views(), root)->wait_host();
}

void gather_to(ProcessGroup& group, std::int64_t size, int root) {
  Parts in(1, size), out(group.size(), size);
  group.gather(out.views(), in.at(0), root)->wait_host();
}

std::vector<Call> calls(int ranks) {
  std::vector<std::int64_t> even(static_cast<std::size_t>(ranks), 5), uneven = even;
  ++uneven.front();
  --uneven.back();
  const std::vector<std::int64_t> none(static_cast<std::size_t>(ranks), 0);
  using Group = ProcessGroup;
  return {
      {"all_reduce #", [](Group& g) { reduce(g, DType::kFloat32, 10, ReduceOp::kSum); }},
      {"all_reduce #", [](Group& g) { reduce(g, DType::kFloat32, 10, ReduceOp::kMax); }},
      {"all_reduce #", [](Group& g) { reduce(g, DType::kInt32, 10, ReduceOp::kSum); }},
      {"all_reduce #", [](Group& g) { reduce(g, DType::kFloat32, 0, ReduceOp::kSum); }},
      {"all_reduce #", [](Group& g) { reduce(g, DType::kFloat32, 300'000, ReduceOp::kSum); }},
      {"all_gather #", [=](Group& g) { gather(g, even); }},
      {"all_gather #", [=](Group& g) { gather(g, uneven); }},
      {"all_gather #", [=](Group& g) { gather(g, none); }},
      {"reduce_scatter #",
       [](Group& g) {
         Parts in(g.size(), 5), out(1, 5);
         g.reduce_scatter(out.at(0), in.views(), ReduceOp::kSum)->wait_host();
       }},
      {"all_to_all #", [](Group& g) { exchange(g, 5, false); }},
      {"all_to_all #", [](Group& g) { exchange(g, 20'000, false); }},
      {"send_recv #", [](Group& g) { exchange(g, 0, true); }},
      {"broadcast #", [](Group& g) { g.broadcast(Parts(1, 5).at(0), 0)->wait_host(); }},
      {"broadcast #", [](Group& g) { g.broadcast(Parts(1, 5).at(0), 1)->wait_host(); }},
      {"scatter #", [](Group& g) { scatter(g, 5, 0); }},
      {"scatter #", [](Group& g) { scatter(g, 5, 1); }},
      {"gather #", [](Group& g) { gather_to(g, 5, 0); }},
      {"gather #", [](Group& g) { gather_to(g, 5, 1); }},
      {"barrier #", [](Group& g) { g.barrier()->wait_host(); }},
  };
}

/// Runs `body`, which has to end with an error; recovers. Returns what this rank saw by itself and
/// what it heard, one of them empty.
struct SeenAndHeard {
  std::string seen, heard;
};

SeenAndHeard end_of(RankRuntime& runtime, ProcessGroup& world, const std::function<void()>& body) {
  // A rank may be past a collective, and differ in the next one, while others are still inside it.
  runtime.bootstrap().barrier();
  SeenAndHeard ending;
  try {
    body();
    // Those who are not next to the rank that differs may have come through.
    world.barrier()->wait_host();
    ADD_FAILURE() << "rank " << world.rank() << " saw no difference";
  } catch (const PeerFailed& error) {
    ending.heard = error.what();
  } catch (const InternalError& error) {
    EXPECT_EQ(error.reason(), "COLLECTIVE_MISMATCH") << error.what();
    ending.seen = error.what();
  }
  world.failures()->recover(ending.seen);
  return ending;
}

}  // namespace

void check_collectives_that_differ(RankRuntime& runtime) {
  const auto world = runtime.make_world_group({"world", 60s, nullptr, {}});
  const int ranks = world->size();
  if (ranks == 1) return;
  const std::vector<Call> all = calls(ranks);
  int stranger = 0;
  for (std::size_t usual = 0; usual < all.size(); ++usual) {
    for (std::size_t other = 0; other < all.size(); ++other) {
      if (usual == other) continue;
      SCOPED_TRACE(fmt::format("call {}, and {} on rank {} of {}", usual, other, stranger, ranks));
      const auto start = Clock::now();
      const SeenAndHeard end = end_of(
          runtime, *world, [&] { all[world->rank() == stranger ? other : usual].run(*world); });
      EXPECT_LT(Clock::now() - start, 20s);
      const std::string& text = end.seen.empty() ? end.heard : end.seen;
      EXPECT_NE(text.find("the ranks are in different collectives"), std::string::npos) << text;
      EXPECT_NE(text.find(fmt::format("rank {} in {}", stranger, all[other].text)),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("in " + all[usual].text), std::string::npos) << text;
      stranger = (stranger + 1) % ranks;
    }
    expect_sums(*world, 30'000);
  }
}

void check_many_that_differ(RankRuntime& runtime) {
  const auto world = runtime.make_world_group({"world", 60s, nullptr, {}});
  const int ranks = world->size();
  if (ranks == 1) return;
  for (int round = 0; round < 12; ++round) {
    // Every other rank is one collective ahead, with large ones in flight on two groups.
    std::vector<int> everyone;
    for (int r = 0; r < ranks; ++r) everyone.push_back(r);
    const auto part = world->split({everyone}, "part");
    end_of(runtime, *world, [&] {
      const std::int64_t size = 40'000 + 17'000 * round;
      Parts in(ranks, size), out(ranks, size), sum(1, size), whole(1, size * 3);
      std::vector<WorkPtr> works;
      works.push_back(part->all_reduce(whole.at(0), ReduceOp::kSum));
      if (world->rank() % 2 == round % 2)
        works.push_back(world->all_gather(out.views(), in.at(world->rank())));
      works.push_back(world->reduce_scatter(sum.at(0), in.views(), ReduceOp::kSum));
      for (const WorkPtr& work : works) work->wait_host();
    });
    expect_sums(*world, 100'000);
  }
}

}  // namespace meshloom::comm::testing
