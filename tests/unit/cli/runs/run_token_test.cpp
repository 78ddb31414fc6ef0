// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/runs/run_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "daemon/cli/commands.h"
#include "daemon/command_line/usage_error.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;

class RunTokenTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text) const {
    const auto path = folder_ / "token";
    std::ofstream(path) << text;
    return path.string();
  }
  /// What a line's command gets, or its refusal.
  std::string token_of(const std::string& line) const {
    CommandContext context;
    context.default_run_token = default_;
    CLI::App app("test", "meshloom");
    declare_commands(app, context);
    try {
      app.parse(line);
    } catch (const CLI::ParseError& error) {
      return command_line::usage_text(app, error);
    }
    return context.run_token;
  }

  test::TempFolder folder_;
  std::string default_;
};

TEST_F(RunTokenTest, ComesFromAFileTheLineOrTheEnvironment) {
  EXPECT_THAT(token_of("run heartbeat r"),
              HasSubstr("one of --token-file, --token and MESHLOOM_RUN_TOKEN is required"));
  default_ = "from-environment";
  EXPECT_EQ(token_of("run heartbeat r"), "from-environment");
  EXPECT_EQ(token_of("operation cancel operations/r/1/1"), "from-environment");
  EXPECT_EQ(token_of("run heartbeat r --token line"), "line");
  const std::string file = write("0123abcd\n");
  EXPECT_EQ(token_of("run heartbeat r --token-file " + file), "0123abcd");
  EXPECT_THAT(token_of("run heartbeat r --token x --token-file " + file), HasSubstr("excludes"));
  // Who only looks may be looking at another run than that of the environment.
  EXPECT_EQ(token_of("run show r"), "");
  EXPECT_EQ(token_of("operation watch operations/r/1/1 --token-file " + file), "0123abcd");
  EXPECT_EQ(token_of("run delete r"), "");
}

TEST_F(RunTokenTest, AFileHoldsOneWord) {
  EXPECT_EQ(read_token_file(write(" \t0123abcd \r\n\n")), "0123abcd");
  for (const std::string& wrong :
       {std::string(), std::string("\n"), std::string("two words"), std::string("a\nb"),
        std::string("\x01"), std::string("\xc3\xa9"), std::string(512, 'a')})
    EXPECT_THROW(read_token_file(write(wrong)), CLI::ValidationError) << wrong;
  EXPECT_THAT(token_of("run heartbeat r --token-file " + (folder_ / "none").string()),
              HasSubstr("cannot be opened: No such file"));
}

TEST_F(RunTokenTest, ANewFileIsItsOwnersAloneAndGoesUnlessATokenIsWritten) {
  const auto path = folder_ / "new";
  { const NewTokenFile file(path); }
  EXPECT_FALSE(std::filesystem::exists(path));
  {
    NewTokenFile file(path);
    file.write("0123abcd");
  }
  EXPECT_EQ(read_token_file(path), "0123abcd");
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_THROW(NewTokenFile again(path), CliError);
  EXPECT_EQ(read_token_file(path), "0123abcd");
}

}  // namespace
}  // namespace meshloom::cli
