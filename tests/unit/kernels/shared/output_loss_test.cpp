// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/support/expect_near.h"
#include "tests/support/output_loss_problem.h"
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

using meshloom::testing::expect_near;
using meshloom::testing::OutputLossAnswers;
using OutputLoss = meshloom::testing::OutputLossProblem<TestTensor>;

void check(const KernelContext& context, const OutputLoss& p, const OutputLossAnswers& want,
           bool accumulate) {
  const DType dtype = p.hidden.dtype();
  const DType gradient = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const DType loss = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const TestTensor losses({p.n.rows}, loss), dhidden(p.hidden.shape(), dtype);
  const TestTensor dweight(p.weight.shape(), gradient), dbias(p.bias.shape(), gradient);
  dweight.fill(0.25);
  dbias.fill(0.25);
  OutputLossPlan plan =
      backend().output_loss_plan(p.hidden.view(), p.weight.view(), p.n.vocabulary);
  ASSERT_GE(plan.row, p.n.vocabulary);
  ASSERT_LE(plan.chunk, plan.block);
  // Pieces of few rows, so that there are several.
  plan.chunk = std::min<std::int64_t>(plan.chunk, 7);
  plan.block = plan.gradient == plan.logits ? plan.chunk : std::min<std::int64_t>(plan.block, 14);
  run_output_loss(backend(), plan, context, p, losses, {dhidden, dweight, dbias}, accumulate);
  const double bound = dtype == DType::kFloat32 ? 1e-5 : dtype == DType::kFloat64 ? 1e-6 : 5e-3;
  const auto plus_start = [&](std::vector<double> values) {
    for (double& value : values) value += accumulate ? 0.25 : 0.0;
    return values;
  };
  expect_near(losses.values(), want.losses, std::min(bound, 1e-5) * 2, "losses");
  expect_near(dhidden.values(), want.dhidden, bound, "dhidden");
  expect_near(dweight.values(), plus_start(want.dweight), bound, "dweight");
  expect_near(dbias.values(), plus_start(want.dbias), bound, "dbias");
}

TEST(OutputLoss, PiecesMatchBruteForce) {
  std::mt19937 random(5);
  const meshloom::testing::OutputLossSizes sizes[] = {
      {1, 1, 2}, {30, 16, 64}, {17, 33, 129}, {7, 7, 33}};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64})
    for (const auto& n : sizes) {
      SCOPED_TRACE(fmt::format("{} rows {} classes {}", dtype_name(dtype), n.rows, n.vocabulary));
      OutputLoss p = meshloom::testing::random_output_loss<TestTensor>(random, dtype, n);
      if (n.rows == 30) p.options.label_smoothing = 0.1;
      const OutputLossAnswers want = brute_force(p);
      for_all_settings([&](const KernelContext& context) { check(context, p, want, n.rows > 7); });
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace meshloom::kernels::test
