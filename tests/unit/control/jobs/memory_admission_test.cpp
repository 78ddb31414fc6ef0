// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/memory_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "daemon/base/config.h"
#include "daemon/nn/models/presets.h"
#include "daemon/plan/job_memory.h"
#include "kernels/base/error.h"
#include "tests/support/source_folder.h"

namespace meshloom::control {
namespace {

using ::testing::HasSubstr;

/// A resolved config of gpt2_124m.
v1::RunConfig config(int dp, std::int64_t micro_batch) {
  v1::RunConfig run;
  run.mutable_mesh()->set_dp(dp);
  run.mutable_plan()->set_dtype("float32");
  run.mutable_training()->set_steps(1);
  run.mutable_training()->set_global_batch_size(64);
  run.mutable_training()->set_micro_batch_size(micro_batch);
  run.mutable_training()->set_seq_len(1024);
  return run;
}

class MemoryAdmissionTest : public ::testing::Test {
 protected:
  /// Two ranks on the first host and one on the other, with so many times the memory that they
  /// need.
  MemoryAdmission admission(double own, double other = 100.0) {
    const auto limit = [this](double times) {
      return base::MemoryLimit{static_cast<std::int64_t>(times * rank_bytes()), "cgroup limit"};
    };
    return MemoryAdmission({{"here", 2, {}}, {"there", 1, limit(other)}},
                           [bytes = limit(2 * own)] { return bytes; });
  }
  double rank_bytes() const {
    return static_cast<double>(plan::estimate_job_memory(run_, model_).total());
  }
  std::string note(const MemoryAdmission& admission, bool overcommit = false) const {
    return admission.check_job(run_, model_, overcommit).value_or("none");
  }
  Error refusal(const MemoryAdmission& admission) const {
    try {
      admission.check_job(run_, model_, false);
    } catch (const ResourceExhausted& error) {
      return error;
    }
    ADD_FAILURE() << "the job was taken";
    return InternalError("");
  }

  nn::ModelConfig model_ = nn::preset_config("gpt2_124m");
  v1::RunConfig run_ = config(3, 8);
};

TEST_F(MemoryAdmissionTest, AJobIsTakenWithANoteWhereItTakesMostOfAHost) {
  EXPECT_EQ(note(admission(1.3)), "none");
  EXPECT_THAT(note(admission(1.2)), HasSubstr("host here, 83 % of its"));
  EXPECT_THAT(note(admission(1.01)), HasSubstr("99 % of its"));
  EXPECT_THAT(note(admission(2.0, 1.1)), HasSubstr("host there, 91 %"));
}

TEST_F(MemoryAdmissionTest, AJobThatNeedsMoreThanAHostHasIsRefusedWithItsParts) {
  const Error error = refusal(admission(0.9));
  EXPECT_EQ(error.reason(), kMemoryEstimate);
  EXPECT_EQ(error.metadata().at("field"), "run.training.micro_batch_size");
  EXPECT_EQ(error.metadata().at("needed_bytes"), fmt::format("{:.0f}", 2 * rank_bytes()));
  EXPECT_EQ(error.metadata().at("optimizer_bytes"),
            std::to_string(8 * nn::parameter_count(model_)));
  EXPECT_THAT(error.what(), HasSubstr("111 % of its"));
  EXPECT_THAT(error.what(), HasSubstr("2 ranks of"));
  EXPECT_THAT(error.what(), HasSubstr("overcommit: true"));
  EXPECT_EQ(refusal(admission(2.0, 0.5)).metadata().at("host"), "there");
  EXPECT_THAT(note(admission(0.9), true), HasSubstr("overcommit: "));
}

TEST_F(MemoryAdmissionTest, TheFieldToChangeIsThatOfTheLargestPart) {
  const auto field = [&] { return refusal(admission(0.5)).metadata().at("field"); };
  run_ = config(3, 1);
  run_.mutable_training()->set_seq_len(64);
  EXPECT_EQ(field(), "run.mesh.fsdp");
  run_.mutable_mesh()->set_dp(1);
  EXPECT_EQ(field(), "run.model");
  run_ = config(1, 1);
  model_ = nn::preset_config("byte_gpt_tiny");
  model_.max_position_embeddings = 1 << 16;
  run_.mutable_training()->set_seq_len(1 << 16);
  EXPECT_EQ(field(), "run.plan.activation_checkpoint");
  run_.mutable_plan()->set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_FULL);
  EXPECT_EQ(field(), "run.training.seq_len");
}

TEST_F(MemoryAdmissionTest, ModelsThatAreLoadedForGenerationCountWhileTheyAreHeld) {
  MemoryAdmission tight = admission(1.3);
  const auto weights = static_cast<std::int64_t>(0.4 * rank_bytes());
  const auto job = static_cast<std::int64_t>(rank_bytes());
  auto held = tight.hold_source(weights, job);
  EXPECT_THAT(note(tight), HasSubstr("loaded for generation"));
  EXPECT_THROW(tight.hold_source(weights, job), ResourceExhausted);
  auto more = tight.hold_source(weights, 0);
  EXPECT_EQ(std::stoll(refusal(admission(0.5)).metadata().at("generation_bytes")), 0);
  auto third = tight.hold_source(weights, 0);
  EXPECT_EQ(std::stoll(refusal(tight).metadata().at("generation_bytes")), 3 * weights);
  held.release();
  more.release();
  third.release();
  EXPECT_EQ(note(tight), "none");
  EXPECT_NO_THROW(tight.hold_source(weights, job));
}

TEST_F(MemoryAdmissionTest, CachesOfSequencesAreCountedBesideTheJob) {
  MemoryAdmission tight = admission(1.3);
  const auto job = static_cast<std::int64_t>(rank_bytes());
  const auto third = static_cast<std::int64_t>(0.3 * rank_bytes());
  auto held = tight.hold_cache({8, third / 2, 1}, {job});
  try {
    tight.hold_cache({9, third, 5}, {job});
    ADD_FAILURE() << "nothing was refused";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), kMemoryEstimate);
    EXPECT_THAT(error.what(), HasSubstr("the keys and values of 9 sequences take"));
    EXPECT_EQ(std::stoll(error.metadata().at("generation_bytes")), third / 2);
  }
  EXPECT_THROW(tight.hold_source(third * 9, job), ResourceExhausted);
  held.release();
  EXPECT_NO_THROW(tight.hold_cache({9, third / 2, 1}, {job}));
  EXPECT_NO_THROW(tight.hold_cache({9, third / 2, 1}, {100 * job})) << "a job with overcommit";
  EXPECT_THROW(tight.hold_cache({9, 20 * third, 1}, {100 * job}), ResourceExhausted);
}

TEST_F(MemoryAdmissionTest, AHostWhoseMemoryIsNotKnownTakesEverything) {
  MemoryAdmission unknown({{"here", 2, {}}}, [] { return base::MemoryLimit(); });
  EXPECT_EQ(note(unknown), "none");
  EXPECT_NO_THROW(unknown.hold_source(std::int64_t{1} << 50, 0));
}

TEST_F(MemoryAdmissionTest, EveryJobOfConfigsFitsAHostOf8GiB) {
  const MemoryAdmission host({{"here", 2, {}}}, [] {
    return base::MemoryLimit{std::int64_t{8} << 30, "MemTotal"};
  });
  int jobs = 0;
  for (const auto& file : std::filesystem::directory_iterator(test::source_file("configs/jobs"))) {
    if (file.path().extension() != ".yaml") continue;
    run_ = base::load_job_file(file.path()).spec.run();
    const std::string preset = run_.model().preset();
    model_ = nn::preset_config(preset.empty() ? "byte_gpt_10m" : preset);
    run_.mutable_mesh()->set_dp(2);
    run_.mutable_plan()->set_dtype("float32");
    auto& training = *run_.mutable_training();
    if (training.seq_len() == 0) training.set_seq_len(model_.max_position_embeddings);
    if (training.micro_batch_size() == 0)
      training.set_micro_batch_size((training.global_batch_size() + 1) / 2);
    EXPECT_EQ(note(host), "none") << file.path();
    ++jobs;
  }
  EXPECT_GE(jobs, 4);
}

TEST_F(MemoryAdmissionTest, DataOfVerbsAreCountedOnceForEachRankAndOnceMore) {
  MemoryAdmission tight = admission(1.3);
  const auto job = static_cast<std::int64_t>(rank_bytes());
  const auto data = static_cast<std::int64_t>(0.15 * rank_bytes());
  const auto first = tight.hold_upload(data, job);
  EXPECT_THROW(tight.hold_upload(data, job), ResourceExhausted);
  const auto second = tight.hold_upload(data, 0);
  EXPECT_EQ(std::stoll(refusal(tight).metadata().at("generation_bytes")), 2 * 3 * data);
}

/// Three ranks on two devices of a host, so that two of them share the first one.
class DeviceAdmissionTest : public MemoryAdmissionTest {
 protected:
  DeviceAdmissionTest() { run_.set_device("cuda"); }
  planner::MemoryEstimate estimate() const { return plan::estimate_job_memory(run_, model_); }
  std::int64_t tensors() const { return plan::on_device(estimate()).total(); }
  std::int64_t beside() const { return plan::beside_device(estimate()).total(); }
  /// A device has so many times the tensors of a rank, the host so many times the rest of it.
  MemoryAdmission admission(double device, double host = 100.0) const {
    const auto bytes = static_cast<std::int64_t>(device * static_cast<double>(tensors()));
    const base::MemoryLimit limit{static_cast<std::int64_t>(host * static_cast<double>(beside())),
                                  "cgroup limit"};
    return MemoryAdmission({{"here", 3, {}}}, [limit] { return limit; },
                           {{"here", 3, {{0, "x", bytes}, {1, "x", bytes}}}});
  }
};

TEST_F(DeviceAdmissionTest, TheTensorsOfTheRanksThatShareADeviceAreCountedTogether) {
  EXPECT_EQ(tensors(), estimate().tensors());
  EXPECT_EQ(beside(), estimate().process + estimate().staged);
  EXPECT_EQ(note(admission(2.6)), "none");
  EXPECT_THAT(note(admission(2.2)), HasSubstr("of cuda:0 of host here, 91 % of its"));
  const Error error = refusal(admission(1.9));
  EXPECT_EQ(error.reason(), kMemoryEstimate);
  EXPECT_THAT(error.what(), HasSubstr("of cuda:0 of host here, 105 % of its"));
  EXPECT_THAT(error.what(), HasSubstr("(device memory): 2 ranks of"));
  EXPECT_EQ(std::string(error.what()).find("process"), std::string::npos) << error.what();
  EXPECT_EQ(error.metadata().at("device"), "cuda:0");
  EXPECT_EQ(error.metadata().at("host"), "here");
  EXPECT_EQ(error.metadata().at("rank_bytes"), std::to_string(tensors()));
  EXPECT_THAT(note(admission(1.9), true), HasSubstr("overcommit: "));
  run_.set_device("cuda:1");
  EXPECT_THAT(refusal(admission(2.6)).what(), HasSubstr("of cuda:1 of host here, 115 % of its"));
  run_.set_device("cpu");
  EXPECT_THAT(refusal(admission(2.6, 1.0)).what(), HasSubstr("of host here"));
}

TEST_F(DeviceAdmissionTest, TheProcessesAndWhatTheyStageAreTheHosts) {
  EXPECT_EQ(note(admission(2.6, 4.0)), "none");
  const Error error = refusal(admission(2.6, 2.9));
  EXPECT_THAT(error.what(), HasSubstr("of host here, 103 % of its"));
  EXPECT_THAT(error.what(), HasSubstr("process"));
  EXPECT_EQ(error.metadata().at("field"), "run.device");
  EXPECT_EQ(error.metadata().at("rank_bytes"), std::to_string(beside()));
  EXPECT_FALSE(error.metadata().contains("device"));
}

TEST_F(DeviceAdmissionTest, WhatIsDrawnOnDevicesIsCountedThere) {
  MemoryAdmission tight = admission(2.6, 1000.0);
  const RankBytes job{beside(), tensors()};
  const std::int64_t tenth = tensors() / 10;
  CacheNeed need{4, 4 * tenth, 1, 2, "cuda"};  // of two ranks of tp
  auto held = tight.hold_cache(need, job);     // 2 x (1.0 + 0.2) of 2.6
  EXPECT_THAT(note(tight), HasSubstr("loaded for generation"));
  try {
    tight.hold_cache(need, job);
    ADD_FAILURE() << "nothing was refused";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.metadata().at("device"), "cuda:0");
    EXPECT_THAT(error.what(), HasSubstr("the keys and values of 4 sequences take"));
    EXPECT_THAT(error.what(), HasSubstr("cuda:0 of host here has"));
  }
  EXPECT_THROW(tight.hold_weights(2 * tenth, "cuda", job), ResourceExhausted);
  EXPECT_NO_THROW(tight.hold_weights(2 * tenth, "cpu", job)) << "the host has room";
  held.release();
  EXPECT_NO_THROW(tight.hold_weights(2 * tenth, "cuda", job));
}

TEST_F(DeviceAdmissionTest, AMicroBatchIsChosenByWhatLiesOnTheDevice) {
  run_.mutable_training()->set_micro_batch_size(22);
  const std::int64_t all = tensors();
  v1::RunConfig same = run_;
  EXPECT_FALSE(choose_micro_batch(&same, model_, all)) << "the process is not there";
  const auto note = choose_micro_batch(&run_, model_, all - 1);
  ASSERT_TRUE(note);
  EXPECT_THAT(*note, HasSubstr("that a rank may use of its device"));
  EXPECT_EQ(run_.training().micro_batch_size(), 11);
}

}  // namespace
}  // namespace meshloom::control
