// SPDX-License-Identifier: Apache-2.0
// The collectives over MPI: started by mpirun, the same checks as for threads. Exit status 0 where
// all hold on this rank. --hosts 0,0,1,1 pretends hosts of the ranks; --hosts-found 0,0,1,1 says
// where they are, as the probe has to find.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/comm/mesh/mpi_runtime.h"
#include "tests/unit/comm/collectives/collectives_body.h"
#include "tests/unit/comm/collectives/soak_body.h"
#include "tests/unit/comm/comm_fixture.h"
#include "tests/unit/comm/failure/failure_body.h"
#include "tests/unit/comm/hierarchy/host_sums.h"
#include "tests/unit/comm/mismatch_body.h"

namespace {

meshloom::comm::MpiRuntime* runtime = nullptr;
std::vector<int> hosts;        // of the ranks
std::vector<int> hosts_found;  // by the probe; empty: not asked

TEST(MpiRanks, Failures) { meshloom::comm::testing::check_all_failures(*runtime); }

TEST(MpiRanks, Collectives) {
  if (hosts.empty()) {
    meshloom::comm::testing::check_everything(*runtime);
  } else {
    meshloom::comm::testing::check_on_any_hosts(*runtime);
  }
}

TEST(MpiRanks, HostsAreFound) {
  if (hosts_found.empty()) return;
  EXPECT_EQ(runtime->topology().host_numbers(), hosts_found);
}

TEST(MpiRanks, SumsAreInTheOrderOfRanksInAHostAndThenOfHosts) {
  using namespace meshloom::comm::testing;
  const std::vector<int> all =
      hosts.empty() ? std::vector<int>(static_cast<std::size_t>(runtime->world_size())) : hosts;
  const auto group = make_group(*runtime);
  if (group->size() == 1) return;
  ExpectedSums<float>(all, 17).compare(*group);
  ExpectedSums<float>(all, 700'001).compare(*group);
  ExpectedSums<meshloom::bfloat16>(all, 300'001).compare(*group);
}

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

/// "0,0,1" as numbers.
std::vector<int> numbers_in(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) numbers.push_back(std::stoi(one));
  return numbers;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  meshloom::comm::MpiRuntimeOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    hosts = numbers_in(argv[i + 1]);
    if (flag == "--hosts") options.hierarchy.hosts = hosts;
    if (flag == "--hosts-found") hosts_found = hosts;
  }
  meshloom::comm::MpiRuntime mpi(options);
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
