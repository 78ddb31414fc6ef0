// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/token_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/train/data/text_job_test.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class TokenIdsTest : public TextJobTest {
 protected:
  void SetUp() override { write_model("model", 50); }
  std::string refusal(const v1::RunConfig& config, SoundLines& sound,
                      Clock::time_point until = Clock::now() + std::chrono::minutes(1)) const {
    try {
      check_files_of_tokens(config, 50, folder_.path(), until, sound);
    } catch (const Error& error) {
      return error.reason() + " " + error.what() + " " + error.metadata().at("field");
    }
    return "";
  }
};

TEST_F(TokenIdsTest, TheFirstThatTheModelHasNotIsNamed) {
  std::vector<std::uint16_t> tokens(1'000'000, 49);
  folder_.write_u16("good.bin", tokens);
  tokens[700'001] = 50;
  folder_.write_u16("bad.bin", tokens);
  v1::RunConfig given = config();
  given.mutable_data()->set_path("good.bin");
  SoundLines sound;
  EXPECT_EQ(refusal(given, sound), "");
  given.mutable_data()->set_validation_path("bad.bin");
  EXPECT_THAT(refusal(given, sound),
              AllOf(HasSubstr("TOKEN_OUT_OF_RANGE"), HasSubstr("token 50 at position 700001"),
                    HasSubstr("bad.bin"), HasSubstr("vocab_size 50"),
                    HasSubstr("run.data.validation_path")));
  given.mutable_data()->clear_validation_path();
  v1::ValidationSet& set = *given.mutable_validation()->add_sets();
  set.set_name("other");
  set.set_path("bad.bin");
  EXPECT_THAT(refusal(given, sound), HasSubstr("run.validation.sets[0].path"));
}

TEST_F(TokenIdsTest, AreReadForSoLongAndSoundFilesOnce) {
  folder_.write_u16("bad.bin", std::vector<std::uint16_t>(100, 60));
  v1::RunConfig given = config();
  given.mutable_data()->set_path("bad.bin");
  SoundLines sound;
  EXPECT_EQ(refusal(given, sound, Clock::now()), "") << "there is no time";
  EXPECT_NE(refusal(given, sound), "");
  folder_.write_u16("bad.bin", std::vector<std::uint16_t>(100, 6));
  EXPECT_EQ(refusal(given, sound), "");
  EXPECT_EQ(refusal(given, sound, Clock::now()), "");
  folder_.write_text("text/a.txt", "no file of tokens");
  given.mutable_data()->set_path("text");
  EXPECT_EQ(refusal(given, sound), "");
}

}  // namespace
}  // namespace meshloom::train
