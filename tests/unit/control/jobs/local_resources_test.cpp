// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_resources.h"

#include <gtest/gtest.h>

namespace meshloom::control {
namespace {

TEST(LocalResources, ARankHasTheLeastShareOfTheHostsWhoseMemoryIsKnown) {
  EXPECT_EQ(host_memory_of_rank({}), 0);
  EXPECT_EQ(host_memory_of_rank({{"unknown", 2, {}}}), 0);
  EXPECT_EQ(
      host_memory_of_rank({{"large", 2, {200, ""}}, {"unknown", 8, {}}, {"small", 4, {120, ""}}}),
      30);
}

TEST(LocalResources, TensorsOfADeviceShareItWithTheRanksOfItsHost) {
  const LocalResources resources{.world_size = 2,
                                 .hosts = {{"here", 2, {100, ""}}},
                                 .devices = {{"here", 2, {{0, "x", 1000}, {1, "x", 600}}}}};
  EXPECT_EQ(tensor_memory_of_rank(resources, {}), 50) << "nothing is the CPU";
  v1::RunConfig run;
  run.set_device("cpu");
  EXPECT_EQ(tensor_memory_of_rank(resources, run), 50);
  run.set_device("cuda:0");
  EXPECT_EQ(tensor_memory_of_rank(resources, run), 500) << "both ranks share it";
  run.set_device("cuda");
  EXPECT_EQ(tensor_memory_of_rank(resources, run), 600) << "each rank has its own";
}

}  // namespace
}  // namespace meshloom::control
