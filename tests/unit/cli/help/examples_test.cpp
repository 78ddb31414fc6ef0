// SPDX-License-Identifier: Apache-2.0
// The examples below the help of every command are lines that the program takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "daemon/cli/help/familiar_commands.h"
#include "daemon/cli/help/unknown_field.h"
#include "daemon/command_line/usage_error.h"
#include "tests/unit/cli/program.h"

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;

struct Example {
  std::string command;  ///< whose help shows it
  std::string line;     ///< behind "meshloom "
};

/// Lines "  meshloom ..." and "Example: meshloom ..." of a footer.
void add_examples(const CLI::App& app, const std::string& path, std::vector<Example>* examples) {
  std::istringstream lines(app.get_footer());
  for (std::string line; std::getline(lines, line);) {
    constexpr const char* kOne = "Example: meshloom ";
    std::string text;
    if (line.starts_with(kOne)) text = line.substr(std::string(kOne).size());
    if (line.starts_with("  meshloom ")) text = line.substr(11);
    if (!text.empty()) examples->push_back({path, text});
  }
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; }))
    add_examples(*below, path + " " + below->get_name(), examples);
}

/// Null if there is none of that name.
const CLI::App* command_below(const CLI::App& app, const std::string& name) {
  const auto named =
      app.get_subcommands([&](const CLI::App* one) { return one->check_name(name); });
  return named.empty() ? nullptr : named.front();
}

/// As a shell reads it: without what is sent elsewhere and what comments say.
std::string as_shell_reads(std::string line) {
  for (const char* end : {" > ", " < ", " #", " | ", " &"})
    line = line.substr(0, std::min(line.find(end), line.size()));
  return line;
}

TEST(Examples, OfEveryHelpAreTaken) {
  std::vector<Example> examples;
  {
    const Program program;
    add_examples(program.app, "meshloom", &examples);
  }
  ASSERT_GT(examples.size(), 30u);
  ::setenv("MESHLOOM_RUN_TOKEN", "0123456789abcdef0123456789abcdef", 1);
  for (const Example& example : examples) {
    Program program;
    program.context.default_run_token = "0123456789abcdef0123456789abcdef";
    std::string line = as_shell_reads(example.line);
    // The file that an example names is not here.
    if (const auto file = line.find(" --token-file "); file != std::string::npos)
      line.erase(file, line.find(' ', file + 14) - file);
    try {
      program.app.parse(line);
    } catch (const CLI::ParseError& error) {
      ADD_FAILURE() << example.command << " --help shows: meshloom " << example.line << "\n"
                    << command_line::usage_text(program.app, error);
      continue;
    }
    EXPECT_TRUE(program.context.action) << example.line;
  }
}

TEST(FamiliarCommands, NameCommandsThatThereAre) {
  for (const FamiliarCommand& known : familiar_commands()) {
    const Program program;
    // None of the words is a command already, and the one to write instead is.
    const CLI::App* place = &program.app;
    std::istringstream path(known.path);
    for (std::string word; path >> word;) place = place->get_subcommand(word);
    std::istringstream words(known.words);
    for (std::string word; words >> word;)
      EXPECT_EQ(command_below(*place, word), nullptr) << known.path << " " << word;
    const CLI::App* target = &program.app;
    std::istringstream command(known.command);
    std::string word;
    ASSERT_TRUE(command >> word);
    target = command_below(*target, word);
    ASSERT_NE(target, nullptr) << known.command;
    if (target->get_require_subcommand_min() > 0) {
      ASSERT_TRUE(command >> word) << known.command;
      EXPECT_NE(command_below(*target, word), nullptr) << known.command;
    }
  }
}

TEST(FamiliarCommands, AreToldOfWordsOfOtherPrograms) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"train job.yaml",
       "unknown command \"train\"; here it is `meshloom job submit FILE --follow`"},
      {"sample --prompt x", "here it is `meshloom generate"},
      {"export job-1", "here it is `meshloom checkpoint export"},
      {"logs job-1", "here it is `meshloom job logs"},
      {"Eval", "here it is `meshloom evaluate"},
      {"job rm a", "here it is `meshloom job delete"},
      {"model push a", "here it is `meshloom model create"},
      {"checkpoint get a", "here it is `meshloom checkpoint download"},
      {"run stop a", "here it is `meshloom run close"},
      {"statsu", "unknown command \"statsu\"; did you mean status?"},
  };
  for (const auto& [line, expected] : mistakes) {
    Program program;
    try {
      program.app.parse(line);
      ADD_FAILURE() << line;
    } catch (const CLI::ParseError& error) {
      EXPECT_THAT(command_line::usage_text(program.app, error, field_hint, command_hint),
                  HasSubstr(expected))
          << line;
    }
  }
}

}  // namespace
}  // namespace meshloom::cli
