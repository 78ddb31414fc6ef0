// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/plan_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "daemon/nn/models/presets.h"
#include "daemon/plan/clusters.h"
#include "kernels/base/error.h"
#include "tests/support/numeric_fields.h"

namespace meshloom::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(PlanQuery, EveryClusterIsSound) {
  EXPECT_THAT(cluster_names(), ::testing::Contains("local_cpu"));
  for (const std::string& name : cluster_names()) {
    v1::PlanQuery query;
    query.set_cluster_name(name);
    const planner::Machine machine = query_machine(query);
    EXPECT_EQ(machine.name, name);
    EXPECT_NO_THROW(planner::share_of_rank(machine, 16)) << name;
    EXPECT_GT(machine.memory_bytes, 0) << name;
  }
}

TEST(PlanQuery, AQueryIsEstimatedDescribedAndSearched) {
  const nn::ModelConfig model = nn::preset_config("gpt2_124m");
  v1::PlanQuery query;
  query.mutable_mesh()->set_fsdp(2);
  query.mutable_mesh()->set_tp(2);
  query.mutable_plan()->set_dtype("float32");
  query.set_memory_limit_bytes(std::int64_t{8} << 30);
  const v1::PlanEstimate estimate = estimate_plan(model, query);
  EXPECT_EQ(estimate.ranks(), 4);
  EXPECT_TRUE(estimate.plan().fully_shard());
  EXPECT_EQ(estimate.cluster(), "local_cpu");
  EXPECT_EQ(estimate.global_batch_size(), 2);
  EXPECT_GT(estimate.memory().total(), 0);
  const v1::PlanDescription description = describe_plan("gpt2_124m", model, query, 3);
  EXPECT_EQ(description.parameter_count(), estimate.parameters());
  EXPECT_LT(description.local_parameter_count(), estimate.parameters());
  v1::PlanSearchQuery search;
  search.set_ranks(2);
  search.set_most_plans(1);
  search.mutable_query()->set_seq_len(64);
  const v1::PlanSearch found = search_plans("gpt2_124m", model, search);
  EXPECT_EQ(found.plans_size(), 1);
  EXPECT_GE(found.meshes_that_fit(), found.plans_size());
}

TEST(PlanQuery, WhatIsWrongIsNamed) {
  const nn::ModelConfig model = nn::preset_config("gpt2_124m");
  const auto refused = [&](const std::function<void(v1::PlanQuery&)>& change) {
    v1::PlanQuery query;
    change(query);
    return refusal([&] { estimate_plan(model, query); });
  };
  EXPECT_THAT(refused([](auto& q) { q.set_cluster_name("moon"); }), HasSubstr("the clusters are"));
  EXPECT_THAT(refused([](auto& q) { q.set_seq_len(-1); }),
              HasSubstr("seq_len: must be above 0, got -1"));
  EXPECT_THAT(refused([](auto& q) { q.set_seq_len(1 << 25); }), HasSubstr("at most 16777216"));
  EXPECT_THAT(refused([](auto& q) { q.set_micro_batch_size(1 << 21); }),
              HasSubstr("micro_batch_size: must be at most 1048576"));
  EXPECT_THAT(refused([](auto& q) { q.set_optimizer("lion"); }), HasSubstr("optimizer: must be"));
  EXPECT_THAT(refused([](auto& q) { q.mutable_plan()->set_dtype("int8"); }),
              HasSubstr("plan.dtype: must be"));
  EXPECT_THAT(refused([](auto& q) { q.mutable_plan()->set_name("x"); }), HasSubstr("plan.name"));
  EXPECT_THAT(refused([](auto& q) { q.mutable_mesh()->set_tp(-2); }), HasSubstr("tp"));
  EXPECT_THAT(refused([](auto& q) { q.mutable_mesh()->set_tp((1 << 14) + 1); }),
              HasSubstr("mesh.tp: 16385 ranks are too many, expected at most 16384"));
  EXPECT_THAT(refused([](auto& q) { q.mutable_mesh()->set_dp((1 << 20) + 1); }),
              HasSubstr("which are too many: expected at most 1048576"));
  EXPECT_THAT(refused([](auto& q) { q.mutable_mesh()->set_fsdp(INT32_MAX); }),
              HasSubstr("expected at most 1048576"));
  EXPECT_THAT(refused([](auto& q) { q.mutable_cluster()->set_overlap(7); }),
              HasSubstr("overlap 7"));
  EXPECT_THAT(refused([](auto& q) { q.mutable_cluster(); }), HasSubstr("cluster"));
  v1::PlanQuery query;
  EXPECT_THAT(refusal([&] { describe_plan("m", model, query, 1); }), HasSubstr("rank: 1 is not"));
  v1::PlanSearchQuery search;
  search.set_ranks(2);
  search.mutable_query()->mutable_plan()->set_sequence_parallel(true);
  EXPECT_THAT(refusal([&] { search_plans("m", model, search); }),
              HasSubstr("query.plan: the search"));
  search.mutable_query()->clear_plan();
  search.mutable_query()->set_global_batch_size(-3);
  EXPECT_THAT(refusal([&] { search_plans("m", model, search); }),
              HasSubstr("global_batch_size: must be above 0, got -3"));
  search.mutable_query()->clear_global_batch_size();
  search.set_most_plans(-1);
  EXPECT_THAT(refusal([&] { search_plans("m", model, search); }),
              HasSubstr("most_plans: -1 is negative"));
  search.set_ranks(0);
  EXPECT_THAT(refusal([&] { search_plans("m", model, search); }), HasSubstr("ranks: must be at"));
}

TEST(PlanQuery, A0ThatIsWrittenIsRefusedByItsName) {
  const nn::ModelConfig model = nn::preset_config("byte_gpt_tiny");
  std::set<std::string> taken;
  // What a plan says is read as that of a job.
  for (const test::NumericField& field :
       test::numeric_fields(*v1::PlanSearchQuery::descriptor(), {"ParallelPlan"})) {
    if (!field.has_presence()) continue;
    SCOPED_TRACE(field.name());
    v1::PlanSearchQuery search;
    search.set_ranks(2);
    if (field.name().starts_with("query.cluster."))
      *search.mutable_query()->mutable_cluster() = named_cluster("local_cpu");
    field.set_zero(&search);
    const bool of_mesh = field.name().starts_with("query.mesh.");
    const std::string text = refusal([&] {
      if (of_mesh)
        estimate_plan(model, search.query());
      else
        search_plans("m", model, search);
    });
    if (text == "accepted")
      taken.insert(field.name());
    else
      EXPECT_THAT(text, AllOf(HasSubstr(field.leaf() + ": must be "), HasSubstr("got 0")));
  }
  EXPECT_THAT(taken, ::testing::ElementsAre("most_plans"));
  v1::PlanSearchQuery search;
  search.set_ranks(2);
  EXPECT_GT(search_plans("m", model, search).plans_size(), 0);
  search.set_most_plans(0);
  const v1::PlanSearch found = search_plans("m", model, search);
  EXPECT_EQ(found.plans_size(), 0);
  EXPECT_GT(found.meshes_that_fit(), 0);
}

}  // namespace
}  // namespace meshloom::plan
