// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/replica_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/device_ranks.h"
#include "tests/support/tensor_elements.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;

/// What check_replicas says after `rank` changed one element of the last parameter with `name`, on
/// CPUs or on devices.
std::string said(const v1::Mesh& sizes, int rank, const std::string& name, bool on_device = false) {
  std::string text;
  const auto run = on_device ? &testing::run_fenced_ranks : &testing::run_ranks;
  run(sizes.dp() * sizes.fsdp() * sizes.tp(), [&](comm::ProcessGroup& world) {
    const ExecutionContext::Options context_options = testing::context_of(world);
    ExecutionContext context(context_options);
    RunMesh mesh(world, mesh_layout(sizes));
    ModelStateOptions options;
    options.plan.fully_shard = sizes.fsdp() > 1;
    options.plan.tensor_parallel = sizes.tp() > 1;
    ModelState state(context, nn::parse_hf_config(testing::tiny_gpt2_config()), options, mesh);
    state.initialize(3);
    EXPECT_NO_THROW(check_replicas(state, 1));
    const auto& parameters = state.optimizer().parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].name == name && world.rank() == rank)
        testing::add_to_element(state.optimizer().master(i), 1, 1e-6);
    try {
      check_replicas(state, 7);
      if (world.rank() == 0) text = "nothing";
    } catch (const InternalError& error) {
      if (world.rank() == 0) text = error.what();
    }
  });
  return text;
}

v1::Mesh mesh(int dp, int fsdp, int tp) {
  v1::Mesh sizes;
  sizes.set_dp(dp);
  sizes.set_fsdp(fsdp);
  sizes.set_cp(1);
  sizes.set_tp(tp);
  return sizes;
}

TEST(CheckReplicas, NamesParameterAndRank) {
  const std::string matrix = "transformer.h.1.mlp.c_fc.weight", norm = "transformer.h.0.ln_2.bias";
  EXPECT_THAT(said(mesh(3, 1, 1), 2, matrix), HasSubstr("parameter " + matrix + " of rank 2"));
  EXPECT_THAT(said(mesh(2, 2, 1), 3, matrix), HasSubstr("of rank 3 differs from that of rank 1"));
  // Norms are whole on every rank of tp, matrices are not.
  EXPECT_THAT(said(mesh(1, 1, 2), 1, norm), HasSubstr("step 7: parameter " + norm + " of rank 1"));
  EXPECT_EQ(said(mesh(1, 1, 2), 1, matrix), "nothing");
}

TEST(CheckReplicas, ReadsMastersOfADevice) {
  const std::string matrix = "transformer.h.1.mlp.c_fc.weight";
  EXPECT_THAT(said(mesh(3, 1, 1), 2, matrix, true),
              HasSubstr("parameter " + matrix + " of rank 2"));
  EXPECT_EQ(said(mesh(1, 1, 2), 1, matrix, true), "nothing");
}

}  // namespace
}  // namespace meshloom::train
