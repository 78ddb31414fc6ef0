// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/mpi_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

using Variables = std::map<std::string, std::string>;
using ::testing::HasSubstr;

EnvironmentLookup environment(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Variables defaults(const Variables& variables, const std::string& interface = "") {
  return mpi_defaults(environment(variables), interface);
}

const Variables kWithinAHost{{"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl", "self,vader"}};

TEST(MpiEnvironment, InsideAHostNothingListens) {
  EXPECT_EQ(defaults({}), kWithinAHost);
  EXPECT_EQ(defaults({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
            kWithinAHost);
  EXPECT_EQ(defaults({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}, "eth1"),
            kWithinAHost);
  EXPECT_EQ(defaults({{"PMIX_RANK", "0"},
                      {"PMIX_NAMESPACE", "slurm.pmix.17.0"},
                      {"SLURM_STEP_NUM_NODES", "1"}}),
            kWithinAHost);
  EXPECT_EQ(defaults({{"PMI_RANK", "0"}, {"SLURM_STEP_NUM_NODES", "1"}}), kWithinAHost);
  EXPECT_EQ(defaults({{"PMIX_RANK", "0"}}, "none"), kWithinAHost);
}

TEST(MpiEnvironment, TheUsersOwnSettingWins) {
  EXPECT_EQ(defaults({{"OMPI_MCA_btl", "self,tcp"}, {"OMPI_MCA_pml", "cm"}}), Variables{});
  const Variables two_hosts{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  for (const char* name : {"OMPI_MCA_btl", "OMPI_MCA_btl_tcp_if_include"}) {
    Variables chosen = two_hosts;
    chosen[name] = "eth0";
    EXPECT_EQ(defaults(chosen), (Variables{{"OMPI_MCA_pml", "ob1"}})) << name;
  }
}

TEST(MpiEnvironment, BetweenHostsTheInterfaceIsGiven) {
  const Variables hosts[] = {
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
      {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "slurm.pmix.17.0"}, {"SLURM_STEP_NUM_NODES", "2"}},
      {{"PMIX_RANK", "0"}},
      // A launcher of its own inside a Slurm step of one node.
      {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "prterun-a-1@1"}, {"SLURM_STEP_NUM_NODES", "1"}}};
  for (const Variables& variables : hosts) {
    EXPECT_EQ(defaults(variables, "10.0.0.0/24"),
              (Variables{{"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl_tcp_if_include", "10.0.0.0/24"}}));
    try {
      defaults(variables);
      ADD_FAILURE() << "nothing was refused";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.reason(), "MPI_INTERFACE_MISSING");
      EXPECT_THAT(error.what(), HasSubstr("--mpi-interface"));
    }
  }
}

TEST(MpiEnvironment, AQuietMpirunIsNoticed) {
  EXPECT_EQ(quiet_variable(environment({})), "");
  for (const char* name : {"OMPI_MCA_orte_execute_quiet", "PRTE_MCA_prte_execute_quiet"}) {
    EXPECT_EQ(quiet_variable(environment({{name, "1"}})), name);
    EXPECT_EQ(quiet_variable(environment({{name, "true"}})), name);
    for (const char* off : {"", "0", "false"})
      EXPECT_EQ(quiet_variable(environment({{name, off}})), "") << name << off;
  }
}

}  // namespace
}  // namespace meshloom::comm
