// SPDX-License-Identifier: Apache-2.0
// Random small models, batches and plans on random meshes train as on one rank.
//
// MESHLOOM_TEST_DRAWS is how many are drawn (default 60), MESHLOOM_TEST_SEED the number of the
// first: a failure names its own, to be run alone with MESHLOOM_TEST_DRAWS=1. A soak:
//   MESHLOOM_TEST_DRAWS=5000 unit_train --gtest_filter='RandomMeshTest.*'
#include <random>

#include "daemon/train/run/run_mesh.h"
#include "tests/support/draws.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

/// Small numbers drawn by one seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  int pick(std::initializer_list<int> values) { return values.begin()[random_() % values.size()]; }
  /// True once in `n`.
  bool once_in(std::uint64_t n) { return random_() % n == 0; }

 private:
  std::mt19937_64 random_;
};

/// Odd sizes: heads, features and vocabulary divide by chance only.
std::string draw_gpt2(Draw& draw) {
  const int heads = draw.pick({1, 2, 3, 5}), width = heads * draw.pick({4, 6, 8});
  const double dropout = draw.once_in(2) ? 0.2 : 0.0;
  return fmt::format(
      R"({{"architectures": ["GPT2LMHeadModel"], "vocab_size": {}, "n_positions": 24, "n_embd": {},
      "n_layer": {}, "n_head": {}, "n_inner": {}, "resid_pdrop": {}, "embd_pdrop": {}, "attn_pdrop": {},
      "initializer_range": 0.2}})",
      draw.pick({256, 257, 259}), width, draw.pick({1, 2, 3}), heads, draw.pick({7, 16, 33}),
      dropout, dropout / 2, dropout / 4);
}

/// A decoder of Llama's kind, in one of its families.
std::string draw_llama(Draw& draw) {
  const char* const families[] = {"Llama", "Mistral", "Qwen2", "Qwen3"};
  const char* const windows[] = {
      "", R"("sliding_window": 5,)", R"("use_sliding_window": true, "max_window_layers": 1,
      "sliding_window": 3,)",
      R"("use_sliding_window": true, "max_window_layers": 0, "sliding_window": 7,)"};
  const int family = draw.pick({0, 0, 1, 2, 3});
  const int window = family < 2 ? family : draw.pick({0, 2, 3});
  const int kv_heads = draw.pick({1, 2, 3}), heads = kv_heads * draw.pick({1, 2, 3});
  return fmt::format(
      R"({{"architectures": ["{}ForCausalLM"], {} "vocab_size": {}, "max_position_embeddings": 24,
      "hidden_size": {}, "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {},
      "head_dim": {}, "intermediate_size": {}, "attention_bias": {}, "tie_word_embeddings": {},
      "attention_dropout": {}, "initializer_range": 0.2}})",
      families[family], windows[window], draw.pick({256, 257, 259}), draw.pick({12, 20, 30}),
      draw.pick({1, 2, 3}), heads, kv_heads, draw.pick({4, 6, 8}), draw.pick({7, 16, 33}),
      draw.once_in(2), draw.once_in(2), draw.once_in(2) ? 0.2 : 0.0);
}

/// At most 8 ranks, at least 2.
void draw_mesh(Draw& draw, v1::Mesh& mesh) {
  do {
    mesh.set_dp(draw.pick({1, 1, 2, 3, 4}));
    mesh.set_fsdp(draw.pick({1, 1, 2, 3, 4}));
    mesh.set_cp(draw.pick({1, 1, 1, 2, 3, 4}));
    mesh.set_tp(draw.pick({1, 1, 2, 3, 4}));
  } while (mesh_layout(mesh).size() < 2 || mesh_layout(mesh).size() > 8);
}

void draw_context_parallel(Draw& draw, bool documents, v1::ContextParallelPlan& plan) {
  const char* const balancers[] = {"auto", "none", "head_tail", "mask_area", "per_document"};
  const char* const ways[] = {"auto", "allgather", "alltoall", "pull", "ulysses"};
  plan.set_load_balancer(balancers[draw.pick({0, 1, 2, 3, documents ? 4 : 0})]);
  plan.set_rotate(ways[draw.pick({0, 1, 2, 3, 4})]);
}

void draw_plan(Draw& draw, const v1::Mesh& mesh, bool documents, v1::ParallelPlan& plan) {
  if (mesh.cp() > 1) draw_context_parallel(draw, documents, *plan.mutable_context_parallel());
  plan.set_sequence_parallel(mesh.tp() > 1 && draw.once_in(2));
  if (mesh.fsdp() > 1) {
    auto& options = *plan.mutable_fully_shard_options();
    options.set_reshard_after_forward(draw.once_in(2));
    if (draw.once_in(3)) {
      options.set_policy(v1::SHARD_POLICY_LARGEST_DIVISIBLE);
      options.set_min_elements(draw.pick({1, 100, 1000}));
    }
  }
  const auto modes = {v1::ACTIVATION_CHECKPOINT_NONE, v1::ACTIVATION_CHECKPOINT_SELECTIVE,
                      v1::ACTIVATION_CHECKPOINT_FULL};
  plan.set_activation_checkpoint(modes.begin()[draw.pick({0, 1, 2})]);
}

class RandomMeshTest : public RunFixture {
 protected:
  v1::RunConfig draw_run(Draw& draw) const {
    const bool llama = draw.once_in(2);
    folder_.write_text("drawn.json", llama ? draw_llama(draw) : draw_gpt2(draw));
    v1::RunConfig c = config(draw.pick({1, 2, 3, 5, 7}));
    c.mutable_data()->set_tokenizer("bytes");  // of a vocabulary that may have more
    c.mutable_model()->set_config("drawn.json");
    c.mutable_training()->set_seq_len(draw.pick({1, 2, 5, 16, 23}));
    c.mutable_training()->set_max_norm(draw.pick({0, 1}));
    if (draw.once_in(2)) c.mutable_training()->set_micro_batch_size(1);
    c.mutable_data()->set_document_end('e');
    c.mutable_data()->set_document_mask(draw.once_in(2));
    c.mutable_data()->set_pack_documents(draw.once_in(2));
    // Large steps, but none that divide by the root of a vanishing gradient's square.
    auto& optimizer = *c.mutable_optimizer();
    optimizer.set_type(draw.once_in(2) ? v1::OPTIMIZER_TYPE_SGD : v1::OPTIMIZER_TYPE_ADAMW);
    optimizer.set_lr(optimizer.type() == v1::OPTIMIZER_TYPE_SGD ? 0.1 : 1e-2);
    if (optimizer.type() == v1::OPTIMIZER_TYPE_ADAMW) optimizer.set_eps(1e-3);
    return c;
  }
};

TEST_F(RandomMeshTest, TrainsAsOneRank) {
  const auto [first, count] = testing::draws_from_environment(60);
  for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    Draw draw(seed);
    const v1::RunConfig reference = draw_run(draw);
    v1::RunConfig c = reference;
    draw_mesh(draw, *c.mutable_mesh());
    draw_plan(draw, c.mesh(), c.data().document_mask(), *c.mutable_plan());
    SCOPED_TRACE(fmt::format("MESHLOOM_TEST_SEED={}\n{}", seed, c.ShortDebugString()));
    expect_close(run_training(c, mesh_layout(c.mesh()).size(), 3), run_training(reference, 1, 3));
  }
}

}  // namespace
}  // namespace meshloom::train
