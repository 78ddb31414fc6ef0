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
  for (const DType dtype : kFloatDTypes)
    for (const auto& n : sizes) {
      SCOPED_TRACE(fmt::format("{} rows {} classes {}", dtype_name(dtype), n.rows, n.vocabulary));
      OutputLoss p = meshloom::testing::random_output_loss<TestTensor>(random, dtype, n);
      if (n.rows == 30) p.options.label_smoothing = 0.1;
      const OutputLossAnswers want = brute_force(p);
      for_all_settings([&](const KernelContext& context) { check(context, p, want, n.rows > 7); });
      if (HasFatalFailure()) return;
    }
}

/// A loss over the classes [begin, end) of a problem, as a rank has it that holds their slice.
class SliceOfClasses {
 public:
  SliceOfClasses(const OutputLoss& whole, std::int64_t begin, std::int64_t end)
      : begin_(begin),
        targets_({whole.n.rows}, DType::kInt64),
        weight_(rows_of(whole.weight.view(), begin, end - begin)),
        bias_(rows_of(whole.bias.view(), begin, end - begin)),
        options_(whole.options) {
    options_.slice.total = whole.n.vocabulary;
    for (std::int64_t r = 0; r < whole.n.rows; ++r) {
      const double id = whole.targets.at(r);
      const bool inside = id >= static_cast<double>(begin) && id < static_cast<double>(end);
      targets_.set(r, id < 0 ? id : inside ? id - static_cast<double>(begin) : kOtherSlice);
    }
  }

  /// Writes its losses and its lse to `shares` [2, rows].
  void forward(const KernelContext& context, const OutputLoss& whole, const TensorView& shares) {
    const OutputLossPlan plan =
        backend().output_loss_plan(whole.hidden.view(), weight_, weight_.size(0));
    logits_ = TestTensor({whole.n.rows, plan.row}, plan.logits);
    gradient_ = plan.gradient == plan.logits ? logits_
                                             : TestTensor({whole.n.rows, plan.row}, plan.gradient);
    const auto row = [&](std::int64_t at) {
      TensorView view = rows_of(shares, at, 1);
      view.shape = {whole.n.rows};
      view.strides = {1};
      return view;
    };
    backend().output_loss_chunk(context, {columns(logits_), targets_, row(0), row(1)},
                                projection(whole), options_);
  }

  void backward(const KernelContext& context, const OutputLoss& whole, const TensorView& lse,
                const OutputLossGrads& grads) const {
    backend().cross_entropy_backward(context, columns(gradient_), {},
                                     {columns(logits_), targets_, {}, lse}, options_);
    OutputLossGrads own = grads;
    own.dweight = rows_of(grads.dweight, begin_, weight_.size(0));
    own.dbias = rows_of(grads.dbias, begin_, weight_.size(0));
    backend().output_loss_products(context, own, columns(gradient_), projection(whole));
  }

  const TestTensor& targets() const { return targets_; }

 private:
  OutputProjection projection(const OutputLoss& whole) const {
    return {whole.hidden.view(), weight_, bias_};
  }
  TensorView columns(const TestTensor& all) const {
    TensorView view = all.view();
    view.shape[1] = weight_.size(0);
    return view;
  }

  std::int64_t begin_;
  TestTensor targets_, logits_, gradient_;
  TensorView weight_, bias_;
  CrossEntropyOptions options_;
};

void check_slices(const KernelContext& context, const OutputLoss& p,
                  const OutputLossAnswers& want) {
  const DType dtype = p.hidden.dtype();
  const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const std::int64_t rows = p.n.rows, cut = p.n.vocabulary / 3;
  SliceOfClasses slices[] = {{p, 0, cut}, {p, cut, p.n.vocabulary}};
  const TestTensor shares({2, 2, rows}, wide), losses({rows}, wide), lse({rows}, wide);
  for (std::int64_t s = 0; s < 2; ++s) {
    TensorView own = rows_of(shares.view(), s, 1);
    own.shape = {2, rows};
    own.strides = {rows, 1};
    slices[s].forward(context, p, own);
  }
  backend().combine_class_slices(context, {{}, slices[0].targets(), losses, lse}, shares,
                                 p.options.ignore_index);
  const TestTensor dweight(p.weight.shape(), wide), dbias(p.bias.shape(), wide);
  const TestTensor dhidden[] = {{p.hidden.shape(), dtype}, {p.hidden.shape(), dtype}};
  for (int s = 0; s < 2; ++s)
    slices[s].backward(context, p, lse,
                       {.dhidden = dhidden[s], .dweight = dweight, .dbias = dbias});
  const double bound = dtype == DType::kFloat32 ? 1e-5 : dtype == DType::kFloat64 ? 1e-6 : 1e-2;
  expect_near(losses.values(), want.losses, std::min(bound, 1e-5) * 2, "losses");
  // What every rank has of the hidden gradient is added up.
  std::vector<double> sum = dhidden[0].values();
  for (std::int64_t i = 0; i < dhidden[1].numel(); ++i)
    sum[static_cast<std::size_t>(i)] += dhidden[1].at(i);
  expect_near(sum, want.dhidden, bound, "dhidden");
  expect_near(dweight.values(), want.dweight, bound, "dweight");
  expect_near(dbias.values(), want.dbias, bound, "dbias");
}

TEST(OutputLoss, SlicesOfClassesMatchTheWhole) {
  std::mt19937 random(6);
  for (const DType dtype : kFloatDTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    OutputLoss p = meshloom::testing::random_output_loss<TestTensor>(random, dtype, {19, 24, 100});
    p.options.label_smoothing = 0.1;
    const OutputLossAnswers want = brute_force(p);
    for_all_settings([&](const KernelContext& context) { check_slices(context, p, want); });
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace meshloom::kernels::test
