// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernels/cpu/kernel_test.h"

namespace meshloom::kernels::test {
namespace {

// Parameters of uneven sizes with gradients; the state is kept in double beside.
struct Problem {
  explicit Problem(Rng& rng) {
    for (const std::int64_t n : {70001, 3, 1, 0, 129}) {
      master.push_back(random_tensor({n}, DType::kFloat32, rng));
      grad.push_back(random_tensor({n}, DType::kFloat32, rng));
      moment1.push_back(HostTensor({n}, DType::kFloat32));
      moment2.push_back(HostTensor({n}, DType::kFloat32));
      working.push_back(HostTensor({n}, DType::kBFloat16));
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
        ASSERT_EQ(working[k].get(i),
                  static_cast<float>(bfloat16(static_cast<float>(master[k].get(i)))));
    }
  }

  std::vector<HostTensor> master, grad, moment1, moment2, working;
  std::vector<float> decay;
  std::vector<std::vector<double>> p, m, v;
};

// Adam by its definition.
void adam_reference(Problem& problem, const AdamOptions& o, double factor) {
  for (std::size_t k = 0; k < problem.p.size(); ++k)
    for (std::size_t i = 0; i < problem.p[k].size(); ++i) {
      double& p = problem.p[k][i];
      double g = problem.grad[k].get(i) * factor;
      if (o.decoupled)
        p -= o.lr * problem.decay[k] * p;
      else
        g += problem.decay[k] * p;
      double& m = problem.m[k][i];
      double& v = problem.v[k][i];
      m = o.beta1 * m + (1 - static_cast<double>(o.beta1)) * g;
      v = o.beta2 * v + (1 - static_cast<double>(o.beta2)) * g * g;
      const double m_hat = m / (1 - std::pow(o.beta1, o.step));
      const double v_hat = v / (1 - std::pow(o.beta2, o.step));
      p -= o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
}

void sgd_reference(Problem& problem, const SgdOptions& o, double factor) {
  for (std::size_t k = 0; k < problem.p.size(); ++k)
    for (std::size_t i = 0; i < problem.p[k].size(); ++i) {
      double& p = problem.p[k][i];
      double g = problem.grad[k].get(i) * factor + problem.decay[k] * p;
      if (o.momentum != 0.0f) {
        double& m = problem.m[k][i];
        m = o.step == 1 ? g : o.momentum * m + (1.0 - o.dampening) * g;
        g = o.nesterov ? g + o.momentum * m : m;
      }
      p -= o.lr * g;
    }
}

TEST(Adam, FiveStepsMatchTheDefinition) {
  const float factor = 0.7f;
  for (const bool decoupled : {false, true}) {
    for (const bool with_working : {false, true}) {
      for_all_settings([&](const KernelContext& context) {
        Rng rng(1);
        Problem problem(rng);
        AdamOptions options;
        options.lr = 0.01f;
        options.beta2 = 0.95f;
        options.decoupled = decoupled;
        options.grad_factor = with_working ? &factor : nullptr;
        for (options.step = 1; options.step <= 5; ++options.step) {
          backend().adam_step(context, problem.tensors(with_working), options);
          adam_reference(problem, options, with_working ? factor : 1.0);
        }
        problem.expect_matches(with_working);
      });
    }
  }
}

TEST(Adam, ThreadsDoNotChangeBits) {
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 2, 3, 7}) {
    Rng rng(2);
    Problem problem(rng);
    KernelContext context;
    context.threads = {threads};
    AdamOptions options;
    options.lr = 0.01f;
    backend().adam_step(context, problem.tensors(false), options);
    results.push_back(problem.master[0].values());
    EXPECT_EQ(results.back(), results.front());
  }
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
      Problem problem(rng);
      SgdOptions options;
      options.lr = 0.05f;
      options.momentum = variant.momentum;
      options.dampening = variant.dampening;
      options.nesterov = variant.nesterov;
      options.grad_factor = &factor;
      for (options.step = 1; options.step <= 4; ++options.step) {
        backend().sgd_step(context, problem.tensors(true), options);
        sgd_reference(problem, options, factor);
      }
      problem.expect_matches(true);
    });
  }
}

TEST(Sgd, MomentumBufferMayBeMissing) {
  Rng rng(4);
  const HostTensor master = random_tensor({10}, DType::kFloat32, rng);
  const HostTensor grad = random_tensor({10}, DType::kFloat32, rng);
  const std::vector<double> before = master.values();
  const std::vector<OptimizerTensor> tensors{{master, grad, {}, {}, {}, 0.0f}};
  SgdOptions options;
  options.lr = 1.0f;
  backend().sgd_step({}, tensors, options);
  for (int i = 0; i < 10; ++i) EXPECT_FLOAT_EQ(master.get(i), before[i] - grad.get(i));
}

}  // namespace
}  // namespace meshloom::kernels::test
