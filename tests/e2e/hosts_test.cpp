// SPDX-License-Identifier: Apache-2.0
// Training over several hosts: run by tests/mpi/on_hosts.sh, below which mpirun starts two ranks on
// each of two hosts.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

using ::testing::HasSubstr;

// While rounding is small.
constexpr int kSteps = 8;

class HostsE2e : public DaemonTest {
 protected:
  void SetUp() override {
    if (std::getenv("OMPI_MCA_orte_default_hostfile") == nullptr)
      GTEST_SKIP() << "run it by tests/mpi/on_hosts.sh 2,2";
    ::setenv("MESHLOOM_HOST", "10.77.0.1", 1);
  }
  void start_ranks(int ranks) {
    start(ranks, {"--mpi-interface", "10.77.0.0/24"});
    // They count in the namespaces of their hosts.
    pids_.clear();
  }
  std::map<int, double> losses_of(const std::string& name, const std::string& mesh,
                                  const std::string& plan) {
    TinyJob job;
    job.steps = kSteps;
    job.plan = plan;
    job.extra = mesh;
    submit(job, name);
    EXPECT_TRUE(reaches(name, "succeeded", 60s)) << this->job(name).dump(2);
    return step_losses(name);
  }
};

TEST_F(HostsE2e, AMeshOverTwoHostsTrainsAsOneRankDoesAndTheSameBitsAgain) {
  const std::string plain = "{dtype: float32}",
                    pull = "{dtype: float32, context_parallel: {rotate: pull}}";
  start_ranks(1);
  const auto alone = losses_of("alone", "", plain);
  ASSERT_EQ(alone.size(), std::size_t{kSteps});
  shut_down();

  start_ranks(4);
  EXPECT_THAT(daemon_log(), HasSubstr("through symmetric memory inside 2 hosts and over MPI"));
  const std::tuple<std::string, std::string, std::string> meshes[] = {
      {"dp-tp", "  mesh: {dp: 2, tp: 2}\n", plain},
      {"fsdp-tp", "  mesh: {fsdp: 2, tp: 2}\n", plain},
      {"fsdp", "  mesh: {dp: 1, fsdp: 4}\n", plain},
      // No rank reads the memory of another host's: the same keys come by a collective.
      {"cp-pull", "  mesh: {cp: 4}\n", pull},
  };
  for (const auto& [name, mesh, plan] : meshes) {
    SCOPED_TRACE(name);
    const auto first = losses_of(name, mesh, plan);
    ASSERT_EQ(first.size(), std::size_t{kSteps});
    for (const auto& [step, loss] : alone)
      EXPECT_NEAR(first.at(step), loss, 1e-5 * loss) << "step " << step;
    EXPECT_EQ(losses_of(name + "-again", mesh, plan), first);
  }
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
