// SPDX-License-Identifier: Apache-2.0
// Samples of runs driven by verbs: their bits, and the weights that they are drawn from.
#include <gtest/gtest.h>

#include "tests/unit/train/run/stepped_fixture.h"

namespace meshloom::train {
namespace {

constexpr std::chrono::minutes kLong{10};

class SteppedSamplesTest : public SteppedFixture {
 protected:
  struct Sequence {
    std::vector<std::int64_t> ids;  ///< with the prompt
    std::vector<float> log_probs;
    bool operator==(const Sequence&) const = default;
  };

  static std::vector<SampleStart> ragged_starts(int count) {
    std::vector<SampleStart> starts;
    for (int i = 0; i < count; ++i) {
      SampleStart start;
      for (int k = 0; k < 1 + i % 4; ++k) start.prompt.push_back('a' + (i * 5 + k * 3) % 26);
      start.params.set_max_tokens(3 + i % 6);
      start.params.set_seed(static_cast<std::uint64_t>(40 + i));
      starts.push_back(std::move(start));
    }
    return starts;
  }

  /// Draws what is left of a sample; complete on rank 0.
  static void draw(Sample& sample, std::vector<Sequence>& sequences) {
    for (const SampledToken& token : sample.advance(kLong)) {
      sequences[token.sequence].ids.push_back(token.id);
      sequences[token.sequence].log_probs.push_back(token.log_prob);
    }
  }
  static std::vector<Sequence> begin(const std::vector<SampleStart>& starts) {
    std::vector<Sequence> sequences;
    for (const SampleStart& start : starts) sequences.push_back({start.prompt, {}});
    return sequences;
  }
  static std::vector<Sequence> draw_all(WholeBatchRun& run, const std::vector<SampleStart>& starts,
                                        const std::string& snapshot = "") {
    std::vector<Sequence> sequences = begin(starts);
    draw(*run.begin_sample(starts, snapshot), sequences);
    return sequences;
  }

  /// The sequences as data, the same on all ranks.
  static v1::LossBatch to_batch(comm::ProcessGroup& world, std::vector<Sequence> sequences,
                                const std::vector<SampleStart>& starts) {
    v1::LossBatch batch;
    batch.set_loss("cross_entropy");
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      std::vector<std::int64_t>& ids = sequences[i].ids;
      ids.resize(starts[i].prompt.size() + static_cast<std::size_t>(starts[i].params.max_tokens()));
      const auto size = static_cast<std::int64_t>(ids.size());
      world.broadcast(make_view(ids.data(), DType::kInt64, {size}), 0)->wait_host();
      v1::Datum& datum = *batch.add_data();
      for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
        datum.add_tokens(static_cast<int>(ids[t]));
        datum.add_targets(static_cast<int>(ids[t + 1]));
      }
    }
    return batch;
  }
  static void train(WholeBatchRun& run, int steps, std::uint64_t seed) {
    for (int i = 0; i < steps; ++i) {
      run.forward_backward(random_batch("cross_entropy", 5, seed + static_cast<std::uint64_t>(i)));
      run.optim_step({});
    }
  }
};

TEST_F(SteppedSamplesTest, TokensAndLogProbsAreTheSameBitsWhateverTheBatchMates) {
  const std::vector<SampleStart> starts = ragged_starts(11);
  for (const char* dtype : {"float32", "bfloat16"})
    for (const WholeMesh& m : kWholeMeshes) {
      v1::RunConfig config = stepped_config(m);
      config.mutable_plan()->set_dtype(dtype);
      on_mesh(m, config, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
        train(run, 1, 3);
        const std::vector<Sequence> together = draw_all(run, starts);
        for (std::size_t i = 0; i < starts.size(); ++i) {
          const std::vector<Sequence> alone = draw_all(run, {starts[i]});
          EXPECT_TRUE(alone[0] == together[i]) << dtype << ", sequence " << i;
        }
        const v1::LossOutput forward = run.forward(to_batch(world, together, starts), false);
        if (world.rank() != 0) return;
        const float bound = dtype == std::string("float32") ? 1e-5f : 1e-2f;
        for (std::size_t i = 0; i < starts.size(); ++i)
          for (std::size_t t = 0; t < together[i].log_probs.size(); ++t)
            EXPECT_NEAR(together[i].log_probs[t],
                        forward.outputs(static_cast<int>(i))
                            .logprobs(static_cast<int>(starts[i].prompt.size() + t) - 1),
                        bound);
      });
    }
}

TEST_F(SteppedSamplesTest, ScoresAreTheBitsOfForward) {
  const std::vector<SampleStart> starts = ragged_starts(5);
  for (const char* dtype : {"float32", "bfloat16"})
    for (const WholeMesh& m : kWholeMeshes) {
      v1::RunConfig config = stepped_config(m);
      config.mutable_plan()->set_dtype(dtype);
      on_mesh(m, config, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
        const auto sample = run.begin_sample(starts, "");
        std::vector<Sequence> sequences = begin(starts);
        draw(*sample, sequences);
        const v1::LossBatch batch = to_batch(world, sequences, starts);
        expect_same_outputs(sample->score(batch), run.forward(batch, false));
        train(run, 1, 5);
        EXPECT_EQ(reason_of<FailedPrecondition>([&] { sample->score(batch); }), "WEIGHTS_STALE");
      });
    }
}

TEST_F(SteppedSamplesTest, SnapshotsStayWhateverIsTrainedAndTrainingStaysAsItIs) {
  const std::vector<SampleStart> starts = ragged_starts(6);
  for (const char* dtype : {"float32", "bfloat16"})
    for (const WholeMesh& m : kWholeMeshes) {
      SCOPED_TRACE(dtype);
      v1::RunConfig config = stepped_config(m);
      config.mutable_plan()->set_dtype(dtype);
      std::map<std::string, std::vector<float>> undisturbed;
      on_mesh(m, config, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
        train(run, 5, 20);
        const auto values = parameters_of(run);
        if (world.rank() == 0) undisturbed = values;
      });
      on_mesh(m, config, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
        run->keep_snapshot("start");
        run->keep_snapshot("same");
        const std::vector<Sequence> at_start = draw_all(run, starts);
        const v1::LossBatch batch = to_batch(world, at_start, starts);
        const v1::LossOutput forward_at_start = run.forward(batch, false);
        EXPECT_TRUE(draw_all(run, starts, "start") == at_start) << "nothing has changed yet";
        train(run, 2, 20);
        run->keep_snapshot("two");
        const std::vector<Sequence> at_two = draw_all(run, starts);
        train(run, 1, 22);
        // Drawn while it is trained on, with the run's own sample and verbs between.
        const auto old = run.begin_sample(starts, "start");
        EXPECT_EQ(old->step(), 0);
        std::vector<Sequence> slowly = begin(starts);
        for (const SampledToken& token : old->advance(std::chrono::milliseconds(0))) {
          slowly[token.sequence].ids.push_back(token.id);
          slowly[token.sequence].log_probs.push_back(token.log_prob);
        }
        EXPECT_TRUE(draw_all(run, starts, "two") == at_two);
        train(run, 1, 23);
        draw_all(run, starts);
        run->drop_snapshot("start");
        EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.begin_sample(starts, "start"); }),
                  "SNAPSHOT_STALE");
        draw(*old, slowly);
        EXPECT_TRUE(slowly == at_start);
        expect_same_outputs(old->score(batch), forward_at_start);
        EXPECT_TRUE(draw_all(run, starts, "same") == at_start);
        EXPECT_EQ(reason_of<AlreadyExists>([&] { run->keep_snapshot("two"); }), "WEIGHTS_EXIST");
        train(run, 1, 24);
        EXPECT_TRUE(draw_all(run, starts, "two") == at_two);
        const auto values = parameters_of(run);
        if (world.rank() == 0) {
          EXPECT_TRUE(values == undisturbed);
        }
      });
    }
}

TEST_F(SteppedSamplesTest, LoadingAndSettingLeaveSnapshotsAlone) {
  const std::vector<SampleStart> starts = ragged_starts(3);
  const WholeMesh fsdp2{"fsdp2", 1, 2};
  on_mesh(fsdp2, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    train(run, 1, 9);
    const auto folder = folder_.path() / "state";
    run->save_state(folder, {});
    run->keep_snapshot("one");
    const std::vector<Sequence> drawn = draw_all(run, starts);
    v1::ParameterValue value;
    value.set_name("transformer.ln_f.weight");
    value.set_dtype("float32");
    const std::vector<float> twos(16, 2.0f);
    value.add_shape(16);
    value.set_data(std::string(reinterpret_cast<const char*>(twos.data()), sizeof(float) * 16));
    run->set_parameters({value});
    EXPECT_TRUE(draw_all(run, starts, "one") == drawn);
    run->keep_snapshot("set");
    const std::vector<Sequence> set = draw_all(run, starts);
    run->load_state(folder, true);
    EXPECT_TRUE(draw_all(run, starts, "set") == set);
    EXPECT_TRUE(draw_all(run, starts) == drawn);
    EXPECT_TRUE(draw_all(run, starts, "one") == drawn);
  });
}

TEST_F(SteppedSamplesTest, WeightsOfAFolderAreDrawnFromAsThoseInMemory) {
  const std::vector<SampleStart> starts = ragged_starts(5);
  for (const char* dtype : {"float32", "bfloat16"})
    for (const WholeMesh& m : kWholeMeshes) {
      SCOPED_TRACE(fmt::format("{} {}", m.name, dtype));
      v1::RunConfig config = stepped_config(m);
      config.mutable_plan()->set_dtype(dtype);
      const test::TempFolder folders;
      const auto folder = folders.path() / "one", missing = folders.path() / "missing";
      std::map<std::string, std::vector<float>> undisturbed;
      on_mesh(m, config, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
        train(run, 3, 40);
        const auto values = parameters_of(run);
        if (world.rank() == 0) undisturbed = values;
      });
      on_mesh(m, config, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
        train(run, 1, 40);
        run->export_hf(folder, "float32");
        run->keep_snapshot("one");
        train(run, 1, 41);
        const std::vector<Sequence> in_memory = draw_all(run, starts, "one");
        std::vector<Sequence> slowly = begin(starts), whole = begin(starts);
        const auto sample = run.begin_sample_from(starts, folder, 1);
        EXPECT_EQ(sample->step(), 1);
        for (const SampledToken& token : sample->advance(std::chrono::milliseconds(0))) {
          slowly[token.sequence].ids.push_back(token.id);
          slowly[token.sequence].log_probs.push_back(token.log_prob);
        }
        EXPECT_THROW(run.begin_sample_from(starts, missing, 1), NotFound);
        train(run, 1, 42);
        draw(*sample, slowly);
        EXPECT_TRUE(slowly == in_memory);
        draw(*run.begin_sample_from(starts, folder, 1), whole);
        EXPECT_TRUE(whole == in_memory);
        const auto values = parameters_of(run);
        if (world.rank() == 0) {
          EXPECT_TRUE(values == undisturbed);
        }
      });
    }
}

TEST_F(SteppedSamplesTest, AFolderThatWasSavedAgainIsReadAnew) {
  const std::vector<SampleStart> starts = ragged_starts(5);
  const WholeMesh& m = kWholeMeshes.front();
  const test::TempFolder folders;
  const auto folder = folders.path() / "one";
  on_mesh(m, stepped_config(m), [&](WholeBatchRun& run, comm::ProcessGroup&) {
    train(run, 1, 40);
    run->export_hf(folder, "float32");
    const auto held = run.begin_sample_from(starts, folder, 1);
    train(run, 1, 41);
    run->export_hf(folder, "float32");
    run->keep_snapshot("two");
    const std::vector<Sequence> expected = draw_all(run, starts, "two");
    std::vector<Sequence> again = begin(starts), before = begin(starts);
    draw(*run.begin_sample_from(starts, folder, 1), again);
    EXPECT_TRUE(again == expected);
    draw(*held, before);
    EXPECT_FALSE(before == expected);
  });
}

}  // namespace
}  // namespace meshloom::train
