// SPDX-License-Identifier: Apache-2.0
// The collectives over MPI: started by mpirun, the same checks as for threads. Exit status 0 where
// all hold on this rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "daemon/comm/mesh/mpi_runtime.h"
#include "tests/unit/comm/collectives/collectives_body.h"
#include "tests/unit/comm/collectives/soak_body.h"
#include "tests/unit/comm/failure/failure_body.h"
#include "tests/unit/comm/mismatch_body.h"

namespace {

meshloom::comm::MpiRuntime* runtime = nullptr;

TEST(MpiRanks, Failures) { meshloom::comm::testing::check_all_failures(*runtime); }

TEST(MpiRanks, Collectives) { meshloom::comm::testing::check_everything(*runtime); }

TEST(MpiRanks, Soak) { meshloom::comm::testing::check_soak(*runtime); }

TEST(MpiRanks, CollectivesThatDiffer) {
  meshloom::comm::testing::check_collectives_that_differ(*runtime);
  meshloom::comm::testing::check_many_that_differ(*runtime);
}

TEST(MpiRanks, ManyGroupsAndSplits) {
  using namespace meshloom::comm;
  const auto world = runtime->make_world_group();
  for (int i = 0; i < 20; ++i) {
    std::vector<std::vector<int>> alone;
    for (int r = 0; r < world->size(); ++r) alone.push_back({r});
    EXPECT_EQ(world->split(alone, "alone")->size(), 1);
  }
  const auto again = runtime->make_world_group();
  again->barrier()->wait_host();
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  meshloom::comm::MpiRuntime mpi;
  runtime = &mpi;
  if (mpi.rank() != 0) {
    // Failures of every rank are printed; the list of tests once.
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    if (std::getenv("MESHLOOM_TEST_ALL_RANKS") == nullptr)
      delete listeners.Release(listeners.default_result_printer());
  }
  const int result = RUN_ALL_TESTS();
  if (result != 0) std::fprintf(stderr, "rank %d failed\n", mpi.rank());
  const auto results = mpi.bootstrap().exchange(std::to_string(result));
  mpi.finish();
  return std::count(results.begin(), results.end(), "0") == mpi.world_size() ? 0 : 1;
}
