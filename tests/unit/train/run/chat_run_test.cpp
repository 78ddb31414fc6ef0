// SPDX-License-Identifier: Apache-2.0
// Training on conversations: the loss is the mean over the tokens that are learnt, on every mesh.
#include "daemon/text/learned_tokens.h"
#include "daemon/text/token_file.h"
#include "daemon/train/config/resolve.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

/// Prompt and completion of a line.
using Turn = std::pair<std::string, std::string>;

class ChatRunTest : public RunFixture {
 protected:
  /// A file of tokens of bytes.
  void write_chat(const std::string& name, const std::vector<Turn>& turns) const {
    std::vector<std::uint32_t> tokens;
    for (const auto& [prompt, completion] : turns) {
      const std::size_t begin = tokens.size();
      for (const char c : prompt)
        tokens.push_back(static_cast<std::uint32_t>(c) | text::kNotLearnt);
      for (const char c : completion) tokens.push_back(static_cast<std::uint32_t>(c));
      tokens[begin] |= text::kBeginsText;
    }
    folder_.write_llmc(name, 20240801, text::kChatVersion, tokens);
  }
  static std::vector<Turn> many_turns() {
    std::vector<Turn> turns;
    for (int i = 0; i < 150; ++i)
      turns.emplace_back(
          fmt::format("q{}?", i % 37),
          std::string(static_cast<std::size_t>(1 + i % 9), static_cast<char>('a' + i % 7)) + ".");
    return turns;
  }
  v1::RunConfig on(const std::string& file, const MeshSize& m = {}) const {
    v1::RunConfig c = config();
    set_mesh(c, m);
    c.mutable_data()->set_path(file);
    return c;
  }
  /// The mean loss of the first weights on a file.
  LossSum loss_of(v1::RunConfig c, const std::string& file) const {
    c.mutable_data()->set_validation_path(file);
    c.mutable_validation()->set_interval(1);
    LossSum sum;
    testing::run_ranks(1, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      for (const LossSum& batch : create(world, context, c)->evaluate(0, 1000)) {
        sum.loss += batch.loss;
        sum.labels += batch.labels;
      }
    });
    return sum;
  }
  /// Of each token of a text but the first, by the losses of its beginnings as plain text.
  std::vector<double> token_losses(const std::string& text) const {
    std::vector<double> losses;
    double before = 0.0;
    for (std::size_t length = 2; length <= text.size(); ++length) {
      folder_.write_text("beginning.txt", text.substr(0, length));
      const LossSum sum = loss_of(config(), "beginning.txt");
      EXPECT_EQ(sum.labels, length - 1);
      losses.push_back(sum.loss - before);
      before = sum.loss;
    }
    return losses;
  }
};

TEST_F(ChatRunTest, TheLossIsTheMeanOverTheTokensThatAreLearnt) {
  const std::vector<Turn> turns = {
      {"ab?", "xyz."}, {"c", "."}, {"hello", ""}, {"", "all of it"}, {"1+1", "2"}};
  write_chat("few.bin", turns);
  double expected = 0.0;
  std::int64_t labels = 0;
  for (const auto& [prompt, completion] : turns) {
    const std::vector<double> losses = token_losses(prompt + completion);
    for (std::size_t i = std::max<std::size_t>(prompt.size(), 1);
         i < prompt.size() + completion.size(); ++i) {
      expected += losses[i - 1];
      ++labels;
    }
  }
  write_chat("train.bin", many_turns());
  for (const bool packs : {true, false}) {
    v1::RunConfig c = on("train.bin");
    c.mutable_data()->set_pack_documents(packs);
    const LossSum sum = loss_of(c, "few.bin");
    EXPECT_EQ(sum.labels, labels);
    EXPECT_NEAR(sum.loss, expected, 1e-5 * expected) << packs;
  }
}

TEST_F(ChatRunTest, EveryMeshTrainsAsOneRank) {
  write_chat("train.bin", many_turns());
  const Trace one = run_training(on("train.bin"), 1, 5);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const MeshSize& m :
       {MeshSize{2, 1, 1}, MeshSize{1, 3, 1}, MeshSize{1, 1, 2, true}, MeshSize{1, 1, 1, false, 2},
        MeshSize{1, 1, 1, false, 3}, MeshSize{1, 2, 1, false, 2}, MeshSize{2, 1, 2}})
    expect_close(run_training(on("train.bin", m), m.ranks(), 5), one);
}

TEST_F(ChatRunTest, TrainsOnBitwiseAfterAStop) {
  write_chat("train.bin", many_turns());
  for (const MeshSize& m : {MeshSize{}, MeshSize{1, 1, 1, false, 2}})
    expect_equal(run_training(on("train.bin", m), m.ranks(), 4, {2}),
                 run_training(on("train.bin", m), m.ranks(), 4));
}

TEST_F(ChatRunTest, TellsWhatALengthCutsAndLeavesOut) {
  std::vector<Turn> turns = many_turns();
  turns.emplace_back("q", std::string(30, 'z'));      // cut behind 17 tokens
  turns.emplace_back(std::string(40, 'q'), "never");  // cut before the answer
  turns.emplace_back("nothing", "");
  write_chat("train.bin", turns);
  v1::RunConfig c = on("train.bin");
  c.mutable_data()->set_validation_split(0.0);
  testing::run_ranks(1, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, c);
    ASSERT_TRUE(run->data_size().chat);
    EXPECT_EQ(*run->data_size().chat, (ChatCuts{2, (31 - 17) + (45 - 17), 2}));
  });
}

TEST_F(ChatRunTest, DataWithNothingToLearnAreRefused) {
  write_chat("train.bin", {{"only", ""}, {"questions", ""}});
  try {
    resolve_run_config(on("train.bin"), {.world_size = 1, .data_dir = folder_.path()});
    FAIL() << "taken";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("none of its"));
  }
}

}  // namespace
}  // namespace meshloom::train
