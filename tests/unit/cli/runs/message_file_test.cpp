// SPDX-License-Identifier: Apache-2.0
// Messages of the user's in JSON: read, refused with what is wrong, and written whole or not at
// all.
#include "daemon/cli/runs/message_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "daemon/cli/exit_code.h"
#include "tests/support/temp_folder.h"
#include "v1/step.pb.h"

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MessageFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) const {
    return folder_.write("values.json", text).string();
  }
  static std::string text_of(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static std::string refusal_of(const std::string& file) {
    v1::ParameterValues values;
    try {
      read_message_file(file, &values);
    } catch (const CliError& error) {
      EXPECT_EQ(error.code(), kUsage);
      return error.what();
    }
    return "nothing was refused";
  }
  static std::string output_refusal(const std::string& file) {
    try {
      const MessageOutput out(file);
    } catch (const CliError& error) {
      EXPECT_EQ(error.code(), kUsage);
      return error.what();
    }
    return "nothing was refused";
  }

  const test::TempFolder folder_;
};

v1::ParameterValues two_values() {
  v1::ParameterValues values;
  v1::ParameterValue& value = *values.add_parameters();
  value.set_name("a.weight");
  value.set_dtype("float32");
  value.add_shape(2);
  value.set_data(std::string("\0\0\x80\x3f\xff\0\0\xc0", 8));
  return values;
}

TEST_F(MessageFile, ComesBackAsItWasWritten) {
  const std::string file = (folder_ / "out.json").string();
  MessageOutput(file).write(two_values());
  EXPECT_THAT(text_of(file), HasSubstr("\"shape\":[\"2\"],\"data\":\"AACAP/8AAMA=\""));
  v1::ParameterValues read;
  read_message_file(file, &read);
  EXPECT_EQ(read.SerializeAsString(), two_values().SerializeAsString());
}

TEST_F(MessageFile, ReadsNumbersAndNamesAsPeopleWriteThem) {
  v1::LossBatch batch;
  read_message_file(
      write(R"({"data": [{"tokens": [1, 2], "targetsPerToken": 1}], "loss_config": {"beta": 0.5},
               "reduction": "LOSS_REDUCTION_TOKEN_MEAN"})"),
      &batch);
  EXPECT_EQ(batch.data(0).tokens(1), 2);
  EXPECT_EQ(batch.data(0).targets_per_token(), 1);
  EXPECT_EQ(batch.loss_config().at("beta"), 0.5);
  EXPECT_EQ(batch.reduction(), v1::LOSS_REDUCTION_TOKEN_MEAN);
}

TEST_F(MessageFile, MistakesNameTheFileAndWhatIsWrong) {
  EXPECT_THAT(
      refusal_of(write("{\"parameters\": [1 2]}")),
      HasSubstr("values.json: no ParameterValues in JSON: Expected , or ] after array value. "
                "Near: {\"parameters\": [1 2]}"));
  EXPECT_THAT(refusal_of(write("{\"parameters\": [")), Not(HasSubstr("\n")));
  EXPECT_THAT(refusal_of(write("{\"parametres\": []}")), HasSubstr("parametres"));
  EXPECT_THAT(refusal_of(write("{\"parameters\": [{\"shape\": [\"x\"]}]}")),
              HasSubstr("parameters[0].shape[0]"));
  EXPECT_THAT(refusal_of("/no/such/file"), HasSubstr("/no/such/file"));
  EXPECT_THAT(refusal_of(folder_.path().string()), HasSubstr("is a folder"));
}

TEST_F(MessageFile, WhatCannotBeWrittenToIsRefusedBeforeAnythingIsAsked) {
  EXPECT_THAT(output_refusal((folder_ / "no/such/out.json").string()), HasSubstr("out.json"));
  EXPECT_THAT(output_refusal(folder_.path().string()), HasSubstr("is not a regular file"));
  EXPECT_THAT(output_refusal("/dev/null"), HasSubstr("is not a regular file"));
}

TEST_F(MessageFile, AFileThatIsNotWrittenStaysAsItWas) {
  const std::string file = write("before");
  { const MessageOutput out(file); }
  EXPECT_EQ(text_of(file), "before");
}

TEST_F(MessageFile, ADashIsStandardOutput) {
  MessageOutput out("-");
  EXPECT_TRUE(out.is_standard_output());
  ::testing::internal::CaptureStdout();
  out.write(v1::ParameterValues());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "{}\n");
}

}  // namespace
}  // namespace meshloom::cli
