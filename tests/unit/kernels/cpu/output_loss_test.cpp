// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/kernels/cpu/compute_fixture.h"

namespace meshloom::kernels::cpu {
namespace {

using testing::HeapWorkspace;
using testing::HostTensor;

struct Sizes {
  std::int64_t rows = 1, channels = 1, vocabulary = 2;
};

struct Problem {
  Sizes n;
  HostTensor hidden, weight, bias, targets;
  CrossEntropyOptions options;
};

struct Answers {
  std::vector<double> losses, dhidden, dweight, dbias;
};

Problem random_problem(std::mt19937& random, DType dtype, const Sizes& n) {
  Problem p{n,
            HostTensor(dtype, {n.rows, n.channels}),
            HostTensor(dtype, {n.vocabulary, n.channels}),
            HostTensor(dtype, {n.vocabulary}),
            HostTensor(DType::kInt64, {n.rows}),
            {}};
  for (const HostTensor* t : {&p.hidden, &p.weight, &p.bias}) t->fill_random(random, 0.5);
  for (std::int64_t r = 0; r < n.rows; ++r)
    p.targets.set(r, random() % 5 == 0 ? -100.0
                                       : static_cast<double>(
                                             random() % static_cast<std::uint32_t>(n.vocabulary)));
  p.options.grad_scale = 0.37f;
  return p;
}

Answers brute_force(const Problem& p) {
  const auto [rows, channels, vocabulary] = p.n;
  Answers a;
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

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                 const char* what) {
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * (1.0 + std::abs(want[i]))) << what << " at " << i;
}

struct Gradients {
  TensorView dhidden, dweight, dbias;
};

/// The whole loss by its pieces, as callers go over them; all logits lie in memory here.
void run(const KernelContext& context, const Problem& p, const TensorView& losses,
         const Gradients& g, bool accumulate) {
  const TensorView hidden = p.hidden.view(), targets = p.targets.view();
  const OutputLossPlan plan =
      cpu_backend().output_loss_plan(hidden, p.weight.view(), p.n.vocabulary);
  ASSERT_GE(plan.row, p.n.vocabulary);
  ASSERT_LE(plan.chunk, plan.block);
  const HostTensor logits(plan.logits, {p.n.rows, plan.row});
  const HostTensor own(plan.gradient, {p.n.rows, plan.row});
  const HostTensor lse(plan.logits, {p.n.rows});
  const auto columns = [&](const HostTensor& all, std::int64_t begin, std::int64_t count) {
    TensorView view = rows_of(all.view(), begin, count);
    view.shape[1] = p.n.vocabulary;
    return view;
  };
  const auto projection = [&](std::int64_t begin, std::int64_t count) {
    return OutputProjection{rows_of(hidden, begin, count), p.weight.view(), p.bias.view()};
  };
  const HostTensor& gradients = plan.gradient == plan.logits ? logits : own;
  for (std::int64_t block = 0; block < p.n.rows; block += plan.block) {
    const std::int64_t end = std::min(block + plan.block, p.n.rows);
    for (std::int64_t at = block; at < end; at += plan.chunk) {
      const std::int64_t n = std::min(plan.chunk, end - at);
      const CrossEntropyRows rows{columns(logits, at, n), rows_of(targets, at, n),
                                  rows_of(losses, at, n), rows_of(lse.view(), at, n)};
      cpu_backend().output_loss_chunk(context, rows, projection(at, n), p.options);
      cpu_backend().cross_entropy_backward(context, columns(gradients, at, n), {}, rows, p.options);
    }
    cpu_backend().output_loss_products(
        context,
        {rows_of(g.dhidden, block, end - block), g.dweight, g.dbias, accumulate || block > 0},
        columns(gradients, block, end - block), projection(block, end - block));
  }
}

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
  run({{threads}, {}, &workspace}, p, losses.view(), {dhidden.view(), dweight.view(), dbias.view()},
      accumulate);
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
    const Problem p = random_problem(random, dtype, {900, 2, 30000});
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
