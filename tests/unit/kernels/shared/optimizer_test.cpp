// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "kernels/base/half.h"
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

// Parameters of uneven sizes with gradients; the state is kept in double beside.
struct OptimizerProblem {
  explicit OptimizerProblem(Rng& rng) {
    for (const std::int64_t n : {9001, 3, 1, 0, 129}) {
      master.push_back(random_tensor({n}, DType::kFloat32, rng));
      grad.push_back(random_tensor({n}, DType::kFloat32, rng));
      moment1.push_back(zeros({n}, DType::kFloat32));
      moment2.push_back(zeros({n}, DType::kFloat32));
      working.push_back(zeros({n}, DType::kBFloat16));
      decay.push_back(0.1f * static_cast<float>(decay.size()));
      p.push_back(master.back().values());
      m.push_back(moment1.back().values());
      v.push_back(moment2.back().values());
    }
  }
  std::vector<OptimizerTensor> tensors(bool with_working) const {
    std::vector<OptimizerTensor> out;
    for (std::size_t k = 0; k < master.size(); ++k)
      out.push_back({master[k], grad[k], moment1[k], moment2[k],
                     with_working && k % 2 == 0 ? working[k].view() : TensorView{}, decay[k]});
    return out;
  }
  void expect_matches(bool with_working) const {
    for (std::size_t k = 0; k < master.size(); ++k) {
      expect_close(master[k].values(), p[k], 2e-6);
      expect_close(moment1[k].values(), m[k], 2e-6);
      expect_close(moment2[k].values(), v[k], 2e-6);
      if (!with_working || k % 2 != 0) continue;
      for (std::int64_t i = 0; i < master[k].numel(); ++i)
        ASSERT_EQ(working[k].at(i),
                  static_cast<float>(bfloat16(static_cast<float>(master[k].at(i)))));
    }
  }

  std::vector<TestTensor> master, grad, moment1, moment2, working;
  std::vector<float> decay;
  std::vector<std::vector<double>> p, m, v;
};

// What a step reads from device memory.
struct Scalars {
  explicit Scalars(double rate) { lr.set(0, rate); }
  StepScalars views(std::int64_t number) {
    step.set(0, static_cast<double>(number));
    return {lr, step, clipped ? grad_factor.view() : TensorView{},
            clipped ? grad_norm.view() : TensorView{}, clipped ? loss.view() : TensorView{}};
  }
  void clip(double factor, double norm) {
    grad_factor.set(0, factor);
    grad_norm.set(0, norm);
    clipped = true;
  }

  TestTensor lr{{1}, DType::kFloat32}, step{{1}, DType::kInt64};
  TestTensor grad_factor{{1}, DType::kFloat32}, grad_norm{{1}, DType::kFloat32};
  TestTensor loss = zeros({1}, DType::kFloat64);
  bool clipped = false;
};

// Adam by its definition.
void adam_reference(OptimizerProblem& problem, const AdamOptions& o, double lr, int step,
                    double factor) {
  for (std::size_t k = 0; k < problem.p.size(); ++k)
    for (std::size_t i = 0; i < problem.p[k].size(); ++i) {
      double& p = problem.p[k][i];
      double g = problem.grad[k].at(i) * factor;
      if (o.decoupled)
        p -= lr * problem.decay[k] * p;
      else
        g += problem.decay[k] * p;
      double& m = problem.m[k][i];
      double& v = problem.v[k][i];
      m = o.beta1 * m + (1 - static_cast<double>(o.beta1)) * g;
      v = o.beta2 * v + (1 - static_cast<double>(o.beta2)) * g * g;
      const double m_hat = m / (1 - std::pow(o.beta1, step));
      const double v_hat = v / (1 - std::pow(o.beta2, step));
      p -= lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
}

void sgd_reference(OptimizerProblem& problem, const SgdOptions& o, double lr, int step,
                   double factor) {
  for (std::size_t k = 0; k < problem.p.size(); ++k)
    for (std::size_t i = 0; i < problem.p[k].size(); ++i) {
      double& p = problem.p[k][i];
      double g = problem.grad[k].at(i) * factor + problem.decay[k] * p;
      if (o.momentum != 0.0f) {
        double& m = problem.m[k][i];
        m = step == 1 ? g : o.momentum * m + (1.0 - o.dampening) * g;
        g = o.nesterov ? g + o.momentum * m : m;
      }
      p -= lr * g;
    }
}

TEST(Adam, FiveStepsMatchTheDefinition) {
  const float factor = 0.7f;
  for (const bool decoupled : {false, true}) {
    for (const bool with_working : {false, true}) {
      for_all_settings([&](const KernelContext& context) {
        Rng rng(1);
        OptimizerProblem problem(rng);
        AdamOptions options;
        options.beta2 = 0.95f;
        options.decoupled = decoupled;
        Scalars scalars(0.01f);
        if (with_working) scalars.clip(factor, 3.0);
        for (int step = 1; step <= 5; ++step) {
          backend().adam_step(context, problem.tensors(with_working), scalars.views(step), options);
          adam_reference(problem, options, 0.01f, step, with_working ? factor : 1.0);
        }
        problem.expect_matches(with_working);
      });
    }
  }
}

TEST(Step, ANormOrLossThatIsNotFiniteLeavesEverythingAsItIs) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<double, double>> pairs{
      {nan, 2.0}, {infinity, 2.0}, {1.0, nan}, {1.0, -infinity}, {1.0, infinity}};
  for (const auto& [norm, loss] : pairs) {
    Rng rng(5);
    OptimizerProblem problem(rng);
    Scalars scalars(0.01f);
    scalars.clip(0.5, norm);
    scalars.loss.set(0, loss);
    backend().adam_step(test_context(), problem.tensors(true), scalars.views(1), {});
    backend().sgd_step(test_context(), problem.tensors(true), scalars.views(1), {.momentum = 0.9f});
    for (std::size_t k = 0; k < problem.master.size(); ++k) {
      EXPECT_EQ(problem.master[k].values(), problem.p[k]);
      EXPECT_EQ(problem.moment1[k].values(), problem.m[k]);
      EXPECT_EQ(problem.moment2[k].values(), problem.v[k]);
      for (const double value : problem.working[k].values()) EXPECT_EQ(value, 0.0);
    }
  }
}

TEST(ClipFactor, IsTheQuotientOfTheNormsOrOne) {
  const TestTensor norm({1}, DType::kFloat32), factor({1}, DType::kFloat32);
  TestTensor squares({1}, DType::kFloat64);
  const auto factor_of = [&](double sum, double max_norm) {
    squares.set(0, sum);
    backend().clip_factor(test_context(), norm, factor, squares, max_norm);
    return factor.at(0);
  };
  EXPECT_FLOAT_EQ(factor_of(16.0, 1.0), 1.0f / (4.0f + 1e-6f));
  EXPECT_EQ(norm.at(0), 4.0);
  EXPECT_EQ(factor_of(16.0, 5.0), 1.0);
  EXPECT_EQ(factor_of(16.0, 0.0), 1.0);
  EXPECT_EQ(factor_of(0.0, 1.0), 1.0);
  factor_of(std::nan(""), 1.0);
  EXPECT_TRUE(std::isnan(norm.at(0)));
}

TEST(Sgd, MatchesTheDefinition) {
  struct Variant {
    float momentum, dampening;
    bool nesterov;
  };
  const float factor = 0.5f;
  for (const Variant& variant : {Variant{0.0f, 0.0f, false}, Variant{0.9f, 0.0f, false},
                                 Variant{0.9f, 0.3f, false}, Variant{0.8f, 0.0f, true}}) {
    for_all_settings([&](const KernelContext& context) {
      Rng rng(3);
      OptimizerProblem problem(rng);
      SgdOptions options;
      options.momentum = variant.momentum;
      options.dampening = variant.dampening;
      options.nesterov = variant.nesterov;
      Scalars scalars(0.05f);
      scalars.clip(factor, 3.0);
      for (int step = 1; step <= 4; ++step) {
        backend().sgd_step(context, problem.tensors(true), scalars.views(step), options);
        sgd_reference(problem, options, 0.05f, step, factor);
      }
      problem.expect_matches(true);
    });
  }
}

TEST(Sgd, MomentumBufferMayBeMissing) {
  Rng rng(4);
  const TestTensor master = random_tensor({10}, DType::kFloat32, rng);
  const TestTensor grad = random_tensor({10}, DType::kFloat32, rng);
  const std::vector<double> before = master.values();
  const std::vector<OptimizerTensor> tensors{{master, grad, {}, {}, {}, 0.0f}};
  backend().sgd_step(test_context(), tensors, Scalars(1.0).views(1), {});
  for (int i = 0; i < 10; ++i) EXPECT_FLOAT_EQ(master.at(i), before[i] - grad.at(i));
}

}  // namespace
}  // namespace meshloom::kernels::test
