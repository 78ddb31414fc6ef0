// SPDX-License-Identifier: Apache-2.0
// What redistribution costs beside moving bytes. Prints, and holds the least of many short rounds
// against limits that a busy machine keeps too, in builds whose times say something.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "daemon/dtensor/api/factories.h"
#include "daemon/dtensor/api/redistribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "tests/unit/dtensor/engine_rank.h"

namespace meshloom::dtensor {
namespace {

/// Microseconds a call takes in the best of many rounds.
template <typename Call>
double best_time(int rounds, int calls, Call&& call) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / calls);
  }
  return best;
}

TEST(RedistributeCost, IsSmall) {
  test::on_engine_mesh({2}, [](test::EngineRank& rank) {
    const Tensor x = zeros({16, 4}, {rank.context, rank.engine, test::placements({"S(0)"})});
    const planner::Placements sharded = test::placements({"S(0)"}), whole = test::placements({"R"});
    const Tensor y = redistribute(x, whole);
    const planner::SpecPtr to = y.layout()->spec;
    const double nothing = best_time(200, 200, [&] { redistribute(x, sharded); });
    const double gather = best_time(2000, 4, [&] { redistribute(x, to); });
    const double gather_by_text = best_time(500, 4, [&] { redistribute(x, whole); });
    const double slice = best_time(200, 50, [&] { redistribute(y, x.layout()->spec); });
    if (rank.mesh.rank() == 0)
      std::printf("no-op %.2f us, S(0)->R %.1f us (by placements %.1f us), R->S(0) %.2f us\n",
                  nothing, gather, gather_by_text, slice);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(nothing, 0.5);
    EXPECT_LT(slice, 10.0);
    EXPECT_LT(gather, 100.0);  // both ranks need a core at once
#endif
  });
}

}  // namespace
}  // namespace meshloom::dtensor
