// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/launch_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_folder.h"

namespace meshloom::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Pair;

EnvironmentLookup environment(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(LaunchCommand, TheFlagsOfTheDaemonComeLast) {
  const LaunchOptions options{2, "/a state", {"--threads", "3"}, "/bin/mpirun", "/bin/meshloomd"};
  EXPECT_THAT(launch_arguments(options),
              ElementsAre("/bin/mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe",
                          "/bin/meshloomd", "--world-size", "2", "--state-dir", "/a state",
                          "--threads", "3"));
}

TEST(LaunchCommand, RootConfirmsAndSurvivorsHaveTime) {
  EXPECT_THAT(launch_variables(false, environment({})),
              ElementsAre(Pair("OMPI_MCA_odls_base_sigkill_timeout", "8")));
  const auto root = launch_variables(true, environment({}));
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"})
    EXPECT_EQ(root.count(name), 1u) << name;
}

TEST(LaunchCommand, WhatTheUserHasSetStays) {
  const auto set = launch_variables(true, environment({{"OMPI_MCA_odls_base_sigkill_timeout", "1"},
                                                       {"PRTE_ALLOW_RUN_AS_ROOT", "0"}}));
  EXPECT_THAT(set, ElementsAre(Pair("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                               Pair("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                               Pair("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1")));
}

TEST(LaunchCommand, AProgramIsTheFirstExecutableOnThePath) {
  const test::TempFolder folder;
  folder.write("first/tool", "no program");
  folder.write("second/tool", "#!/bin/sh\n");
  folder.write("third/tool", "#!/bin/sh\n");
  fs::create_directories(folder / "fourth/tool");
  for (const char* name : {"second/tool", "third/tool"})
    fs::permissions(folder / name, fs::perms::owner_all);
  const auto path = [&](std::string_view words) {
    std::string all;
    for (const char* name : {"fourth", "first", "missing", "second", "third"})
      if (words.find(name) != std::string_view::npos) all += (folder / name).string() + ":";
    return all;
  };
  EXPECT_EQ(find_program("tool", path("first second third fourth")), folder / "second/tool");
  EXPECT_EQ(find_program("tool", path("first fourth missing")), std::nullopt);
  EXPECT_EQ(find_program("tool", ""), std::nullopt);
}

}  // namespace
}  // namespace meshloom::launch
