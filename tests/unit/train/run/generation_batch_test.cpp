// SPDX-License-Identifier: Apache-2.0
// Several sequences of one sample on a mesh: each has the tokens that it has alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

struct BatchMesh {
  const char* name;
  int dp, fsdp, tp;
  bool sequence_parallel = false;
  int ranks() const { return dp * fsdp * tp; }
};

class GenerationBatchTest : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    // Sizes that no mesh divides, and large enough for the kernel of a few rows.
    folder_.write_text("gpt2.json", R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
        "vocab_size": 256, "n_positions": 16, "n_embd": 120, "n_layer": 2, "n_head": 5,
        "n_inner": 307, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05,
        "initializer_range": 0.2})");
    folder_.write_text("llama.json", R"({"model_type": "llama",
        "architectures": ["LlamaForCausalLM"], "vocab_size": 256, "max_position_embeddings": 16,
        "hidden_size": 120, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 307, "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0, "initializer_range": 0.2, "tie_word_embeddings": false})");
  }

  v1::RunConfig on(const BatchMesh& mesh, const std::string& model,
                   const std::string& dtype) const {
    v1::RunConfig c = config(4);
    c.mutable_model()->set_config(model + ".json");
    c.mutable_plan()->set_dtype(dtype);
    c.mutable_mesh()->set_dp(mesh.dp);
    c.mutable_mesh()->set_fsdp(mesh.fsdp);
    c.mutable_mesh()->set_tp(mesh.tp);
    c.mutable_plan()->set_sequence_parallel(mesh.sequence_parallel);
    return c;
  }
  /// More sequences than share a pass, of all lengths up to the context; some outgrow it,
  /// others end with it.
  static std::vector<SampleStart> ragged_starts() {
    std::vector<SampleStart> starts;
    for (int i = 0; i < 11; ++i) {
      SampleStart start;
      for (int k = 0; k < 1 + i * 7 % 16; ++k) start.prompt.push_back('a' + (i * 5 + k * 3) % 26);
      start.params.set_max_tokens(2 + i * 5 % 23);
      start.params.set_seed(static_cast<std::uint64_t>(40 + i));
      start.params.set_past_context(i % 4 != 3);
      starts.push_back(std::move(start));
    }
    return starts;
  }
  /// By sequence, `budget` at a time; complete on rank 0 alone.
  static std::vector<std::vector<std::int64_t>> draw_together(
      test::LocalJob& run, const std::vector<SampleStart>& starts) {
    std::vector<std::vector<std::int64_t>> drawn(starts.size());
    std::vector<bool> ended(starts.size());
    for (const SampledToken& token : run.begin_sample(starts)->advance(std::chrono::minutes(10))) {
      EXPECT_FALSE(ended[token.sequence]);
      drawn[token.sequence].push_back(token.id);
      ended[token.sequence] = token.last();
    }
    return drawn;
  }
};

const BatchMesh kBatchMeshes[] = {{"one", 1, 1, 1},
                                  {"fsdp2", 1, 2, 1},
                                  {"tp2", 1, 1, 2},
                                  {"tp3", 1, 1, 3},
                                  {"tp2_sequence", 1, 1, 2, true},
                                  {"dp2", 2, 1, 1},
                                  {"fsdp2_tp2", 1, 2, 2},
                                  {"dp2_fsdp2", 2, 2, 1}};

TEST_F(GenerationBatchTest, EverySequenceDrawsOnEveryMeshWhatItDrawsAlone) {
  const std::vector<SampleStart> starts = ragged_starts();
  for (const char* model : {"gpt2", "llama"})
    for (const char* dtype : {"float32", "bfloat16"})
      for (const BatchMesh& mesh : kBatchMeshes) {
        SCOPED_TRACE(fmt::format("{} {} {}", model, dtype, mesh.name));
        testing::run_ranks(mesh.ranks(), [&](comm::ProcessGroup& world) {
          testing::TestContext context;
          const auto run = create(world, context, on(mesh, model, dtype));
          Trace trace;
          steps(*run, 1, trace);
          const auto together = draw_together(*run, starts);
          for (std::size_t i = 0; i < starts.size(); ++i) {
            const auto alone = draw_all(*run, starts[i]);
            EXPECT_EQ(together[i], alone) << "sequence " << i << " on rank " << world.rank();
            if (world.rank() != 0) continue;
            // Llama's config ends with a token of its own.
            EXPECT_LE(static_cast<int>(alone.size()), starts[i].params.max_tokens());
            EXPECT_FALSE(alone.empty());
          }
        });
      }
}

TEST_F(GenerationBatchTest, OnePromptThatIsRefusedIsRefusedByAllRanks) {
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, on(kBatchMeshes[1], "gpt2", "float32"));
    std::vector<SampleStart> starts = ragged_starts();
    starts[7].prompt.push_back(256);
    EXPECT_THROW(run->begin_sample(starts), InvalidArgument) << "rank " << world.rank();
    Trace trace;
    steps(*run, 1, trace);
  });
}

}  // namespace
}  // namespace meshloom::train
