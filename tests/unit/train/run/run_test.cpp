// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/config/sampling_params.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/run/sampler.h"
#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RunTest : public RunFixture {
 protected:
  /// What a job is told that begins with a checkpoint of another one, a note a line.
  std::string notes_on(const std::filesystem::path& checkpoint, const v1::RunConfig& next) const {
    const auto world = testing::make_single_world();
    testing::TestContext context;
    RunOptions options;
    options.folders.data_dir = folder_.path();
    options.folders.resume_from = checkpoint;
    const v1::RunConfig resolved =
        resolve_run_config(next, {.world_size = 1, .data_dir = folder_.path()});
    const test::LocalJob run({&context, world.get()}, resolved, options);
    std::string notes;
    for (const std::string& note : run.notes()) notes += note + "\n";
    return notes;
  }
};

TEST_F(RunTest, LearnsAndStartsAtTheEntropyOfItsVocabulary) {
  v1::RunConfig small = config();
  small.mutable_training()->set_steps(200);
  const Trace trace = run_training(small, 1, 200);
  EXPECT_NEAR(trace.losses.front(), std::log(256.0), 0.6);
  EXPECT_LT(trace.losses.back(), 2.6);
}

TEST_F(RunTest, EveryMeshGivesTheNumbersOfOneRank) {
  const Trace one = run_training(config(), 1, 6);
  for (const int ranks : {2, 3, 4}) expect_close(run_training(config(), ranks, 6), one);
}

TEST_F(RunTest, UnevenBatchesAndAccumulationToo) {
  v1::RunConfig uneven = config(7);
  const Trace one = run_training(uneven, 1, 6);
  for (const int ranks : {1, 2, 3})
    for (const std::int64_t micro : {1, 2}) {
      uneven.mutable_training()->set_micro_batch_size(micro);
      expect_close(run_training(uneven, ranks, 6), one);
    }
  // More ranks than samples: some compute nothing and still take part.
  expect_close(run_training(config(2), 3, 4), run_training(config(2), 1, 4));
}

TEST_F(RunTest, DropoutIsDrawnByPositionOnEveryMesh) {
  v1::RunConfig with_dropout = config(7);
  with_dropout.mutable_model()->set_config("dropout.json");
  const Trace one = run_training(with_dropout, 1, 5);
  EXPECT_NE(one.losses, run_training(config(7), 1, 5).losses);
  with_dropout.mutable_training()->set_micro_batch_size(2);
  expect_close(run_training(with_dropout, 1, 5), one);
  expect_close(run_training(with_dropout, 2, 5), one);
}

TEST_F(RunTest, DocumentsOfUnevenLengthWeighByTheirTokens) {
  folder_.write_text("docs/1.txt",
                     "the first one is long enough for several samples of sixteen tokens");
  folder_.write_text("docs/2.txt", "short");
  folder_.write_text("docs/3.txt", "ab");
  folder_.write_text("docs/4.txt", "another one that has a few more tokens");
  v1::RunConfig documents = config(5);
  documents.mutable_data()->set_path("docs");
  documents.mutable_data()->set_pack_documents(false);
  documents.mutable_data()->set_document_mask(true);
  documents.mutable_data()->set_validation_split(0.0);
  const Trace one = run_training(documents, 1, 4);
  for (const int ranks : {2, 3}) expect_close(run_training(documents, ranks, 4), one);
  documents.mutable_training()->set_micro_batch_size(1);
  expect_close(run_training(documents, 2, 4), one);
}

TEST_F(RunTest, TwoRunsAreBitwiseEqual) {
  for (const int ranks : {1, 2})
    expect_equal(run_training(config(), ranks, 5), run_training(config(), ranks, 5));
}

TEST_F(RunTest, ResumeIsBitwiseEqualToNeverHavingStopped) {
  for (const char* dtype : {"float32", "bfloat16"})
    for (const int ranks : {1, 2}) {
      v1::RunConfig resumed = config(7);
      resumed.mutable_model()->set_config("dropout.json");
      resumed.mutable_plan()->set_dtype(dtype);
      resumed.mutable_training()->set_micro_batch_size(2);
      expect_equal(run_training(resumed, ranks, 10, {5}), run_training(resumed, ranks, 10));
      expect_equal(run_training(resumed, ranks, 6, {1, 2, 5}), run_training(resumed, ranks, 6));
    }
}

TEST_F(RunTest, BfloatTrainsLikeFloat) {
  v1::RunConfig half = config();
  half.mutable_plan()->set_dtype("bfloat16");
  const Trace a = run_training(half, 1, 10);
  const Trace b = run_training(config(), 1, 10);
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], 0.02 * b.losses[i]);
}

TEST_F(RunTest, GoesOnWithAnotherNumberOfRanks) {
  const test::TempFolder checkpoints;
  Trace trace;
  for (const int ranks : {3, 1, 2})
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, config(), checkpoints.path());
      Trace mine = trace;
      world.barrier()->wait_host();
      steps(*run, 2, mine);
      if (run->step() > 2) {
        EXPECT_THAT(run->notes(), ::testing::Contains(HasSubstr("not bit for bit")));
      }
      run->save_state();
      if (world.rank() == 0) trace = mine;
    });
  expect_close(trace, run_training(config(), 1, 6));
}

TEST_F(RunTest, EvaluatesTheSameOnEveryMeshAndEveryTime) {
  std::vector<double> losses;
  for (const int ranks : {1, 2, 3})
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, config(5));
      const double first = mean_loss(run->evaluate(0, 2));
      EXPECT_EQ(mean_loss(run->evaluate(0, 2)), first);
      EXPECT_NO_THROW(mean_loss(run->evaluate(0, 1000)));
      EXPECT_TRUE(run->evaluate(1000, 3).empty()) << "the data end before";
      if (world.rank() == 0) losses.push_back(first);
    });
  EXPECT_NEAR(losses[1], losses[0], 1e-5);
  EXPECT_NEAR(losses[2], losses[0], 1e-5);
}

TEST_F(RunTest, StopsAtNumbersThatAreNone) {
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    v1::RunConfig wild = config();
    wild.mutable_optimizer()->set_lr(1e6);
    wild.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
    wild.mutable_optimizer()->set_weight_decay(1e6);
    wild.mutable_training()->set_max_norm(0);
    wild.mutable_lr_scheduler()->set_warmup_steps(0);
    testing::TestContext context;
    const auto run = create(world, context, wild);
    std::string message;
    for (int i = 0; i < 20 && message.empty(); ++i) {
      const std::int64_t before = run->step();
      run->forward_backward();
      try {
        run->optim_step();
      } catch (const NumericError& error) {
        message = error.what();
        EXPECT_EQ(run->step(), before);
        EXPECT_EQ(error.metadata().at("step"), std::to_string(before + 1));
        EXPECT_THAT(error.metadata().at("parameter"), HasSubstr("transformer."));
      }
    }
    EXPECT_THAT(message, HasSubstr("gradient"));
  });
}

TEST_F(RunTest, RefusesVerbsOutOfOrder) {
  const auto world = testing::make_single_world();
  testing::TestContext context;
  const auto run = create(*world, context, config());
  EXPECT_THROW(run->optim_step(), FailedPrecondition);
  run->forward_backward();
  EXPECT_THROW(run->forward_backward(), FailedPrecondition);
  run->optim_step();
  EXPECT_THROW(run->save_state(), FailedPrecondition);
}

TEST_F(RunTest, ABadTokenOnOneRankFailsAll) {
  std::vector<std::uint16_t> tokens(2000, 5);
  tokens[1500] = 300;
  folder_.write_u16("bad.bin", tokens);
  v1::RunConfig bad = config();
  bad.mutable_data()->set_path("bad.bin");
  bad.mutable_data()->set_validation_split(0.0);
  testing::run_ranks(3, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, bad);
    std::string message;
    for (int i = 0; i < 30 && message.empty(); ++i) {
      try {
        run->forward_backward();
        run->optim_step();
      } catch (const InvalidArgument& error) {
        message = error.what();
      }
    }
    EXPECT_THAT(message, HasSubstr("token 300 at position 1500"));
  });
}

TEST_F(RunTest, ACheckpointOfAnotherModelIsRefused) {
  const test::TempFolder checkpoints;
  const auto world = testing::make_single_world();
  testing::TestContext context;
  create(*world, context, config(), checkpoints.path())->save_state();
  std::string other = testing::tiny_gpt2_config();
  other.replace(other.find("\"n_layer\": 2"), 12, "\"n_layer\": 3");
  folder_.write_text("other.json", other);
  v1::RunConfig changed = config();
  changed.mutable_model()->set_config("other.json");
  try {
    create(*world, context, changed, checkpoints.path());
    FAIL() << "the checkpoint of another model was loaded";
  } catch (const FailedPrecondition& error) {
    EXPECT_THAT(error.what(), HasSubstr("n_layer"));
  }
}

TEST_F(RunTest, ACheckpointOfAModelWhoseConfigIsReadInAnotherWayNowIsRefusedWithTheDifference) {
  const test::TempFolder checkpoints;
  const auto world = testing::make_single_world();
  testing::TestContext context;
  create(*world, context, config(), checkpoints.path())->save_state();
  // A daemon that did not know GPT-2's other names for its sizes took them for unknown keys: its
  // job has the model of n_embd.
  std::string named_twice = testing::tiny_gpt2_config();
  named_twice.insert(1, R"("hidden_size": 32, )");
  folder_.write_text("config.json", named_twice);
  EXPECT_EQ(nn::parse_hf_config(named_twice).hidden_size, 32);
  const auto refusal = [&](const std::function<void()>& go_on) -> std::string {
    try {
      go_on();
      return "it went on";
    } catch (const FailedPrecondition& error) {
      EXPECT_EQ(error.reason(), "CHECKPOINT_MISMATCH");
      return error.what();
    }
  };
  const auto tells =
      AllOf(HasSubstr("another model"), HasSubstr("n_embd"), HasSubstr("16"), HasSubstr("32"));
  EXPECT_THAT(refusal([&] { create(*world, context, config(), checkpoints.path()); }), tells);
  const fs::path folder = fs::directory_iterator(checkpoints.path())->path();
  EXPECT_THAT(refusal([&] {
                check_resumable(read_manifest(folder), config(), nn::parse_hf_config(named_twice),
                                "checkpoints/before");
              }),
              tells);
}

TEST_F(RunTest, AnotherScheduleThanTheCheckpointsIsTold) {
  const test::TempFolder checkpoints;
  const auto world = testing::make_single_world();
  testing::TestContext context;
  v1::RunConfig first = config();
  first.mutable_training()->set_steps(10);
  {
    const auto run = create(*world, context, first, checkpoints.path());
    Trace trace;
    steps(*run, 4, trace);
    run->save_state();
  }
  const auto notes_of = [&](const v1::RunConfig& next) {
    return notes_on(checkpoints.path() / "step-4", next);
  };
  constexpr const char* kTold = "does not follow the checkpoint's schedule";
  EXPECT_THAT(notes_of(first), Not(HasSubstr(kTold)));
  v1::RunConfig longer = first;
  longer.mutable_training()->set_steps(20);
  EXPECT_THAT(notes_of(longer), AllOf(HasSubstr(kTold), HasSubstr("that has 10 steps"),
                                      HasSubstr("step 5"), HasSubstr("this job has 20 steps")));
  v1::RunConfig constant = first;
  constant.mutable_lr_scheduler()->set_decay_type(v1::DECAY_TYPE_CONSTANT);
  EXPECT_THAT(notes_of(constant), HasSubstr(kTold));
}

TEST_F(RunTest, OfARateThatGoesOnAsBeforeNothingIsTold) {
  const test::TempFolder checkpoints;
  const auto world = testing::make_single_world();
  testing::TestContext context;
  v1::RunConfig first = config();
  first.mutable_training()->set_steps(10);
  first.mutable_optimizer()->set_lr(1e-3);
  first.mutable_lr_scheduler()->set_decay_type(v1::DECAY_TYPE_CONSTANT);
  first.mutable_lr_scheduler()->set_warmup_steps(2);
  {
    const auto run = create(*world, context, first, checkpoints.path());
    Trace trace;
    steps(*run, 4, trace);
    run->save_state();
  }
  constexpr const char* kTold = "does not follow the checkpoint's schedule";
  v1::RunConfig next = first;
  next.mutable_training()->set_steps(20);
  EXPECT_THAT(notes_on(checkpoints.path() / "step-4", next), Not(HasSubstr(kTold)));
  next.mutable_lr_scheduler()->set_warmup_steps(4);
  EXPECT_THAT(notes_on(checkpoints.path() / "step-4", next), Not(HasSubstr(kTold)));
  next.mutable_optimizer()->set_lr(1.00001e-3);
  EXPECT_THAT(
      notes_on(checkpoints.path() / "step-4", next),
      AllOf(HasSubstr(kTold), HasSubstr("give step 5 0.001,"), HasSubstr("gives it 0.00100001")));
  next.mutable_optimizer()->set_lr(1e-3);
  next.mutable_lr_scheduler()->set_decay_type(v1::DECAY_TYPE_WSD);
  next.mutable_lr_scheduler()->set_decay_ratio(0.5);
  EXPECT_THAT(notes_on(checkpoints.path() / "step-4", next),
              AllOf(HasSubstr(kTold), HasSubstr("step 12 0.001,")));
}

TEST_F(RunTest, OtherHostsAreToldWithoutWhatIsAsBefore) {
  const test::TempFolder checkpoints;
  const auto world = testing::make_single_world();
  testing::TestContext context;
  create(*world, context, config(), checkpoints.path())->save_state();
  const auto file = checkpoints.path() / "step-0" / "manifest.json";
  Manifest manifest = read_manifest(file.parent_path());
  manifest.compute.hosts = "0,1";
  std::ofstream(file) << manifest_to_json(manifest);
  const std::string notes = notes_on(file.parent_path(), config());
  EXPECT_THAT(notes, HasSubstr("sums between hosts have another order"));
  EXPECT_THAT(notes, Not(HasSubstr("CPU class")));
  manifest.compute.threads += 1;
  std::ofstream(file) << manifest_to_json(manifest);
  EXPECT_THAT(notes_on(file.parent_path(), config()),
              AllOf(HasSubstr("sums between hosts"), HasSubstr("CPU class")));
}

TEST_F(RunTest, AllocatesNothingFromTheSystemAfterTheFirstStep) {
  const auto world = testing::make_single_world();
  testing::TestContext context;
  v1::RunConfig accumulated = config(7);
  accumulated.mutable_training()->set_micro_batch_size(2);
  const auto run = create(*world, context, accumulated);
  Trace trace;
  steps(*run, 1, trace);
  const auto segments = context.allocator().stats().segments_acquired;
  steps(*run, 5, trace);
  EXPECT_EQ(context.allocator().stats().segments_acquired, segments);
}

TEST_F(RunTest, ExportsAFolderThatTrainsOn) {
  const auto world = testing::make_single_world();
  testing::TestContext context;
  const auto run = create(*world, context, config());
  Trace trace;
  steps(*run, 5, trace);
  run->export_hf(folder_.path() / "hf", "float32");
  v1::RunConfig from_folder = config();
  from_folder.mutable_model()->clear_config();
  from_folder.mutable_model()->set_hf_folder("hf");
  const auto again = create(*world, context, from_folder);
  EXPECT_EQ(mean_loss(again->evaluate(0, 3)), mean_loss(run->evaluate(0, 3)));
  EXPECT_THROW(run->export_hf(folder_.path() / "hf", "int8"), InvalidArgument);
}

TEST_F(RunTest, SamplesFromRunCheckpointAndFolderAlike) {
  const test::TempFolder checkpoints;
  const auto world = testing::make_single_world();
  testing::TestContext context;
  const auto run = create(*world, context, config(), checkpoints.path());
  Trace trace;
  steps(*run, 3, trace);
  run->export_hf(folder_.path() / "hf", "float32");
  v1::SamplingParams params;
  params.set_max_tokens(40);
  params.set_seed(4);
  params.set_past_context(true);
  const SampleStart start{.prompt = {'a', 'b'}, .params = params};
  const auto expected = draw_all(*run, start);
  EXPECT_EQ(expected.size(), 40u);
  const auto checkpoint = Sampler::load({}, run->save_state());
  EXPECT_EQ(checkpoint->step(), 3);
  EXPECT_EQ(draw_all(*checkpoint, start), expected);
  EXPECT_EQ(draw_all(*Sampler::load({}, folder_.path() / "hf"), start), expected);
  EXPECT_THROW(Sampler::load({}, folder_.path()), NotFound);
}

TEST_F(RunTest, CheckpointsAndExportsEndSequencesAsTheModelsGenerationConfig) {
  folder_.write_text("generation_config.json", R"({"eos_token_id": [7, 9], "do_sample": false})");
  const test::TempFolder checkpoints;
  const auto world = testing::make_single_world();
  testing::TestContext context;
  const auto run = create(*world, context, config(), checkpoints.path());
  run->export_hf(folder_.path() / "hf", "float32");
  const SampleStart plain = [] {
    SampleStart start{.prompt = {'a', 'b'}, .params = {}};
    start.params.set_max_tokens(12);
    start.params.set_seed(4);
    return start;
  }();
  const auto drawn = draw_all(*run, plain);
  ASSERT_EQ(drawn.size(), 12u);
  for (const auto& folder : {run->save_state(), folder_.path() / "hf"}) {
    const auto sampler = Sampler::load({}, folder);
    PromptLimits limits = sampler->prompt_limits();
    EXPECT_EQ(limits.generation.end_tokens, (std::vector<std::int64_t>{7, 9})) << folder;
    EXPECT_EQ(limits.generation.temperature, 0.0);
    limits.generation.end_tokens = {{255, drawn[4]}};
    SampleStart start = plain;
    set_ends({}, limits, &start);
    const auto first = std::find(drawn.begin(), drawn.end(), drawn[4]);
    EXPECT_EQ(draw_all(*sampler, start), std::vector<std::int64_t>(drawn.begin(), first + 1));
    v1::SampleStop ignore;
    ignore.set_ignore_eos(true);
    set_ends(ignore, limits, &start);
    EXPECT_EQ(draw_all(*sampler, start), drawn);
  }
}

}  // namespace
}  // namespace meshloom::train
