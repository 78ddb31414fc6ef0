// SPDX-License-Identifier: Apache-2.0
// A projection to classes with its loss that answers itself, on tensors of any class that has
// shape(), at() and values().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/backend.h"

namespace meshloom::testing {

struct OutputLossSizes {
  std::int64_t rows = 1, channels = 1, vocabulary = 2;
};

template <typename Tensor>
struct OutputLossProblem {
  OutputLossSizes n;
  Tensor hidden, weight, bias, targets;
  kernels::CrossEntropyOptions options;
};

/// A fifth of the targets is left out.
template <typename Tensor>
OutputLossProblem<Tensor> random_output_loss(std::mt19937& random, DType dtype,
                                             const OutputLossSizes& n) {
  OutputLossProblem<Tensor> p{n,
                              Tensor(dtype, {n.rows, n.channels}),
                              Tensor(dtype, {n.vocabulary, n.channels}),
                              Tensor(dtype, {n.vocabulary}),
                              Tensor(DType::kInt64, {n.rows}),
                              {}};
  for (const Tensor* t : {&p.hidden, &p.weight, &p.bias}) t->fill_random(random, 0.5);
  for (std::int64_t r = 0; r < n.rows; ++r)
    p.targets.set(r, random() % 5 == 0 ? -100.0
                                       : static_cast<double>(
                                             random() % static_cast<std::uint32_t>(n.vocabulary)));
  p.options.grad_scale = 0.37f;
  return p;
}

struct OutputLossAnswers {
  std::vector<double> losses, dhidden, dweight, dbias;
};

/// The loss of each row and all gradients by textbook formulas in double, on all logits of a row.
template <typename Tensor>
OutputLossAnswers brute_force(const OutputLossProblem<Tensor>& p) {
  const auto [rows, channels, vocabulary] = p.n;
  OutputLossAnswers a;
  a.losses.resize(rows);
  a.dhidden.resize(rows * channels);
  a.dweight.resize(vocabulary * channels);
  a.dbias.resize(vocabulary);
  const std::vector<double> hidden = p.hidden.values(), weight = p.weight.values(),
                            bias = p.bias.values();
  std::vector<double> logits(vocabulary);
  const double smoothing = p.options.label_smoothing;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto target = static_cast<std::int64_t>(p.targets.at(r));
    if (target == p.options.ignore_index) continue;
    double top = -1e300, sum = 0.0, mean = 0.0;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      logits[v] = bias[v];
      for (std::int64_t c = 0; c < channels; ++c)
        logits[v] += hidden[r * channels + c] * weight[v * channels + c];
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
        a.dhidden[r * channels + c] += d * weight[v * channels + c];
        a.dweight[v * channels + c] += d * hidden[r * channels + c];
      }
    }
  }
  return a;
}

struct OutputLossGradients {
  TensorView dhidden, dweight, dbias;
};

/// The whole loss by its pieces, as callers go over them; all logits lie in memory here.
template <typename Tensor>
void run_output_loss(kernels::Backend& backend, const kernels::OutputLossPlan& plan,
                     const kernels::KernelContext& context, const OutputLossProblem<Tensor>& p,
                     const TensorView& losses, const OutputLossGradients& g, bool accumulate) {
  const TensorView hidden = p.hidden.view(), targets = p.targets.view();
  const Tensor logits(plan.logits, {p.n.rows, plan.row});
  const Tensor own(plan.gradient, {p.n.rows, plan.row});
  const Tensor lse(plan.logits, {p.n.rows});
  const auto columns = [&](const Tensor& all, std::int64_t begin, std::int64_t count) {
    TensorView view = rows_of(all.view(), begin, count);
    view.shape[1] = p.n.vocabulary;
    return view;
  };
  const auto projection = [&](std::int64_t begin, std::int64_t count) {
    return kernels::OutputProjection{rows_of(hidden, begin, count), p.weight.view(), p.bias.view()};
  };
  const Tensor& gradients = plan.gradient == plan.logits ? logits : own;
  for (std::int64_t block = 0; block < p.n.rows; block += plan.block) {
    const std::int64_t end = std::min(block + plan.block, p.n.rows);
    for (std::int64_t at = block; at < end; at += plan.chunk) {
      const std::int64_t n = std::min(plan.chunk, end - at);
      const kernels::CrossEntropyRows rows{columns(logits, at, n), rows_of(targets, at, n),
                                           rows_of(losses, at, n), rows_of(lse.view(), at, n)};
      backend.output_loss_chunk(context, rows, projection(at, n), p.options);
      backend.cross_entropy_backward(context, columns(gradients, at, n), {}, rows, p.options);
    }
    backend.output_loss_products(
        context,
        {rows_of(g.dhidden, block, end - block), g.dweight, g.dbias, accumulate || block > 0},
        columns(gradients, block, end - block), projection(block, end - block));
  }
}

}  // namespace meshloom::testing
