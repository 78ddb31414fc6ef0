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
  EXPECT_EQ(memory.peak(), 15);
  memory.pass(20);
  EXPECT_EQ(memory.in_use(), 0);
  EXPECT_EQ(memory.peak(), 20);
  memory.drop(-1);
}

std::int64_t kept_of_block(const nn::ModelConfig& config, std::int64_t tokens) {
  const LocalModel local = local_model(config, {}, {}, {1, 1, tokens});
  TensorLives lives(local.pass, ActivationCheckpoint::kNone, 4, 0);
  lives.walk(std::vector<std::int64_t>(local.pass.graph->runs.size(), 0));
  std::int64_t kept = 0;
  for (std::size_t r = 0; r < lives.runs().size(); ++r)
    if (local.pass.graph->runs[r].is_block) kept = lives.runs()[r].kept;
  return kept;
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

TEST(TensorLives, WhatIsBesideARunIsThereWhileItIsAtWork) {
  const LocalModel local = local_model(testing::byte_gpt(), {}, {}, {1, 1, 64});
  const std::size_t runs = local.pass.graph->runs.size();
  const auto walked = [&](std::int64_t bytes) {
    TensorLives lives(local.pass, ActivationCheckpoint::kNone, 4, 0);
    std::vector<std::int64_t> beside(runs, 0);
    beside[2] = bytes;
    lives.walk(beside);
    return lives;
  };
  const TensorLives one = walked(0), more = walked(std::int64_t{1} << 30);
  EXPECT_EQ(more.peak(), one.peak() + (std::int64_t{1} << 30));
  EXPECT_EQ(more.behind_blocks(), one.behind_blocks());
}

}  // namespace
}  // namespace meshloom::planner
