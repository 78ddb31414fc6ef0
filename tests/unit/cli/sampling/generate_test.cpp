// SPDX-License-Identifier: Apache-2.0
// What `meshloom generate` reads and shows of several sequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "daemon/cli/exit_code.h"
#include "daemon/cli/output/records.h"
#include "daemon/cli/sampling/generate_printer.h"
#include "daemon/cli/sampling/generate_prompts.h"
#include "tests/support/temp_folder.h"

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;

std::string prompt_refusal(const PromptOptions& options) {
  try {
    read_prompts(options);
    return "nothing was refused";
  } catch (const CliError& error) {
    EXPECT_EQ(error.code(), kUsage);
    return error.what();
  }
}

TEST(GeneratePrompts, AreTextsTokensOrLines) {
  EXPECT_EQ(read_prompts({.texts = {"a b", "c,d"}})[1].prompt(), "c,d");
  const auto tokens = read_prompts({.tokens = {"1,22", "3"}});
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_THAT(tokens[0].token_ids(), ::testing::ElementsAre(1, 22));
  const test::TempFolder folder;
  std::ofstream(folder / "prompts.txt") << "one\n two \nlast without an end";
  const auto lines = read_prompts({.file = (folder / "prompts.txt").string()});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1].prompt(), " two ");
  EXPECT_EQ(lines[2].prompt(), "last without an end");
}

TEST(GeneratePrompts, AFileIsReadAsText) {
  const test::TempFolder folder;
  std::ofstream(folder / "prompts.txt", std::ios::binary) << "\xEF\xBB\xBFone\r\n two \rthree\r\n";
  const auto lines = read_prompts({.file = (folder / "prompts.txt").string()});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].prompt(), "one");
  EXPECT_EQ(lines[1].prompt(), " two ");
  EXPECT_EQ(lines[2].prompt(), "three");
}

TEST(GeneratePrompts, MistakesAreNamed) {
  EXPECT_THAT(prompt_refusal({.tokens = {"1", "2,,3"}}),
              HasSubstr("--tokens 2,,3: \"\" is no token id"));
  EXPECT_THAT(prompt_refusal({.tokens = {"1.5"}}), HasSubstr("\"1.5\" is no token id"));
  EXPECT_THAT(prompt_refusal({.tokens = {"99999999999999999999"}}), HasSubstr("is no token id"));
  EXPECT_THAT(prompt_refusal({.tokens = {""}}), HasSubstr("there is no token id"));
  const test::TempFolder folder;
  std::ofstream(folder / "gap.txt") << "one\n\nthree\n";
  std::ofstream(folder / "empty.txt") << "";
  EXPECT_THAT(prompt_refusal({.file = (folder / "gap.txt").string()}),
              HasSubstr("gap.txt:2: a prompt is expected, the line is empty"));
  EXPECT_THAT(prompt_refusal({.file = (folder / "empty.txt").string()}),
              HasSubstr("there is no prompt in it"));
  std::ofstream(folder / "gap.txt") << "one\r\n\r\nthree\r\n";
  EXPECT_THAT(prompt_refusal({.file = (folder / "gap.txt").string()}),
              HasSubstr("gap.txt:2: a prompt is expected, the line is empty"));
  std::ofstream(folder / "latin.txt") << "one\ncaf\xE9\n";
  EXPECT_THAT(prompt_refusal({.file = (folder / "latin.txt").string()}),
              HasSubstr("latin.txt:2: the line has bytes that are no UTF-8"));
  for (const std::string file : {std::string("/no/such/file"), folder.path().string()})
    EXPECT_THAT(prompt_refusal({.file = file}), HasSubstr(file + ": cannot be read"));
}

v1::GenerateResponse token(int index, char letter, std::uint64_t seed = 0) {
  v1::GenerateResponse response;
  response.set_index(index);
  response.set_seed(seed);
  response.set_token_id(letter);
  response.set_text(std::string(1, letter));
  return response;
}

v1::GenerateResponse end_of(int index, std::uint64_t seed = 0) {
  v1::GenerateResponse response;
  response.set_index(index);
  response.set_seed(seed);
  response.set_done(true);
  return response;
}

TEST(GeneratePrinter, ShowsSequencesWholeAndInOrder) {
  GeneratePrinter printer(false, {"one:", "two:", "three:", "four:"});
  ::testing::internal::CaptureStdout();
  printer.print(token(1, 'b', ~0ull));
  printer.print(token(0, 'a', 5));
  printer.print(end_of(1, ~0ull));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "") << "the first has not ended";
  ::testing::internal::CaptureStdout();
  printer.print(end_of(0, 5));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "==> 1 of 4, seed 5 <==\none:a\n\n==> 2 of 4, seed 18446744073709551615 <==\n"
            "two:b\n");
  printer.print(token(2, 'c', 77));
  ::testing::internal::CaptureStdout();
  printer.end();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "\n==> 3 of 4, seed 77, cut off <==\nthree:c\n\n==> 4 of 4, cut off <==\nfour:\n")
      << "the seed of one that has drawn nothing was not told";
}

TEST(GeneratePrinter, NotesGoToStandardErrorOrIntoTheRecord) {
  v1::GenerateResponse first = token(0, 'x');
  first.add_notes("the model says so");
  v1::GenerateResponse full = end_of(0);
  full.set_finish_reason("context");
  GeneratePrinter text(false, {"so "}), json(true, {"so "});
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  text.print(first);
  text.print(token(0, 'y'));
  text.print(full);
  text.end();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "so xy\n");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "note: the model says so\nnote: 1 of 1 sequences ended where the model's context is "
            "full; --past-context goes on\n");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  json.print(first);
  json.end();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(nlohmann::json::parse(::testing::internal::GetCapturedStdout())["notes"][0],
            "the model says so");
}

TEST(GeneratePrinter, ShowsOneSequenceAsItComesAndTokensWithoutText) {
  GeneratePrinter one(false, {"so "}), ids(false, {""});
  ::testing::internal::CaptureStdout();
  one.print(token(0, 'x'));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "so x");
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < 2; ++i) {
    v1::GenerateResponse response;
    response.set_token_id(40'000 + i);
    ids.print(response);
  }
  ids.print(end_of(0));
  ids.end();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "40000 40001 \n");
}

TEST(GeneratePrinter, TheRecordThatEndsASequenceHasNoTokenAndNoWeights) {
  GeneratePrinter printer(true, {""});
  ::testing::internal::CaptureStdout();
  v1::GenerateResponse zero;
  zero.set_weights_step(30);
  printer.print(zero);
  printer.print(end_of(0));
  const std::string lines = ::testing::internal::GetCapturedStdout();
  const auto first = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  const auto last = nlohmann::json::parse(lines.substr(lines.find('\n')));
  EXPECT_EQ(first["token_id"], 0) << "a token like any other";
  EXPECT_EQ(first["weights_step"], 30);
  EXPECT_FALSE(last.contains("token_id"));
  EXPECT_FALSE(last.contains("weights_step"));
  EXPECT_EQ(last["done"], true);
  EXPECT_FALSE(token_record(token(0, 'a')).contains("weights_step")) << "not known";
}

}  // namespace
}  // namespace meshloom::cli
