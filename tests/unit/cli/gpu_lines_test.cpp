// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/gpu_lines.h"

#include <gmock/gmock.h>

namespace meshloom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::ListWorkersResponse workers_with(const std::vector<std::string>& gpus) {
  v1::ListWorkersResponse response;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    v1::Worker& worker = *response.add_workers();
    worker.set_rank(static_cast<int>(rank));
    worker.set_gpu(gpus[rank]);
  }
  return response;
}

TEST(GpuLines, NameEachGpuOnceWithItsRanks) {
  EXPECT_THAT(gpu_lines(workers_with({"A, driver 1", "B, driver 1", "A, driver 1"})),
              ElementsAre("gpu of ranks 0, 2: A, driver 1", "gpu of rank 1: B, driver 1"));
}

TEST(GpuLines, SayNothingOfCpus) {
  EXPECT_THAT(gpu_lines(workers_with({"", ""})), IsEmpty());
  EXPECT_THAT(gpu_lines(workers_with({"", "A"})), ElementsAre("gpu of rank 1: A"));
}

}  // namespace
}  // namespace meshloom::cli
