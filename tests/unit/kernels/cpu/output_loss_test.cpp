// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/expect_near.h"
#include "tests/support/output_loss_problem.h"
#include "tests/unit/kernels/cpu/compute_fixture.h"

namespace meshloom::kernels::cpu {
namespace {

using testing::HeapWorkspace;
using testing::HostTensor;

using meshloom::testing::brute_force;
using meshloom::testing::expect_near;
using meshloom::testing::random_output_loss;
using Answers = meshloom::testing::OutputLossAnswers;
using Problem = meshloom::testing::OutputLossProblem<HostTensor>;

void check(const Problem& p, int threads, bool accumulate) {
  const Answers want = brute_force(p);
  const DType dtype = p.hidden.view().dtype;
  const DType gradient = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const HostTensor losses(DType::kFloat32, {p.n.rows}), dhidden(dtype, p.hidden.shape());
  const HostTensor dweight(gradient, p.weight.shape()), dbias(gradient, p.bias.shape());
  const double before = accumulate ? 0.25 : 0.0;
  for (const HostTensor* t : {&dweight, &dbias})
    for (std::int64_t i = 0; i < t->numel(); ++i) t->set(i, 0.25);
  HeapWorkspace workspace;
  const OutputLossPlan plan =
      cpu_backend().output_loss_plan(p.hidden.view(), p.weight.view(), p.n.vocabulary);
  ASSERT_GE(plan.row, p.n.vocabulary);
  ASSERT_LE(plan.chunk, plan.block);
  run_output_loss(cpu_backend(), plan, {{threads}, {}, &workspace}, p, losses.view(),
                  {dhidden.view(), dweight.view(), dbias.view()}, accumulate);
  const double tolerance = dtype == DType::kFloat32 ? 1e-5 : dtype == DType::kFloat64 ? 1e-6 : 5e-3;
  expect_near(losses.values(), want.losses, std::min(tolerance, 1e-5) * 2, "losses");
  expect_near(dhidden.values(), want.dhidden, tolerance, "dhidden");
  std::vector<double> dw = want.dweight, db = want.dbias;
  for (double& x : dw) x += before;
  for (double& x : db) x += before;
  expect_near(dweight.values(), dw, tolerance, "dweight");
  expect_near(dbias.values(), db, tolerance, "dbias");
}

// More logits than one chunk holds, and in bfloat16 more than a block of gradients.
TEST(OutputLoss, ChunksAddUpWithinTheMemoryLimit) {
  std::mt19937 random(6);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Problem p = random_output_loss<HostTensor>(random, dtype, {900, 2, 30000});
    const OutputLossPlan plan =
        cpu_backend().output_loss_plan(p.hidden.view(), p.weight.view(), 30000);
    EXPECT_LT(plan.block, 900);
    EXPECT_LE(plan.chunk * plan.row * 4, 52 << 20);
    check(p, 2, true);
  }
}

TEST(OutputLoss, PlansDependOnTheWidestSlice) {
  const HostTensor hidden(DType::kFloat32, {1000, 2}), narrow(DType::kFloat32, {3, 2}),
      wide(DType::kFloat32, {40000, 2});
  const OutputLossPlan a = cpu_backend().output_loss_plan(hidden.view(), narrow.view(), 40000);
  const OutputLossPlan b = cpu_backend().output_loss_plan(hidden.view(), wide.view(), 40000);
  EXPECT_EQ(a.chunk, b.chunk);
  EXPECT_EQ(a.block, b.block);
  EXPECT_LT(a.chunk, 1000);
}

}  // namespace
}  // namespace meshloom::kernels::cpu
