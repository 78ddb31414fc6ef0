// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/loss/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Tokens {
  std::vector<float> lp = {-0.2f, -1.5f, -0.9f, -2.3f, -0.05f};
  std::vector<float> q = {-0.5f, -1.2f, -0.9f, -1.3f, -0.75f};
  std::vector<float> advantages = {1.0f, 1.0f, -0.5f, -2.0f, 0.5f};
  std::vector<float> mask = {0.0f, 1.0f, 1.0f, 1.0f, 1.0f};
  std::vector<float> weights = {0.0f, 1.0f, 1.0f, 0.5f, 2.0f};

  v1::Datum datum(const TokenLoss& loss) const {
    v1::Datum datum;
    const auto fill = [](auto* field, const auto& values) {
      for (const float value : values) field->Add(value);
    };
    for (std::size_t t = 0; t < lp.size(); ++t) {
      datum.add_tokens(static_cast<int>(t));
      datum.add_targets(static_cast<int>(t) + 1);
    }
    if (loss.weighted()) {
      fill(datum.mutable_weights(), weights);
      return datum;
    }
    fill(datum.mutable_logprobs(), q);
    fill(datum.mutable_advantages(), advantages);
    if (loss.kind == LossKind::kGspo) fill(datum.mutable_sequence_ratio_mask(), mask);
    return datum;
  }
  DatumLoss run(const TokenLoss& loss) const { return datum_loss(loss, datum(loss), lp); }
};

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

using Config = std::map<std::string, double>;
Config clips(double low, double high) {
  return {{"clip_low_threshold", low}, {"clip_high_threshold", high}};
}

struct Example {
  const char* name;
  Config config;
  double loss;
  std::vector<double> gradients;
  std::vector<double> losses = {};
};

// Worked out in float64; the inputs above are float32.
TEST(Losses, GiveTheWorkedExamples) {
  const double s = 0.8607079764;
  const std::vector<Example> examples = {
      {"cross_entropy", {}, 3.65, {0, -1, -1, -0.5, -2}},
      {"importance_sampling",
       {},
       -1.861794499650,
       {-1.3498588076, -0.7408182207, 0.5, 0.7357588823, -1.0068763537}},
      {"ppo",
       {},
       -0.440818220682,
       {0, -0.7408182207, 0.5, 0, 0},
       {-1.2, -0.7408182207, 0.5, 1.6, -0.6}},
      {"ppo", clips(0.8, 1.2), -0.440818220682, {0, -0.7408182207, 0.5, 0, 0}},
      {"ppo",
       clips(0.5, 2.5),
       -1.597553381993,
       {-1.3498588076, -0.7408182207, 0.5, 0, -1.0068763537}},
      {"cispo",
       {},
       -0.710702519164,
       {-1.3498588076, -0.7408182207, 0.5, 0.7357588823, -1.0068763537},
       {0.2699717615, 1.111227331, -0.45, -1.6922454294, 0.0503438177}},
      {"cispo", clips(0.8, 1.2), -2.66, {-1.2, -0.8, 0.5, 1.6, -0.6}},
      {"dro",
       {},
       -3.28325,
       {-0.985, -1.015, 0.5, 1.95, -0.465},
       {0.20225, 1.50225, -0.45, -4.575, 0.03725}},
      {"dro", {{"beta", 0.5}}, -2.9075, {-0.85, -1.15, 0.5, 1.5, -0.15}},
      {"gspo", {}, 0.0, {-s, -s, s / 2, 2 * s, -s / 2}},
      {"gspo",
       clips(0.9, 1.2),
       0.098230058937,
       {-s, -s, 0, 0, -s / 2},
       {-s, -s, 0.45, 1.8, -0.4303539882}},
  };
  const Tokens tokens;
  for (const Example& example : examples) {
    SCOPED_TRACE(example.name);
    const DatumLoss result = tokens.run(make_token_loss(example.name, example.config));
    EXPECT_NEAR(sum_of(result.losses), example.loss, 1e-6);
    ASSERT_EQ(result.gradients.size(), example.gradients.size());
    for (std::size_t t = 0; t < result.gradients.size(); ++t)
      EXPECT_NEAR(result.gradients[t], example.gradients[t], 1e-6) << "token " << t;
    for (std::size_t t = 0; t < example.losses.size(); ++t)
      EXPECT_NEAR(result.losses[t], example.losses[t], 1e-6) << "token " << t;
  }
}

TEST(Losses, CrossEntropyTakesSeveralTargets) {
  v1::Datum datum;
  datum.set_targets_per_token(2);
  for (const int token : {1, 2}) datum.add_tokens(token);
  for (const int target : {1, 2, 3, 4}) datum.add_targets(target);
  for (const float weight : {0.7f, 0.2f, 0.4f, 0.6f}) datum.add_weights(weight);
  const std::vector<float> lp = {-0.3f, -2.0f, -1.1f, -0.8f};
  const DatumLoss result = datum_loss(make_token_loss("cross_entropy", {}), datum, lp);
  EXPECT_NEAR(sum_of(result.losses), 1.53, 1e-6);
  ASSERT_EQ(result.losses.size(), 2u);
  EXPECT_NEAR(result.losses[0], 0.61, 1e-6);
  EXPECT_THAT(result.gradients, ::testing::Pointwise(::testing::FloatNear(1e-6f),
                                                     std::vector<double>{-0.7, -0.2, -0.4, -0.6}));
}

Tokens random_tokens(std::mt19937_64& rng, int count) {
  std::uniform_real_distribution<float> number(-1.0f, 1.0f);
  Tokens tokens{{}, {}, {}, {}, {}};
  for (int t = 0; t < count; ++t) {
    tokens.lp.push_back(-2.0f + number(rng));
    tokens.q.push_back(-2.0f + number(rng));
    tokens.advantages.push_back(2.0f * number(rng));
    tokens.mask.push_back(t == 0 || number(rng) > 0 ? 1.0f : 0.0f);
    tokens.weights.push_back(3.0f * number(rng));
  }
  return tokens;
}

/// The loss by the formulas of the header, written anew in float64, as a function of lp; sg_lp is
/// what stays behind sg().
double formula(const TokenLoss& loss, const Tokens& x, const std::vector<double>& lp,
               const std::vector<double>& sg_lp) {
  const auto clip = [&](double r) { return std::clamp(r, loss.clip_low, loss.clip_high); };
  double mean = 0.0, masked = 0.0, total = 0.0;
  for (std::size_t t = 0; t < lp.size(); ++t) {
    mean += x.mask[t] != 0.0f ? sg_lp[t] - x.q[t] : 0.0;
    masked += x.mask[t] != 0.0f ? 1.0 : 0.0;
  }
  for (std::size_t t = 0; t < lp.size(); ++t) {
    const double a = x.advantages[t], d = lp[t] - x.q[t], r = std::exp(d);
    const double s = std::exp(mean / masked) * std::exp(lp[t] - sg_lp[t]);
    switch (loss.kind) {
      case LossKind::kCrossEntropy: total -= x.weights[t] * lp[t]; break;
      case LossKind::kImportanceSampling: total -= r * a; break;
      case LossKind::kPpo: total -= std::min(r * a, clip(r) * a); break;
      case LossKind::kCispo: total -= clip(std::exp(sg_lp[t] - x.q[t])) * lp[t] * a; break;
      case LossKind::kDro: total -= lp[t] * a - 0.5 * loss.beta * d * d; break;
      case LossKind::kGspo: total -= std::min(s * a, clip(s) * a); break;
    }
  }
  return total;
}

TEST(Losses, EqualTheFormulasAndTheirDifferences) {
  std::mt19937_64 rng(5);
  for (const char* name : {"cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo"}) {
    SCOPED_TRACE(name);
    for (int draw = 0; draw < 50; ++draw) {
      const Tokens x = random_tokens(rng, 1 + draw % 9);
      const TokenLoss loss = make_token_loss(name, {});
      const DatumLoss result = x.run(loss);
      const std::vector<double> lp(x.lp.begin(), x.lp.end());
      EXPECT_NEAR(sum_of(result.losses), formula(loss, x, lp, lp), 1e-12);
      for (std::size_t t = 0; t < lp.size(); ++t) {
        constexpr double kStep = 1e-6;
        std::vector<double> above = lp, below = lp;
        above[t] += kStep;
        below[t] -= kStep;
        EXPECT_NEAR(result.gradients[t],
                    (formula(loss, x, above, lp) - formula(loss, x, below, lp)) / (2 * kStep), 1e-8)
            << "token " << t;
      }
    }
  }
}

TEST(Losses, AreTiedToEachOther) {
  std::mt19937_64 rng(6);
  for (int draw = 0; draw < 20; ++draw) {
    Tokens x = random_tokens(rng, 7);
    const auto importance = x.run(make_token_loss("importance_sampling", {}));
    const auto open_ppo = x.run(make_token_loss("ppo", clips(0.0, kInfinity)));
    EXPECT_EQ(open_ppo.losses, importance.losses);
    EXPECT_EQ(open_ppo.gradients, importance.gradients);
    const auto open_cispo = x.run(make_token_loss("cispo", clips(0.0, kInfinity)));
    EXPECT_EQ(open_cispo.gradients, importance.gradients);
    EXPECT_NE(open_cispo.losses, importance.losses);

    Tokens one = random_tokens(rng, 1);
    const auto ppo = one.run(make_token_loss("ppo", {}));
    const auto gspo = one.run(make_token_loss("gspo", {}));
    EXPECT_NEAR(gspo.losses[0], ppo.losses[0], 1e-14);
    EXPECT_NEAR(gspo.gradients[0], ppo.gradients[0], 1e-14);

    x.q = x.lp;
    const auto on_policy = x.run(make_token_loss("importance_sampling", {}));
    for (std::size_t t = 0; t < x.lp.size(); ++t)
      EXPECT_EQ(on_policy.gradients[t], -static_cast<double>(x.advantages[t]));
  }
}

TEST(Losses, TellMetrics) {
  const Tokens tokens;
  const auto metrics = [&](const char* name) {
    const TokenLoss loss = make_token_loss(name, {});
    LossMetrics sums;
    for (int i = 0; i < 2; ++i) sums.add(loss, tokens.datum(loss), tokens.lp, tokens.run(loss));
    return sums.values(loss);
  };
  const auto cross_entropy = metrics("cross_entropy");
  EXPECT_EQ(cross_entropy.size(), 2u);
  EXPECT_NEAR(cross_entropy.at("loss:sum"), 7.3, 1e-5);
  EXPECT_EQ(cross_entropy.at("tokens:sum"), 8.0);  // a weight is 0
  const auto ppo = metrics("ppo");
  EXPECT_EQ(ppo.at("tokens:sum"), 10.0);
  EXPECT_NEAR(ppo.at("kl:sum"), 2 * (-0.3 + 0.3 + 0.0 + 1.0 - 0.7), 1e-6);
  EXPECT_NEAR(ppo.at("ratio:min"), 0.3678794412, 1e-6);
  EXPECT_NEAR(ppo.at("ratio:max"), 2.0137527075, 1e-6);
  EXPECT_NEAR(metrics("gspo").at("kl:sum"), 2 * (0.3 + 0.0 + 1.0 - 0.7), 1e-6);
  EXPECT_NEAR(metrics("gspo").at("ratio:max"), 0.8607079764, 1e-6);
  EXPECT_FALSE(metrics("dro").contains("ratio:min"));
}

std::string field_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.metadata().at("field");
  }
  return "none";
}

TEST(Losses, RefuseUnknownNamesAndConfig) {
  EXPECT_EQ(field_of([] { make_token_loss("reinforce", {}); }), "loss");
  EXPECT_EQ(field_of([] { make_token_loss("", {}); }), "loss");
  EXPECT_EQ(field_of([] { make_token_loss("ppo", {{"beta", 0.1}}); }), "loss_config[beta]");
  EXPECT_EQ(field_of([] { make_token_loss("cross_entropy", clips(0.8, 1.2)); }),
            "loss_config[clip_high_threshold]");
  EXPECT_EQ(field_of([] { make_token_loss("dro", {{"beta", -1.0}}); }), "loss_config[beta]");
  EXPECT_EQ(field_of([] {
              make_token_loss("dro", {{"beta", std::nan("")}});
            }),
            "loss_config[beta]");
  EXPECT_EQ(field_of([] { make_token_loss("ppo", clips(-0.1, 1.2)); }),
            "loss_config[clip_low_threshold]");
  EXPECT_EQ(field_of([] { make_token_loss("gspo", clips(0.9, 0.8)); }),
            "loss_config[clip_high_threshold]");
  EXPECT_EQ(field_of([] { make_token_loss("cispo", clips(0.0, std::nan(""))); }),
            "loss_config[clip_high_threshold]");
}

TEST(Losses, NameTheTokenThatIsNotFinite) {
  const auto error_of = [](const char* name, const Tokens& tokens) -> std::string {
    const TokenLoss loss = make_token_loss(name, {});
    try {
      check_finite(loss, tokens.datum(loss), 3, tokens.lp, tokens.run(loss));
    } catch (const NumericError& error) {
      EXPECT_EQ(error.reason(), "NON_FINITE_LOSS");
      return error.what();
    }
    return "none";
  };
  for (const char* name : {"cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo"})
    EXPECT_EQ(error_of(name, {}), "none");
  Tokens far;
  far.q[2] = -1e6f;
  EXPECT_THAT(error_of("ppo", far), HasSubstr("data[3], token 2: the ratio exp(lp - q) is inf in "
                                              "loss ppo (clip_low_threshold 0.8, "
                                              "clip_high_threshold 1.2)"));
  EXPECT_THAT(error_of("gspo", far), HasSubstr("token 0: the ratio"));
  EXPECT_EQ(error_of("dro", far), "none");
  Tokens bad;
  bad.lp[4] = std::nanf("");
  EXPECT_THAT(error_of("cross_entropy", bad), HasSubstr("token 4: the log-prob of its target is"));
}

}  // namespace
}  // namespace meshloom::train
