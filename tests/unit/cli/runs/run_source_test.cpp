// SPDX-License-Identifier: Apache-2.0
// What `run create` takes: a run's file, a job's, and settings over both.
#include "daemon/cli/runs/run_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/cli/exit_code.h"
#include "tests/support/temp_folder.h"

namespace meshloom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunSourceTest : public ::testing::Test {
 protected:
  RunSource read(const std::string& text) {
    folder_.write("run.yaml", text);
    return RunSource::read((folder_.path() / "run.yaml").string());
  }
  static std::string refusal(RunSource source, const std::string& setting) {
    try {
      source.set(setting);
    } catch (const CliError& error) {
      EXPECT_EQ(error.code(), kUsage);
      return error.what();
    }
    return "";
  }
  static v1::ErrorDetails refused(const std::string& field) {
    v1::ErrorDetails details;
    details.add_violations()->set_field(field);
    return details;
  }

  test::TempFolder folder_;
};

constexpr const char* kRun =
    "name: r\n"
    "lease_seconds: 60\n"
    "config:\n"
    "  model: {preset: gpt2_124m}\n"
    "  optimizer: {lr: 1.0e-3}\n";

TEST_F(RunSourceTest, SettingsStandOverTheFileAndAreTypedByTheSchema) {
  RunSource source = read(kRun);
  EXPECT_FALSE(source.is_job);
  for (const char* text : {"optimizer.lr=2e-3", "config.training.seed=4", "run.mesh.dp=2",
                           "lease_seconds=30", "dropout=true", "name=s", "state=runs/a/states/b"})
    source.set(text);
  EXPECT_DOUBLE_EQ(source.spec.config().optimizer().lr(), 2e-3);
  EXPECT_EQ(source.spec.config().training().seed(), 4u);
  EXPECT_EQ(source.spec.config().mesh().dp(), 2);
  EXPECT_EQ(source.spec.config().model().preset(), "gpt2_124m");
  EXPECT_EQ(source.spec.lease_seconds(), 30);
  EXPECT_TRUE(source.spec.dropout());
  EXPECT_EQ(source.spec.name(), "s");
  EXPECT_EQ(source.spec.state(), "runs/a/states/b");
}

TEST_F(RunSourceTest, WrongSettingsNameTheNearestAndWhatIsAJobs) {
  const RunSource source = read(kRun);
  EXPECT_THAT(refusal(source, "optimizer.lrr=1"), HasSubstr("did you mean \"lr\"?"));
  EXPECT_THAT(refusal(source, "learning_rate=1"), HasSubstr("here it is run.optimizer.lr"));
  EXPECT_THAT(refusal(source, "lease_seconds=long"),
              HasSubstr("lease_seconds=long: lease_seconds: "));
  EXPECT_THAT(refusal(source, "labels.a=b"), HasSubstr("\"labels.a\" is a job's"));
  EXPECT_THAT(refusal(source, "lr"), HasSubstr("FIELD=VALUE"));
}

TEST_F(RunSourceTest, ARefusalIsPlacedWhereTheFieldWasSet) {
  RunSource source = read(kRun);
  EXPECT_THAT(source.place_of(refused("run.optimizer.lr")), HasSubstr("run.yaml:5: "));
  EXPECT_THAT(source.place_of(refused("spec.lease_seconds")), HasSubstr("run.yaml:2: "));
  source.set("optimizer.lr=-1");
  EXPECT_EQ(source.place_of(refused("run.optimizer.lr")), "optimizer.lr=-1: ");
  EXPECT_EQ(source.place_of(v1::ErrorDetails()), "");
}

TEST_F(RunSourceTest, AJobsFileIsUnderstood) {
  const RunSource source = read(
      "name: j\n"
      "labels: {a: b}\n"
      "run:\n"
      "  model: {preset: gpt2_124m}\n"
      "  mesh: {tp: 2}\n"
      "  training: {steps: 10, global_batch_size: 4, seq_len: 64, seed: 3}\n"
      "  optimizer: {lr: 1.0e-3}\n"
      "  data: {path: text.txt}\n");
  EXPECT_TRUE(source.is_job);
  const v1::RunConfig& config = source.spec.config();
  EXPECT_EQ(source.spec.name(), "j");
  EXPECT_EQ(config.model().preset(), "gpt2_124m");
  EXPECT_EQ(config.mesh().tp(), 2);
  EXPECT_EQ(config.training().seq_len(), 64);
  EXPECT_EQ(config.training().seed(), 3u);
  EXPECT_EQ(config.training().steps(), 0);
  EXPECT_FALSE(config.has_data());
  EXPECT_THAT(source.left_out,
              ElementsAre("labels", "training.steps", "training.global_batch_size", "data"));
  EXPECT_THAT(source.place_of(refused("run.mesh.tp")), HasSubstr("run.yaml:5: "));
}

TEST_F(RunSourceTest, AJobsFileIsToldByItsKeysNotByItsLines) {
  EXPECT_TRUE(read(R"({"name": "j", "run": {"model": {"preset": "gpt2_124m"}}})").is_job);
  EXPECT_TRUE(read("\"run\" : {model: {preset: gpt2_124m}}\n").is_job);
  const RunSource of_run = read(
      "state: |-\n"
      "  a\n"
      "  b\n"
      "config: {model: {preset: gpt2_124m}}\n");
  EXPECT_FALSE(of_run.is_job);
  EXPECT_FALSE(read("config: {model: {name: \"a\n\nrun: b\"}}\n").is_job);
  EXPECT_FALSE(read("name: \"\nrun: b\"\nlease_seconds: 3\n").is_job);
}

TEST_F(RunSourceTest, MistakesInEitherFileAreToldWithTheirLine) {
  const auto error_of = [&](const std::string& text) -> std::string {
    try {
      read(text);
    } catch (const CliError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("run:\n  modle: {preset: a}\n"),
              HasSubstr("run.yaml:2: run: unknown key \"modle\"; did you mean \"model\"?"));
  EXPECT_THAT(error_of("config:\n  optimizer: {learning_rate: 1}\n"),
              HasSubstr("here it is config.optimizer.lr"));
  EXPECT_THAT(error_of("lease: 3\n"), HasSubstr("unknown key \"lease\""));
  EXPECT_THROW(RunSource::read("/nowhere.yaml"), CliError);
  EXPECT_THAT(read(kRun).left_out, IsEmpty());
}

}  // namespace
}  // namespace meshloom::cli
