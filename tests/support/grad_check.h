// SPDX-License-Identifier: Apache-2.0
// Gradients against central differences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/tensor.h"
#include "tests/support/random_tensor.h"

namespace meshloom::test {

using TensorFunction = std::function<Tensor(const std::vector<Tensor>&)>;

struct GradCheckOptions {
  double step = 1e-5;
  double tolerance = 1e-6;  ///< of abs(difference) / max(1, abs(expected))
};

/// sum(function(inputs) * weights), in double.
inline double weighted_sum(const TensorFunction& function, const std::vector<Tensor>& inputs,
                           const std::vector<double>& weights) {
  const std::vector<double> y = function(inputs).to_vector();
  double sum = 0.0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
  return sum;
}

/// Checks d sum(function(inputs) * weights) / d inputs[i] for random weights and every input of
/// dtype float64 (others are constants). `function` returns one tensor.
inline void expect_gradients(const TensorFunction& function, std::vector<Tensor> inputs,
                             const GradCheckOptions& options = {}) {
  ExecutionContext& context = inputs.at(0).context();
  for (Tensor& t : inputs)
    if (t.dtype() == DType::kFloat64) t.set_requires_grad(true);
  std::mt19937_64 rng(7);
  const Tensor y = function(inputs);
  const std::vector<double> weights = random_values(y.numel(), rng, -1.0, 1.0);
  const Tensor dy = from_values(context, y.shape(), weights, y.dtype());
  autograd::backward(std::span(&y, 1), std::span(&dy, 1));

  const NoGradGuard guard(context);
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    if (inputs[n].dtype() != DType::kFloat64) continue;
    ASSERT_TRUE(inputs[n].grad().defined()) << "input " << n << " got no gradient";
    const std::vector<double> seen = inputs[n].grad().to_vector();
    const std::vector<double> values = inputs[n].to_vector();
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto moved = [&](double distance) {
        std::vector<double> changed = values;
        changed[i] += distance;
        std::vector<Tensor> arguments = inputs;
        arguments[n] = from_values(context, inputs[n].shape(), changed, DType::kFloat64);
        return weighted_sum(function, arguments, weights);
      };
      const double expected = (moved(options.step) - moved(-options.step)) / (2 * options.step);
      const double error = std::abs(seen[i] - expected) / std::max(1.0, std::abs(expected));
      ASSERT_LE(error, options.tolerance) << "input " << n << " element " << i << ": gradient "
                                          << seen[i] << ", by differences " << expected;
    }
  }
}

/// Every element within absolute + relative * abs(expected).
inline void expect_near(const Tensor& seen, const std::vector<double>& expected, double absolute,
                        double relative = 0.0) {
  const std::vector<double> values = seen.to_vector();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], absolute + relative * std::abs(expected[i]))
        << "element " << i;
}

}  // namespace meshloom::test
