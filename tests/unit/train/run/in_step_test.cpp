// SPDX-License-Identifier: Apache-2.0
// One rank fails alone inside a step: all ranks throw its error, and the next run is as if nothing
// had been.
#include "daemon/train/run/in_step.h"

#include <chrono>

#include "daemon/comm/agreement/status_agreement.h"
#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "tests/bench/profiling_backend.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

class InStepTest : public RunFixture {
 protected:
  v1::RunConfig on(int dp, int fsdp, int tp) const {
    v1::RunConfig c = config();
    c.mutable_mesh()->set_dp(dp);
    c.mutable_mesh()->set_fsdp(fsdp);
    c.mutable_mesh()->set_tp(tp);
    c.mutable_plan()->set_tensor_parallel(tp > 1);
    c.mutable_plan()->set_fully_shard(fsdp > 1);
    return c;
  }
  Trace train(comm::ProcessGroup& world, const v1::RunConfig& c) const {
    testing::TestContext context;
    const auto run = create(world, context, c);
    Trace trace;
    steps(*run, 3, trace);
    return trace;
  }
};

TEST_F(InStepTest, AFailureInsideAStepReachesAllAndTheNextRunTrainsAsOnAFreshWorld) {
  struct Size {
    int dp, fsdp, tp;
  };
  for (const Size m : {Size{1, 1, 2}, {2, 1, 1}, {1, 2, 1}, {2, 1, 2}, {1, 2, 2}}) {
    const int ranks = m.dp * m.fsdp * m.tp;
    SCOPED_TRACE(fmt::format("dp={} fsdp={} tp={}", m.dp, m.fsdp, m.tp));
    const v1::RunConfig good = on(m.dp, m.fsdp, m.tp);
    v1::RunConfig bad = good;
    bad.mutable_debug()->set_fail_step(2);
    bad.mutable_debug()->set_fail_rank(ranks - 1);
    std::vector<Trace> fresh(static_cast<std::size_t>(ranks)), after = fresh;
    meshloom::testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      fresh[static_cast<std::size_t>(world.rank())] = train(world, good);
    });
    meshloom::testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      const auto start = Clock::now();
      try {
        train(world, bad);
        ADD_FAILURE() << "rank " << world.rank() << " went on";
      } catch (const InternalError& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr(fmt::format("rank {} failed alone: step 2", ranks - 1)));
        EXPECT_EQ(error.reason(), "FAILED_ON_PURPOSE");
        EXPECT_EQ(error.metadata().at("failed_rank"), std::to_string(ranks - 1));
        EXPECT_EQ(error.metadata().at("rank"), std::to_string(ranks - 1));
      }
      EXPECT_LT(Clock::now() - start, 10s);
      EXPECT_EQ(world.failures()->epoch(), 1u);
      after[static_cast<std::size_t>(world.rank())] = train(world, good);
    });
    for (std::size_t r = 0; r < fresh.size(); ++r) {
      EXPECT_EQ(after[r].losses, fresh[r].losses) << "rank " << r;
      EXPECT_EQ(after[r].norms, fresh[r].norms) << "rank " << r;
    }
  }
}

/// Runs out of memory in one of the blocks of attention.
class FailingAttention final : public kernels::ProfilingBackend {
 public:
  /// `forward`, `backward`: which call fails; 0: none.
  FailingAttention(int forward, int backward)
      : ProfilingBackend(kernels::backend_for(kCpuDevice)),
        forward_(forward),
        backward_(backward) {}

  void attention(const kernels::KernelContext& context, const kernels::AttentionOutputs& out,
                 const kernels::AttentionInputs& in,
                 const kernels::AttentionOptions& options) override {
    count(forward_);
    ProfilingBackend::attention(context, out, in, options);
  }
  void attention_backward(const kernels::KernelContext& context,
                          const kernels::AttentionGrads& grads, const kernels::AttentionInputs& in,
                          const kernels::AttentionOptions& options) override {
    count(backward_);
    ProfilingBackend::attention_backward(context, grads, in, options);
  }

 private:
  static void count(int& left) {
    if (left > 0 && --left == 0) throw ResourceExhausted("no memory for a block", "OUT_OF_MEMORY");
  }
  int forward_, backward_;
};

TEST_F(InStepTest, AFailureInsideContextAttentionReachesAllWhileKeysTravel) {
  constexpr int kRanks = 3;
  for (const char* rotate : {"allgather", "alltoall", "pull", "ulysses"}) {
    v1::RunConfig c = config();
    c.mutable_mesh()->set_cp(kRanks);
    c.mutable_plan()->mutable_context_parallel()->set_rotate(rotate);
    Trace fresh;
    meshloom::testing::run_ranks(kRanks, [&](comm::ProcessGroup& world) {
      const Trace mine = train(world, c);
      if (world.rank() == 0) fresh = mine;
    });
    // Of two layers the second block of the first one, and in backward that of the last one; with
    // exchanged heads there is one block.
    const int call = std::string(rotate) == "ulysses" ? 1 : 2;
    for (const auto& [forward, backward] : {std::pair{call, 0}, {0, call}})
      meshloom::testing::run_ranks(
          kRanks, [&, forward = forward, backward = backward](comm::ProcessGroup& world) {
            SCOPED_TRACE(fmt::format("{} {} {}", rotate, forward, backward));
            // With exchanged heads the last rank has none of the two.
            const int failing = 1;
            FailingAttention backend(world.rank() == failing ? forward : 0,
                                     world.rank() == failing ? backward : 0);
            ExecutionContext::Options options;
            options.backend = &backend;
            ExecutionContext context(options);
            const auto run = create(world, context, c);
            const auto start = Clock::now();
            Trace trace;
            try {
              steps(*run, 1, trace);
              ADD_FAILURE() << "rank " << world.rank() << " went on";
            } catch (const ResourceExhausted& error) {
              EXPECT_EQ(std::string(error.what()), "rank 1 failed alone: no memory for a block");
              EXPECT_EQ(error.metadata().at("failed_rank"), "1");
            }
            EXPECT_LT(Clock::now() - start, 10s);
            const Trace after = train(world, c);
            EXPECT_EQ(after.losses, fresh.losses);
            EXPECT_EQ(after.norms, fresh.norms);
          });
  }
}

TEST_F(InStepTest, WhatAllRanksRefuseAlikeLeavesTheRunAsItWas) {
  const v1::RunConfig c = on(1, 1, 2);
  meshloom::testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, c);
    Trace trace, plain;
    steps(*run, 1, trace);
    try {
      run->optim_step();
      ADD_FAILURE() << "optim_step without gradients";
    } catch (const FailedPrecondition& error) {
      EXPECT_THAT(error.what(), HasSubstr("there are no gradients"));
      EXPECT_FALSE(error.metadata().contains("failed_rank"));
    }
    EXPECT_THROW(run->save_state(), FailedPrecondition);
    steps(*run, 2, trace);
    const auto other = create(world, context, c);
    steps(*other, 3, plain);
    EXPECT_EQ(trace.losses, plain.losses);
  });
}

TEST(InStep, TheLowestRankWithAnErrorOfItsOwnSpeaks) {
  meshloom::testing::run_ranks(4, [&](comm::ProcessGroup& world) {
    const auto part = world.split({{0, 1}, {2, 3}}, "tp");
    const auto sum = [](comm::ProcessGroup& group) {
      std::vector<float> values(200'000, 1.0f);
      group.all_reduce(make_view(values.data(), DType::kFloat32, {200'000}), comm::ReduceOp::kSum)
          ->wait_host();
      return values[0];
    };
    EXPECT_EQ(sum(*part), 2.0f);
    try {
      run_in_step(world, [&] {
        if (world.rank() == 3)
          throw ResourceExhausted("no memory for the gradient", "OUT_OF_MEMORY");
        sum(*part);
        sum(world);
      });
      ADD_FAILURE() << "rank " << world.rank() << " went on";
    } catch (const ResourceExhausted& error) {
      EXPECT_EQ(std::string(error.what()), "rank 3 failed alone: no memory for the gradient");
      EXPECT_EQ(error.reason(), "OUT_OF_MEMORY");
    }
    EXPECT_EQ(sum(world), 4.0f);
    // Every rank in turn, a plain exception, a join by those that are done.
    for (int failing = 0; failing < 4; ++failing) {
      try {
        if (world.rank() != failing) join_recovery(world);
        run_in_step(world, [&] { throw std::runtime_error("odd"); });
      } catch (const InternalError& error) {
        EXPECT_EQ(std::string(error.what()), fmt::format("rank {} failed alone: odd", failing));
      }
    }
    EXPECT_EQ(sum(world), 4.0f);
  });
}

}  // namespace
}  // namespace meshloom::train
