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

ParsedDaemonOptions parse(std::vector<std::string> words) {
  words.insert(words.begin(), "meshloomd");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_daemon_options(static_cast<int>(argv.size()), argv.data(), {});
}

TEST(DaemonOptions, AWrongLineSaysWhatToWriteInstead) {
  const std::pair<std::vector<std::string>, const char*> mistakes[] = {
      {{"--state-dr", "x"}, "unknown option --state-dr; did you mean --state-dir?"},
      {{"--threads", "abc"}, "--threads: is abc, expected a whole number"},
      {{"--threads", "0"}, "--threads is 0, expected 1 to 4096"},
      {{"--state-dir"}, "--state-dir needs a value"},
      {{"--log-level", "loud"}, "--log-level is \"loud\", expected trace"},
      {{"--tls-cert", "c.pem"}, "--tls-cert and --tls-key go together, and --tls-key is not given"},
      {{"--tls-client-ca", "ca.pem"}, "--tls-client-ca needs --tls-cert and --tls-key"},
      {{"--role", "alice"}, "--role alice: expected NAME=ROLE"},
      {{"--role", "alice=boss"}, "--role: that of alice is \"boss\", expected viewer"},
      {{"--role", "admin=viewer"}, "\"admin\" cannot have a role"},
      {{"start"}, "\"start\" is one argument too many"},
      {{"--print-completion", "sh"}, "--print-completion: is sh, expected bash, zsh or fish"},
  };
  for (const auto& [words, expected] : mistakes) {
    const auto parsed = parse(words);
    EXPECT_EQ(parsed.exit_code, 2) << expected;
    EXPECT_THAT(parsed.answer, ::testing::HasSubstr(expected));
  }
  EXPECT_THAT(parse({"--state-dr", "x"}).answer, ::testing::HasSubstr("Run \"meshloomd --help\""));
}

TEST(DaemonOptions, ALineMayAskForTexts) {
  const std::pair<std::vector<std::string>, const char*> asked[] = {
      {{"--help"}, "--state-dir TEXT"},
      {{"--version"}, "meshloomd "},
      {{"--print-manual"}, ".TH MESHLOOMD 1"},
      {{"--print-completion", "bash"}, "complete -o default -F _meshloomd meshloomd\n"},
      {{"--print-completion", "zsh"}, "#compdef meshloomd\n"},
      {{"--print-completion", "fish"}, "complete -c meshloomd "},
  };
  for (const auto& [words, expected] : asked) {
    const auto parsed = parse(words);
    EXPECT_EQ(parsed.exit_code, 0) << expected;
    EXPECT_THAT(parsed.answer, ::testing::HasSubstr(expected));
  }
}

/// The data dir that the flags make; the error's text where they are refused.
std::string data_dir_of(const std::vector<std::string>& folders) {
  std::vector<std::string> words;
  for (const std::string& folder : folders) {
    words.emplace_back("--data-dir");
    words.push_back(folder);
  }
  try {
    const auto parsed = parse(words);
    if (parsed.exit_code) return parsed.answer;
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

/// Why nobody may listen so; empty: one may.
std::string listen_refusal(const std::vector<std::string>& words) {
  const ParsedDaemonOptions parsed = parse(words);
  if (parsed.exit_code) return parsed.answer;
  try {
    checked_listen(parsed.options.config);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(DaemonOptions, WhatOthersReachNeedsTlsOrAWordThatItNeedsNone) {
  EXPECT_THAT(listen_refusal({"--listen", "0.0.0.0:0"}),
              ::testing::HasSubstr("neither encrypted nor authenticated"));
  EXPECT_EQ(listen_refusal({"--listen", "0.0.0.0:0", "--insecure"}), "");
  EXPECT_EQ(listen_refusal({"--listen", "0.0.0.0:0", "--tls-cert", "c", "--tls-key", "k"}), "");
  EXPECT_EQ(listen_refusal({"--listen", "127.0.0.1:0"}), "");
  EXPECT_EQ(listen_refusal({"--listen", "none"}), "");
}

TEST(DaemonOptions, RolesOfTheLineTakeThePlaceOfTheFiles) {
  const test::TempFolder folder;
  folder.write("d.yaml", "access: {roles: [{name: alice, role: viewer}]}\n");
  const std::string config = (folder / "d.yaml").string();
  EXPECT_EQ(parse({"--config", config}).options.config.access().roles(0).name(), "alice");
  const auto parsed = parse({"--config", config, "--role", "bob=admin", "--role", "@ml=submitter"});
  ASSERT_EQ(parsed.options.config.access().roles_size(), 2);
  EXPECT_EQ(parsed.options.config.access().roles(1).name(), "@ml");
  EXPECT_EQ(parsed.options.config.access().roles(1).role(), "submitter");
}

}  // namespace
}  // namespace meshloom::control
