// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/daemon_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "kernels/base/error.h"
#include "tests/support/option_names.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

TEST(DaemonOptions, NoTwoShareAName) {
  CLI::App app("test", "meshloomd");
  DaemonFlags flags;
  declare_daemon_options(app, flags);
  EXPECT_THAT(test::SharedOptionNames::of(app), ::testing::IsEmpty());
}

/// The data dir that the flags make; the error's text where they are refused.
std::string data_dir_of(const std::vector<std::string>& folders) {
  std::vector<std::string> words = {"meshloomd"};
  for (const std::string& folder : folders) {
    words.emplace_back("--data-dir");
    words.push_back(folder);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  try {
    const auto parsed = parse_daemon_options(static_cast<int>(argv.size()), argv.data(), {});
    check_data_dir(parsed.options.config);
    return parsed.options.config.data_dir();
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(DaemonOptions, SeveralDataDirsAreSearchedInTheirOrder) {
  const test::TempFolder first, second;
  const std::string a = std::filesystem::canonical(first.path()).string();
  const std::string b = std::filesystem::canonical(second.path()).string();
  EXPECT_EQ(data_dir_of({a}), a);
  EXPECT_EQ(data_dir_of({b, a}), b + ":" + a);
  EXPECT_THAT(data_dir_of({a, b + "/missing"}), ::testing::HasSubstr("/missing: no such folder"));
  std::filesystem::create_directory(first / "x:y");
  EXPECT_THAT(data_dir_of({a + "/x:y"}), ::testing::HasSubstr("none may have it in its path"));
}

}  // namespace
}  // namespace meshloom::control
