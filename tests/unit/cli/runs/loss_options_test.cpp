// SPDX-License-Identifier: Apache-2.0
// What forward-backward and forward send, from their options and from a batch in JSON.
#include "daemon/cli/runs/loss_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/cli/exit_code.h"
#include "tests/support/temp_folder.h"

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;

class LossLine : public ::testing::Test {
 protected:
  v1::LossBatch batch(const std::string& line) {
    CLI::App app;
    LossOptions options;
    add_loss_options(app, options);
    app.parse(line);
    return options.batch();
  }
  std::string refusal_of(const std::string& line) {
    try {
      batch(line);
    } catch (const CliError& error) {
      EXPECT_EQ(error.code(), kUsage);
      return error.what();
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  std::string write(const std::string& text) const {
    return folder_.write("batch.json", text).string();
  }

  const test::TempFolder folder_;
};

TEST_F(LossLine, NamesSamplesOfTheDaemonsData) {
  const v1::LossBatch plain = batch("--data text.txt");
  EXPECT_EQ(plain.loss(), "cross_entropy");
  EXPECT_EQ(plain.reduction(), v1::LOSS_REDUCTION_UNSPECIFIED) << "the daemon's default";
  EXPECT_EQ(plain.reference().samples(), 1);
  const v1::LossBatch full = batch(
      "--data a/b --samples 3 --first 4 --epoch 1 --seq 16 --document-mask --reduction token_mean "
      "--tokens 48 --micro-batch 2");
  EXPECT_EQ(full.reference().data().path(), "a/b");
  EXPECT_TRUE(full.reference().data().document_mask());
  EXPECT_EQ(full.reference().samples(), 3);
  EXPECT_EQ(full.reference().first_sample(), 4);
  EXPECT_EQ(full.reference().epoch(), 1);
  EXPECT_EQ(full.reference().seq_len(), 16);
  EXPECT_EQ(full.reduction(), v1::LOSS_REDUCTION_TOKEN_MEAN);
  EXPECT_EQ(full.tokens(), 48);
  EXPECT_EQ(full.micro_batch_size(), 2);
}

TEST_F(LossLine, TakesABatchFromAFileAndWhatTheLineSaysInItsPlace) {
  const std::string file =
      write(R"({"data": [{"tokens": [1, 2], "targets": [2, 3], "logprobs": [-1, -2]}],
              "loss": "ppo", "loss_config": {"clip_low_threshold": 0.5}, "tokens": 7})");
  const v1::LossBatch read = batch("--batch " + file);
  EXPECT_EQ(read.data(0).targets(1), 3);
  EXPECT_EQ(read.loss(), "ppo");
  EXPECT_EQ(read.tokens(), 7);
  EXPECT_FALSE(read.has_reference());
  const v1::LossBatch changed =
      batch("--batch " + file + " --loss gspo --loss-config clip_high_threshold=1.5 --tokens 0");
  EXPECT_EQ(changed.loss(), "gspo");
  EXPECT_EQ(changed.tokens(), 0);
  EXPECT_EQ(changed.loss_config().at("clip_low_threshold"), 0.5);
  EXPECT_EQ(changed.loss_config().at("clip_high_threshold"), 1.5);
  EXPECT_EQ(batch("--batch " + write(R"({"reference": {"samples": 1}})")).loss(), "cross_entropy");
}

TEST_F(LossLine, MistakesAreNamed) {
  EXPECT_THAT(refusal_of(""), HasSubstr("--data,--batch"));
  EXPECT_THAT(refusal_of("--data a --batch b"), HasSubstr("--data,--batch"));
  EXPECT_THAT(refusal_of("--batch b --samples 3"), HasSubstr("--samples requires --data"));
  EXPECT_THAT(refusal_of("--batch b --document-mask"), HasSubstr("requires --data"));
  EXPECT_THAT(refusal_of("--data a --samples 0"), HasSubstr("--samples: is 0"));
  EXPECT_THAT(refusal_of("--data a --loss ppoo"), HasSubstr("ppoo not in {cross_entropy,"));
  EXPECT_THAT(refusal_of("--data a --reduction mean"), HasSubstr("mean not in {sum,token_mean}"));
  EXPECT_THAT(refusal_of("--data a --loss-config beta"), HasSubstr("is not of the form KEY=VALUE"));
  EXPECT_THAT(refusal_of("--data a --loss-config beat=1"), HasSubstr("did you mean \"beta\"?"));
  for (const char* number : {"", "x", "1x", "nan", "inf"})
    EXPECT_THAT(refusal_of(std::string("--data a --loss-config beta=") + number),
                HasSubstr("is not a finite number"));
  EXPECT_THAT(refusal_of("--batch " + write("{\"loss\": \"ppo\"}")),
              HasSubstr("has neither data nor a reference"));
  EXPECT_THAT(refusal_of("--batch " + write("{\"data\": [{\"tokens\": [1.5]}]}")),
              HasSubstr("data[0].tokens[0]"));
}

}  // namespace
}  // namespace meshloom::cli
