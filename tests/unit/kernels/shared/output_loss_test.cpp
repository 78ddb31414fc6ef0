// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

struct OutputLossSizes {
  std::int64_t rows = 1, channels = 1, vocabulary = 2;
};

struct OutputLoss {
  OutputLossSizes n;
  TestTensor hidden, weight, bias, targets;
  CrossEntropyOptions options;
};

struct OutputLossAnswers {
  std::vector<double> losses, dhidden, dweight, dbias;
};

OutputLoss random_output_loss(std::mt19937& random, DType dtype, const OutputLossSizes& n) {
  OutputLoss p{n,
               TestTensor(dtype, {n.rows, n.channels}),
               TestTensor(dtype, {n.vocabulary, n.channels}),
               TestTensor(dtype, {n.vocabulary}),
               TestTensor(DType::kInt64, {n.rows}),
               {}};
  for (const TestTensor* t : {&p.hidden, &p.weight, &p.bias}) t->fill_random(random, 0.5);
  for (std::int64_t r = 0; r < n.rows; ++r)
    p.targets.set(r, random() % 5 == 0 ? -100.0
                                       : static_cast<double>(
                                             random() % static_cast<std::uint32_t>(n.vocabulary)));
  p.options.grad_scale = 0.37f;
  return p;
}

OutputLossAnswers brute_force(const OutputLoss& p) {
  const auto [rows, channels, vocabulary] = p.n;
  OutputLossAnswers a;
  a.losses.resize(rows);
  a.dhidden.resize(rows * channels);
  a.dweight.resize(vocabulary * channels);
  a.dbias.resize(vocabulary);
  std::vector<double> logits(vocabulary);
  const double smoothing = p.options.label_smoothing;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto target = static_cast<std::int64_t>(p.targets.at(r));
    if (target == p.options.ignore_index) continue;
    double top = -1e300, sum = 0.0, mean = 0.0;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      logits[v] = p.bias.at(v);
      for (std::int64_t c = 0; c < channels; ++c)
        logits[v] += p.hidden.at(r * channels + c) * p.weight.at(v * channels + c);
      top = std::max(top, logits[v]);
      mean += logits[v] / static_cast<double>(vocabulary);
    }
    for (const double x : logits) sum += std::exp(x - top);
    const double lse = top + std::log(sum);
    a.losses[r] = lse - (1.0 - smoothing) * logits[target] - smoothing * mean;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const double d = (std::exp(logits[v] - lse) - (v == target ? 1.0 - smoothing : 0.0) -
                        smoothing / static_cast<double>(vocabulary)) *
                       p.options.grad_scale;
      a.dbias[v] += d;
      for (std::int64_t c = 0; c < channels; ++c) {
        a.dhidden[r * channels + c] += d * p.weight.at(v * channels + c);
        a.dweight[v * channels + c] += d * p.hidden.at(r * channels + c);
      }
    }
  }
  return a;
}

void expect_within(const std::vector<double>& got, const std::vector<double>& want,
                   double tolerance, const char* what) {
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * (1.0 + std::abs(want[i]))) << what << " at " << i;
}

struct OutputLossViews {
  TensorView dhidden, dweight, dbias;
};

/// The whole loss by pieces of few rows, as callers go over them; all logits lie in memory here.
void run_pieces(const KernelContext& context, const OutputLoss& p, const TensorView& losses,
                const OutputLossViews& g, bool accumulate) {
  const TensorView hidden = p.hidden.view(), targets = p.targets.view();
  OutputLossPlan plan = backend().output_loss_plan(hidden, p.weight.view(), p.n.vocabulary);
  ASSERT_GE(plan.row, p.n.vocabulary);
  ASSERT_LE(plan.chunk, plan.block);
  plan.chunk = std::min<std::int64_t>(plan.chunk, 7);
  plan.block = plan.gradient == plan.logits ? plan.chunk : std::min<std::int64_t>(plan.block, 14);
  const TestTensor logits(plan.logits, {p.n.rows, plan.row});
  const TestTensor own(plan.gradient, {p.n.rows, plan.row});
  const TestTensor lse(plan.logits, {p.n.rows});
  const auto columns = [&](const TestTensor& all, std::int64_t begin, std::int64_t count) {
    TensorView view = rows_of(all.view(), begin, count);
    view.shape[1] = p.n.vocabulary;
    return view;
  };
  const auto projection = [&](std::int64_t begin, std::int64_t count) {
    return OutputProjection{rows_of(hidden, begin, count), p.weight.view(), p.bias.view()};
  };
  const TestTensor& gradients = plan.gradient == plan.logits ? logits : own;
  for (std::int64_t block = 0; block < p.n.rows; block += plan.block) {
    const std::int64_t end = std::min(block + plan.block, p.n.rows);
    for (std::int64_t at = block; at < end; at += plan.chunk) {
      const std::int64_t n = std::min(plan.chunk, end - at);
      const CrossEntropyRows rows{columns(logits, at, n), rows_of(targets, at, n),
                                  rows_of(losses, at, n), rows_of(lse.view(), at, n)};
      backend().output_loss_chunk(context, rows, projection(at, n), p.options);
      backend().cross_entropy_backward(context, columns(gradients, at, n), {}, rows, p.options);
    }
    backend().output_loss_products(
        context,
        {rows_of(g.dhidden, block, end - block), g.dweight, g.dbias, accumulate || block > 0},
        columns(gradients, block, end - block), projection(block, end - block));
  }
}

void check(const KernelContext& context, const OutputLoss& p, const OutputLossAnswers& want,
           bool accumulate) {
  const DType dtype = p.hidden.dtype();
  const DType gradient = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const DType loss = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const TestTensor losses({p.n.rows}, loss), dhidden(p.hidden.shape(), dtype);
  const TestTensor dweight(p.weight.shape(), gradient), dbias(p.bias.shape(), gradient);
  dweight.fill(0.25);
  dbias.fill(0.25);
  run_pieces(context, p, losses, {dhidden, dweight, dbias}, accumulate);
  const double bound = dtype == DType::kFloat32 ? 1e-5 : dtype == DType::kFloat64 ? 1e-6 : 5e-3;
  const auto plus_start = [&](std::vector<double> values) {
    for (double& value : values) value += accumulate ? 0.25 : 0.0;
    return values;
  };
  expect_within(losses.values(), want.losses, std::min(bound, 1e-5) * 2, "losses");
  expect_within(dhidden.values(), want.dhidden, bound, "dhidden");
  expect_within(dweight.values(), plus_start(want.dweight), bound, "dweight");
  expect_within(dbias.values(), plus_start(want.dbias), bound, "dbias");
}

TEST(OutputLoss, PiecesMatchBruteForce) {
  std::mt19937 random(5);
  const OutputLossSizes sizes[] = {{1, 1, 2}, {30, 16, 64}, {17, 33, 129}, {7, 7, 33}};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64})
    for (const OutputLossSizes& n : sizes) {
      SCOPED_TRACE(fmt::format("{} rows {} classes {}", dtype_name(dtype), n.rows, n.vocabulary));
      OutputLoss p = random_output_loss(random, dtype, n);
      if (n.rows == 30) p.options.label_smoothing = 0.1;
      const OutputLossAnswers want = brute_force(p);
      for_all_settings([&](const KernelContext& context) { check(context, p, want, n.rows > 7); });
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace meshloom::kernels::test
