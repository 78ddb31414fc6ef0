// SPDX-License-Identifier: Apache-2.0
#include "daemon/command_line/documentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "daemon/cli/commands.h"
#include "daemon/command_line/command_list.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/cli/program.h"

namespace meshloom::cli {
namespace {

using namespace command_line;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Documentation, KnowsEveryCommandWithItsOptionsAndThoseOfTheProgram) {
  Program program;
  const auto entries = list_commands(program.app);
  const auto find = [&](const std::string& path) {
    for (const CommandEntry& entry : entries)
      if (entry.path == path) return entry;
    ADD_FAILURE() << path;
    return CommandEntry{};
  };
  EXPECT_THAT(find("").commands, Contains(Field(&CommandWord::word, "job")));
  EXPECT_THAT(find("job").commands, Contains(Field(&CommandWord::word, "submit")));
  for (const char* word : {"--sweep", "--json", "--help", "-v"})
    EXPECT_THAT(find("job submit").options, Contains(Field(&CommandWord::word, word))) << word;
  EXPECT_THAT(find("job move").options, Contains(Field(&CommandWord::word, "--before")))
      << "in a group";
  EXPECT_THAT(find("job").options, Not(Contains(Field(&CommandWord::word, "--sweep"))));
}

/// What bash completes of a line, a word a line.
std::string complete(const std::string& script, const std::string& line, int word) {
  const std::string run = "bash --norc -c 'source " + script + "; COMP_WORDS=(" + line +
                          "); COMP_CWORD=" + std::to_string(word) +
                          "; _meshloom; printf \"%s\\n\" \"${COMPREPLY[@]}\"'";
  std::string output;
  FILE* pipe = ::popen(run.c_str(), "r");
  char piece[4096];
  for (std::size_t got; (got = std::fread(piece, 1, sizeof piece, pipe)) > 0;)
    output.append(piece, got);
  EXPECT_EQ(::pclose(pipe), 0);
  return output;
}

TEST(Documentation, BashCompletesCommandsAndOptions) {
  Program program;
  const test::TempFolder folder;
  const std::string script = folder.write("meshloom.bash", bash_completion(program.app)).string();
  EXPECT_EQ(complete(script, "meshloom job su", 2), "submit\n");
  EXPECT_EQ(complete(script, "meshloom --json job pl", 3), "plot\n");
  EXPECT_EQ(complete(script, "meshloom job submit x.yaml --sw", 4), "--sweep\n");
  EXPECT_EQ(complete(script, "meshloom pla", 1), "plan\n");
  EXPECT_EQ(complete(script, "meshloom plan search --wr", 3), "--write\n");
}

TEST(Documentation, OtherShellsAndTheManualHaveEveryCommand) {
  Program program;
  const std::string zsh = zsh_completion(program.app), fish = fish_completion(program.app);
  const std::string manual = manual_page(program.app, "1.2");
  for (const CommandEntry& entry : list_commands(program.app)) {
    EXPECT_THAT(zsh, HasSubstr("'" + entry.path + "')"));
    EXPECT_THAT(fish, HasSubstr("__meshloom_at \"" + entry.path + "\""));
    const std::string title = entry.path.empty() ? "" : " " + entry.path;
    EXPECT_THAT(manual, HasSubstr(".SH \"meshloom" + title + "\"\n"));
  }
  EXPECT_EQ(manual.find("\n.."), std::string::npos);
  EXPECT_THAT(manual, HasSubstr("\\-\\-sweep"));
}

}  // namespace
}  // namespace meshloom::cli
