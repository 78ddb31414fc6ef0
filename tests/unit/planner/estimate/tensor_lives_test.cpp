// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/tensor_lives.h"

#include <gtest/gtest.h>

#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

TEST(MemoryPieces, APieceLivesAsLongAsSomeoneHoldsIt) {
  MemoryPieces memory;
  const int a = memory.take(10), b = memory.take(5);
  memory.hold(a);
  memory.drop(a);
  EXPECT_EQ(memory.in_use(), 15);
  memory.attach(b, a);
  memory.drop(a);
  EXPECT_EQ(memory.in_use(), 15) << "b holds it";
  memory.drop(b);
  EXPECT_EQ(memory.in_use(), 0);
  EXPECT_EQ(memory.take_peak(), 15);
  memory.pass(20);
  EXPECT_EQ(memory.in_use(), 0);
  EXPECT_EQ(memory.take_peak(), 20);
  EXPECT_EQ(memory.take_peak(), 0);
  memory.drop(-1);
}

std::int64_t kept_of_block(const nn::ModelConfig& config, std::int64_t tokens) {
  return local_model(config, {}, {}, {1, 1, tokens}).activations.block;
}

// By hand, in elements of a token. Norms keep their inputs, attention q, k, v, its output and a
// float a head, a product what it cannot make again.
TEST(TensorLives, ABlockKeepsWhatItsOpsDo) {
  nn::ModelConfig gpt2 = testing::byte_gpt();
  const std::int64_t c = gpt2.hidden_size, inner = gpt2.intermediate_size, heads = gpt2.num_heads;
  const std::int64_t gelu = 2 * (c + 2) + 4 * c + heads + inner;
  EXPECT_EQ(kept_of_block(gpt2, 64), 64 * 4 * gelu);
  gpt2.activation = nn::ActivationKind::kRelu;
  EXPECT_EQ(kept_of_block(gpt2, 64), 64 * 4 * gelu)
      << "ReLU keeps what it gives, as the product does";
  gpt2.activation = nn::ActivationKind::kSilu;
  EXPECT_EQ(kept_of_block(gpt2, 64), 64 * 4 * (gelu + inner)) << "SiLU keeps what it takes";
  const nn::ModelConfig llama = testing::small_llama();
  const std::int64_t q = llama.num_heads * llama.head_dim, kv = llama.num_kv_heads * llama.head_dim;
  EXPECT_EQ(kept_of_block(llama, 64), 64 * 4 *
                                          (2 * (llama.hidden_size + 1) + 2 * q + 2 * kv +
                                           llama.num_heads + 2 * llama.intermediate_size));
}

TEST(TensorLives, EveryBlockAddsWhatItKeeps) {
  const auto of_layers = [](std::int64_t layers, ActivationCheckpoint mode) {
    nn::ModelConfig config = testing::byte_gpt();
    config.num_layers = layers;
    return local_model(config, {}, {.checkpointing = mode}, {1, 1, 64}).activations;
  };
  for (const ActivationCheckpoint mode : {ActivationCheckpoint::kNone, ActivationCheckpoint::kFull,
                                          ActivationCheckpoint::kSelective}) {
    const ActivationEstimate six = of_layers(6, mode), nine = of_layers(9, mode);
    const std::int64_t each = mode == ActivationCheckpoint::kNone ? six.block : six.boundary;
    EXPECT_EQ(nine.peak, six.peak + 3 * each);
    EXPECT_EQ(nine.behind_blocks, six.behind_blocks) << "backward has let go of all";
  }
}

}  // namespace
}  // namespace meshloom::planner
