// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "daemon/base/peak_flops.h"
#include "daemon/base/unique_fd.h"
#include "daemon/comm/process_group.h"
#include "daemon/control/stores/found_damage.h"
#include "daemon/plan/job_memory.h"
#include "daemon/train/config/refit.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/checkpoint_writer.h"
#include "daemon/train/run/run.h"
#include "kernels/backend_table.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/open_job_store.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LocalAdmissionTest : public ::testing::Test {
 protected:
  LocalAdmissionTest() {
    std::ofstream(data_.path() / "config.json") << testing::tiny_gpt2_config();
    std::ofstream(data_.path() / "text.txt") << std::string(2000, 'a');
  }
  LocalAdmission admission(int ranks, std::int64_t rank_bytes = 1 << 30) {
    return LocalAdmission(store_, state_,
                          {.world_size = ranks,
                           .data_dir = data_.path(),
                           .hosts = {{"here", ranks, {ranks * rank_bytes, "a limit"}}}});
  }
  /// A Hugging Face folder of the tiny model, `prefix` before the name of each tensor.
  static void write_model(const std::filesystem::path& folder, const std::string& prefix = {}) {
    ExecutionContext context;
    const nn::ModelConfig config = nn::parse_hf_config(testing::tiny_gpt2_config());
    std::vector<train::NamedTensor> tensors;
    const auto model = nn::make_model(context, config, DType::kFloat32);
    for (const nn::NamedParameter& p : model->named_parameters())
      tensors.push_back(
          {prefix + p.name, zeros(context, p.parameter->value.shape(), DType::kFloat32)});
    train::save_hf_folder(folder, config, tensors);
  }
  static v1::JobSpec job(int tp) {
    v1::JobSpec spec;
    v1::RunConfig& run = *spec.mutable_run();
    run.mutable_model()->set_config("config.json");
    run.mutable_data()->set_path("text.txt");
    run.mutable_training()->set_steps(1);
    run.mutable_training()->set_global_batch_size(2);
    run.mutable_mesh()->set_tp(tp);
    return spec;
  }

  const test::TempFolder data_;
  const test::TempFolder folder_;
  StateDir state_{folder_.path() / "state"};
  OpenJobStore store_{state_.journal(), {state_.jobs()}};
};

TEST_F(LocalAdmissionTest, AJobIsResolvedAndItsDoubtsAreTold) {
  auto three_ranks = admission(3);
  const Admitted admitted = three_ranks.resolver().admit(job(3));
  EXPECT_EQ(admitted.resolved.mesh().tp(), 3);
  EXPECT_GT(admitted.resolved.training().seq_len(), 0);
  EXPECT_THAT(admitted.warnings, ElementsAre(HasSubstr("3 ranks share 2 attention heads")));
}

TEST_F(LocalAdmissionTest, ALineWithoutTextIsRefusedAtSubmissionWhereverItIs) {
  std::ofstream lines(data_.path() / "lines.jsonl");
  for (int i = 0; i < 300; ++i) lines << R"({"text": ")" << std::string(1000, 'x') << "\"}\n";
  lines << "{\"text\": null}\n";
  lines.close();
  auto here = admission(1);
  v1::JobSpec spec = job(1);
  spec.mutable_run()->mutable_data()->set_path("lines.jsonl");
  try {
    here.resolver().admit(spec);
    ADD_FAILURE() << "taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.reason(), "NO_FIELD");
    EXPECT_THAT(error.what(), HasSubstr("lines.jsonl:301: there is no text under \"text\""));
  }
  spec.mutable_run()->mutable_data()->set_skip_lines_without_text(true);
  EXPECT_TRUE(here.resolver().admit(spec).resolved.data().skip_lines_without_text());
}

TEST_F(LocalAdmissionTest, AnExportThatAJobNamesByItsPathIsHeldUntilTheJobIsThere) {
  std::filesystem::create_directory_symlink(state_.root(), data_.path() / "state");
  v1::JobSpec source = job(1);
  source.set_name("source");
  store_.submit(source, source.run(), {});
  store_.cancel("source", {});
  const auto folder = state_.job("source") / "hf";
  std::filesystem::create_directories(folder);
  write_model(folder);
  v1::JobSpec spec = job(1);
  spec.mutable_run()->mutable_model()->set_hf_folder("state/jobs/source/hf");
  spec.mutable_run()->mutable_model()->clear_config();
  const auto options_of_data =
      LocalResources{.world_size = 1,
                     .data_dir = data_.path().string() + ":" + state_.root().string(),
                     .hosts = {{"here", 1, {1 << 30, "a limit"}}}};
  LocalAdmission here(store_, state_, options_of_data);
  std::optional<Admitted> admitted = here.resolver().admit(spec);
  EXPECT_THROW(store_.remove("source", {}), JobInUse);
  admitted.reset();
  EXPECT_NO_THROW(store_.remove("source", {}));
}

TEST_F(LocalAdmissionTest, WeightsThatAreNotTheModelsAreRefusedWhateverReadsThem) {
  write_model(data_.path() / "good");
  write_model(data_.path() / "wrapped", "_orig_mod.");
  auto here = admission(1);
  const auto refusal = [&](const std::function<void()>& submit) -> std::string {
    try {
      submit();
      return "taken";
    } catch (const Error& error) {
      return error.metadata().at("field") + ": " + error.what();
    }
  };
  const auto run_of = [](const v1::JobSpec& spec) {
    v1::RunSpec run;
    *run.mutable_config()->mutable_model() = spec.run().model();
    return run;
  };
  for (const std::string name : {"good", "wrapped"}) {
    v1::JobSpec spec = job(1);
    spec.mutable_run()->mutable_model()->clear_config();
    spec.mutable_run()->mutable_model()->set_hf_folder(name);
    v1::RunConfig evaluated = spec.run();
    evaluated.mutable_model()->clear_hf_folder();
    evaluated.mutable_model()->set_name("evaluated");
    const ::testing::Matcher<std::string> taken = ::testing::StrEq("taken"),
                                          named = HasSubstr("\"_orig_mod.\"");
    const auto& wanted = name == "good" ? taken : named;
    EXPECT_THAT(refusal([&] { here.resolver().admit(spec); }), wanted);
    EXPECT_THAT(refusal([&] { here.resolver().admit_run(run_of(spec)); }), wanted);
    EXPECT_THAT(
        refusal([&] { here.resolver().resolve_evaluation(evaluated, data_.path() / name, {}); }),
        wanted);
  }
}

TEST_F(LocalAdmissionTest, AnOpenMicroBatchIsTheLargestEvenPartThatFits) {
  v1::JobSpec spec = job(1);
  spec.mutable_run()->mutable_training()->set_global_batch_size(7);
  const auto bytes_of = [&](std::int64_t samples) {
    v1::JobSpec given = spec;
    given.mutable_run()->mutable_training()->set_micro_batch_size(samples);
    auto roomy = admission(1);
    const v1::RunConfig resolved = roomy.resolver().admit(given).resolved;
    return plan::estimate_job_memory(resolved,
                                     train::load_model_config(resolved.model(), data_.path(), {}))
        .total();
  };
  const auto chosen = [&](std::int64_t bytes, bool overcommit = false) {
    spec.set_overcommit(overcommit);
    auto tight = admission(1, bytes);
    const Admitted admitted = tight.resolver().admit(spec);
    const std::int64_t samples = admitted.resolved.training().micro_batch_size();
    const bool told = std::any_of(
        admitted.warnings.begin(), admitted.warnings.end(), [](const std::string& warning) {
          return warning.find("run.training.micro_batch_size: ") != std::string::npos;
        });
    EXPECT_EQ(told, samples < 7) << samples;
    return samples;
  };
  EXPECT_EQ(chosen(1 << 30), 7) << "as without a limit";
  EXPECT_EQ(chosen(bytes_of(7)), 7);
  // Parts of 7 samples are 4 (and 3), 3 (and 3 and 1), 2 and 1: never 6 or 5.
  EXPECT_EQ(chosen(bytes_of(7) - 1), 4);
  EXPECT_EQ(chosen(bytes_of(4)), 4);
  EXPECT_EQ(chosen(bytes_of(4) - 1), 3);
  EXPECT_EQ(chosen(bytes_of(2) - 1), 1);
  EXPECT_EQ(chosen(bytes_of(1) - 1, true), 7) << "who overcommits gets what was asked for";
  EXPECT_EQ(chosen(bytes_of(1) - 1), 1) << "what MemoryAdmission then refuses";
}

TEST_F(LocalAdmissionTest, DamageThatAGenerationFindsIsRememberedOfAJobsCheckpointAlone) {
  ExecutionContext context;
  train::Manifest manifest;
  manifest.step = 3;
  manifest.compute = {"avx2", "1", 1, 1, "", ""};
  manifest.model_config = testing::tiny_gpt2_config();
  manifest.run_config = R"({"training": {"steps": "20"}})";
  const std::vector<train::StateTensor> state = {
      {"model.tensor", zeros(context, {100}, DType::kFloat32)}};
  const auto world = comm::make_single_process_group();
  auto here = admission(1);
  for (const auto& checkpoints : {state_.checkpoints("source"), folder_ / "elsewhere"}) {
    const auto folder =
        train::write_checkpoint(*world, {.directory = checkpoints}, manifest, state);
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-1, std::ios::end);
      file.put('!');
    }
    EXPECT_THROW(here.sources().load(folder), DataLoss);
    const bool is_of_job = checkpoints == state_.checkpoints("source");
    EXPECT_EQ(remembered_damage(folder).empty(), !is_of_job) << folder;
  }
}

TEST_F(LocalAdmissionTest, WhatWasMeasuredIsThePeakOfJobsThatGiveNone) {
  auto one_rank = admission(1);
  EXPECT_EQ(one_rank.resolver().measured_peak_flops(one_rank.resolver().admit(job(1)).resolved),
            0.0);
  const std::string here = kernels::backend_for(kCpuDevice).describe().compute_class;
  base::write_peak_flops(state_.root(), {here, 1, 4e10, 7e10});
  v1::JobSpec spec = job(1);
  spec.mutable_run()->mutable_plan()->set_dtype("bfloat16");
  const v1::RunConfig resolved = one_rank.resolver().admit(spec).resolved;
  EXPECT_EQ(one_rank.resolver().measured_peak_flops(resolved), 7e10);
  EXPECT_EQ(resolved.training().peak_flops(), 0.0) << "a config is carried to other hosts";
  spec.mutable_run()->mutable_training()->set_peak_flops(1e9);
  EXPECT_EQ(one_rank.resolver().admit(spec).resolved.training().peak_flops(), 1e9);
}

TEST_F(LocalAdmissionTest, AWrongJobIsRefusedWithItsField) {
  auto one_rank = admission(1);
  v1::JobSpec spec = job(1);
  spec.mutable_run()->mutable_training()->set_steps(-1);
  try {
    one_rank.resolver().admit(spec);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.metadata().at("field"), "run.training.steps");
  }
}

TEST_F(LocalAdmissionTest, AnUnknownKeyOfAConfigIsRefusedAndBesideWeightsTold) {
  const std::string unknown =
      std::string(R"({"n_embed": 64, )") + testing::tiny_gpt2_config().substr(1);
  v1::JobSpec spec = job(1);
  ExecutionContext context;
  const auto model = nn::make_model(context, nn::parse_hf_config(unknown), DType::kFloat32);
  nn::initialize_parameters(*model, 1);
  train::save_hf_folder(data_.path() / "hf", *model);
  std::ofstream(data_.path() / "config.json") << unknown;
  std::ofstream(data_.path() / "hf/config.json") << unknown;
  auto one_rank = admission(1);
  try {
    one_rank.resolver().admit(spec);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.metadata().at("field"), "run.model.config");
    EXPECT_THAT(error.what(), HasSubstr("n_embed is no key of GPT2LMHeadModel (did you mean "
                                        "hidden_size?)"));
  }
  EXPECT_THROW(one_rank.folders().model_config(spec.run().model()), InvalidArgument) << "of a plan";
  spec.mutable_run()->mutable_model()->clear_config();
  spec.mutable_run()->mutable_model()->set_hf_folder("hf");
  EXPECT_THAT(one_rank.resolver().admit(spec).warnings,
              ElementsAre(HasSubstr("n_embed (hidden_size?)")));
  EXPECT_NO_THROW(one_rank.folders().model_config(spec.run().model()));
}

TEST_F(LocalAdmissionTest, AJobOnADeviceIsMeasuredByIt) {
  const auto on_devices = [&](std::int64_t device_bytes) {
    return LocalAdmission(
        store_, state_,
        {.world_size = 2,
         .data_dir = data_.path(),
         .hosts = {{"here", 2, {std::int64_t{2} << 30, "a limit"}}},
         .devices = {{"here", 2, {{0, "x", device_bytes}, {1, "x", device_bytes}}}}});
  };
  auto roomy = on_devices(1 << 30);
  const Admitted admitted = roomy.resolver().admit(job(1));
  EXPECT_EQ(admitted.resolved.device(), "cuda");
  EXPECT_TRUE(roomy.resolver().has_device("cuda:1"));
  EXPECT_FALSE(roomy.resolver().has_device("cuda:2"));
  const std::string device_class =
      kernels::backend_for({DeviceKind::kCuda, 0}).describe().compute_class;
  base::write_peak_flops(state_.root(), {device_class, 1, 4e13, 7e13});
  v1::RunConfig in_float = admitted.resolved;
  in_float.mutable_plan()->set_dtype("float32");
  EXPECT_EQ(roomy.resolver().measured_peak_flops(in_float), 4e13);
  in_float.set_device("cpu");
  EXPECT_EQ(roomy.resolver().measured_peak_flops(in_float), 0.0) << "that is another class";
  std::vector<std::string> doubts;
  const v1::PlanEstimate estimate = roomy.resolver().estimate(admitted.resolved, &doubts);
  EXPECT_GT(estimate.memory().total(), 0);
  EXPECT_FALSE(estimate.has_seconds()) << "rates are those of the CPU";
  EXPECT_EQ(estimate.memory().process(), 0) << "that is on the host";
  EXPECT_EQ(estimate.memory_limit_bytes(), 1 << 30);
  EXPECT_TRUE(estimate.fits());
  EXPECT_THAT(doubts, ElementsAre(HasSubstr("run.device: there is no estimate")));
  auto small = on_devices(1 << 10);
  const v1::PlanEstimate tight = small.resolver().estimate(admitted.resolved, &doubts);
  EXPECT_EQ(tight.memory_limit_bytes(), 1 << 10);
  EXPECT_FALSE(tight.fits());
  try {
    small.resolver().admit(job(1));
    ADD_FAILURE() << "taken";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.metadata().at("device"), "cuda:0");
  }
  v1::JobSpec on_cpu = job(1);
  on_cpu.mutable_run()->set_device("cpu");
  EXPECT_EQ(small.resolver().admit(on_cpu).resolved.device(), "cpu");
}

TEST_F(LocalAdmissionTest, ADeviceThatIsGoneIsFoundWhenAJobBegins) {
  v1::Job taken;
  *taken.mutable_spec() = job(2);
  LocalAdmission on_devices(store_, state_,
                            {.world_size = 2,
                             .data_dir = data_.path(),
                             .hosts = {{"here", 2, {std::int64_t{2} << 30, "a limit"}}},
                             .devices = {{"here", 2, {{0, "x", 1 << 30}}}}});
  *taken.mutable_resolved() = on_devices.resolver().admit(taken.spec()).resolved;
  EXPECT_FALSE(on_devices.resolver().refit(taken));
  auto without = admission(2);
  EXPECT_EQ(without.resolver().refit(taken).value().device(), "cpu");
  taken.mutable_spec()->mutable_run()->set_device("cuda");
  EXPECT_THROW(without.resolver().refit(taken), train::NeedsOtherDevices);
  EXPECT_THROW(without.resolver().admit(taken.spec()), train::NeedsOtherDevices);
}

/// How often the file is opened while `body` runs.
int opens_of(const std::filesystem::path& file, const std::function<void()>& body) {
  const base::UniqueFd events(::inotify_init1(IN_NONBLOCK));
  // With the ends, since equal events that follow each other count as one.
  EXPECT_GE(::inotify_add_watch(events.get(), file.c_str(), IN_OPEN | IN_CLOSE_NOWRITE), 0);
  body();
  int opens = 0;
  inotify_event event{};
  while (::read(events.get(), &event, sizeof event) == sizeof event)
    if ((event.mask & IN_OPEN) != 0) ++opens;
  return opens;
}

TEST_F(LocalAdmissionTest, APlanIsCheckedOnce) {
  auto one_rank = admission(1);
  // Once to look for what is missing, once to resolve the job, plan and all, and once to estimate
  // its memory.
  EXPECT_EQ(opens_of(data_.path() / "config.json", [&] { one_rank.resolver().admit(job(1)); }), 3);
}

TEST_F(LocalAdmissionTest, AJobOfOtherRanksIsToldFromAWrongOne) {
  v1::Job taken;
  *taken.mutable_spec() = job(2);
  *taken.mutable_resolved() = admission(2).resolver().admit(taken.spec()).resolved;
  auto two_ranks = admission(2);
  EXPECT_FALSE(two_ranks.resolver().refit(taken)) << "it fits as it is";
  auto one_rank = admission(1);
  EXPECT_THROW(one_rank.resolver().refit(taken), train::NeedsOtherRanks);
  std::filesystem::remove(data_.path() / "text.txt");
  auto four_ranks = admission(4);
  taken.mutable_spec()->mutable_run()->mutable_mesh()->clear_tp();
  EXPECT_THROW(four_ranks.resolver().refit(taken), NotFound);
}

}  // namespace
}  // namespace meshloom::control
