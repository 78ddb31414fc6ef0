// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "kernels/base/philox.h"
#include "tests/support/generate.h"
#include "tests/support/test_context.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::nn {
namespace {

using meshloom::testing::generate;
using meshloom::testing::make_random_model;
using meshloom::testing::random_ids;

class Decode : public ::testing::TestWithParam<ModelConfig (*)()> {};
INSTANTIATE_TEST_SUITE_P(Causal, Decode,
                         ::testing::Values(&meshloom::testing::tiny_gpt2,
                                           &meshloom::testing::tiny_llama,
                                           &meshloom::testing::tiny_qwen3));

TEST_P(Decode, EqualsTheFullForward) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  const Tensor ids = random_ids(context, 2, 24, 37, 3);
  Batch batch;
  batch.input_ids = ids;
  const std::vector<double> full = model->logits(batch, {}).to_vector();
  for (const std::vector<std::int64_t>& pieces : {std::vector<std::int64_t>{24},
                                                  {7, 1, 1, 5, 10},
                                                  std::vector<std::int64_t>(24, 1),
                                                  {1, 23}}) {
    for (std::int64_t row = 0; row < 2; ++row) {
      const auto cache = model->make_cache(24);
      std::int64_t end = 0;
      for (std::int64_t piece : pieces) {
        const Tensor whole = ops::slice(ids, 0, row, row + 1);
        const Tensor part = ops::contiguous(ops::slice(whole, 1, end, end + piece));
        end += piece;
        const Tensor logits = model->decode(part, *cache);
        ASSERT_EQ(logits.shape(), (Shape{1, 37}));
        ASSERT_EQ(logits.dtype(), DType::kFloat32);
        const std::vector<double> got = logits.to_vector();
        for (std::int64_t v = 0; v < 37; ++v)
          EXPECT_NEAR(got[static_cast<std::size_t>(v)],
                      full[static_cast<std::size_t>((row * 24 + end - 1) * 37 + v)], 1e-5);
      }
      EXPECT_EQ(cache->length(), 24);
      EXPECT_THROW(model->decode(random_ids(context, 1, 1, 37, 1), *cache), InvalidArgument);
    }
  }
  EXPECT_THROW(model->make_cache(25), InvalidArgument);
}

TEST_P(Decode, TellsInBfloat16TheLogProbsThatLossesRead) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()(), DType::kBFloat16);
  const NoGradGuard no_grad(context);
  // Logits of trained models are as large: rounded to bfloat16 they would be off by 0.1.
  for (const NamedParameter& p : model->named_parameters())
    if (p.name == "transformer.ln_f.weight" || p.name == "model.norm.weight")
      copy_into(p.parameter->value, ops::mul(p.parameter->value, 16.0));
  const std::int64_t length = 24, vocabulary = 37;
  Batch batch;
  batch.input_ids = random_ids(context, 1, length, vocabulary, 3);
  const auto cache = model->make_cache(length);
  const std::vector<double> logits = model->decode(batch.input_ids, *cache).to_vector();
  double sum = 0.0;
  for (const double logit : logits) sum += std::exp(logit);
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    batch.labels = from_values(context, {1, length},
                               std::span<const std::int64_t>(
                                   std::vector<std::int64_t>(static_cast<std::size_t>(length), v)));
    const double loss = model->token_losses(batch, {}).to_vector().back();
    EXPECT_NEAR(logits[static_cast<std::size_t>(v)] - std::log(sum), -loss, 2e-2) << v;
  }
}

TEST(WindowedCache, DropsWhatNoQuerySees) {
  testing::TestContext context;
  ModelConfig config = meshloom::testing::tiny_qwen3();
  constexpr std::int64_t kLength = 600;
  config.max_position_embeddings = kLength;
  const std::int64_t kept = KvCache::kept_positions(config.sliding_window, kLength);
  ASSERT_LT(kept, 150);
  EXPECT_EQ(KvCache::kept_positions(0, kLength), kLength);
  EXPECT_EQ(KvCache::kept_positions(5, 20), 20);
  const auto model = make_random_model(context, config);
  const Tensor ids = random_ids(context, 1, kLength, 37, 3);
  Batch batch;
  batch.input_ids = ids;
  const NoGradGuard no_grad(context);
  const std::vector<double> full = model->logits(batch, {}).to_vector();
  const auto cache = model->make_cache(kLength);
  // Pieces that are wider than what is kept, and single tokens over several of its lengths; twice,
  // as where a sequence is fed anew.
  std::vector<std::int64_t> pieces = {3, 128, 128, 1, 200};
  pieces.insert(pieces.end(), 140, 1);
  for (int pass = 0; pass < 2; ++pass) {
    cache->clear();
    std::int64_t end = 0;
    for (const std::int64_t piece : pieces) {
      const Tensor part = ops::contiguous(ops::slice(ids, 1, end, end + piece));
      end += piece;
      const std::vector<double> got = model->decode(part, *cache).to_vector();
      for (std::int64_t v = 0; v < 37; ++v)
        ASSERT_NEAR(got[static_cast<std::size_t>(v)],
                    full[static_cast<std::size_t>((end - 1) * 37 + v)], 2e-5)
            << "position " << end - 1;
    }
    EXPECT_EQ(end, kLength);
  }
}

TEST_P(Decode, GreedyGenerationFollowsTheLogits) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  const std::vector<std::int64_t> prompt = {5, 9, 2};
  std::vector<std::int64_t> tokens = prompt;
  GenerateOptions options;
  options.sampling.temperature = 0.0;
  options.max_tokens = 12;
  generate(*model, prompt, options, [&](std::int64_t token) {
    tokens.push_back(token);
    return true;
  });
  ASSERT_EQ(tokens.size(), 15u);
  Batch batch;
  batch.input_ids = from_values(context, {1, 15}, std::span<const std::int64_t>(tokens));
  const std::vector<double> logits = model->logits(batch, {}).to_vector();
  for (std::size_t i = 2; i < 14; ++i) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * 37);
    EXPECT_EQ(std::max_element(row, row + 37) - row, tokens[i + 1]) << "position " << i;
  }
}

std::vector<std::int64_t> run(Model& model, const std::vector<std::int64_t>& prompt,
                              const GenerateOptions& options) {
  std::vector<std::int64_t> out;
  generate(model, prompt, options, [&](std::int64_t token) {
    out.push_back(token);
    return true;
  });
  return out;
}

TEST_P(Decode, GenerationGoesOnPastTheContext) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  GenerateOptions options;
  options.max_tokens = 60;
  options.past_context = true;
  options.sampling = {.temperature = 0.0};
  const std::vector<std::int64_t> tokens = run(*model, {1, 2, 3}, options);
  ASSERT_EQ(tokens.size(), 60u);
  // Tokens 0 to 21 fill the context of 24; token 22 comes from the last 12 of 25 tokens, fed anew.
  std::vector<std::int64_t> all = {1, 2, 3};
  all.insert(all.end(), tokens.begin(), tokens.begin() + 22);
  const std::vector<std::int64_t> half(all.end() - 12, all.end());
  options.max_tokens = 12;
  const std::vector<std::int64_t> again = run(*model, half, options);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), tokens.begin() + 22));
}

TEST_P(Decode, GenerationEndsWithTheContext) {
  testing::TestContext context;
  const auto model = make_random_model(context, GetParam()());
  GenerateOptions options;
  options.stop_at_eos = false;
  options.sampling = {.temperature = 0.0};
  const auto drawn = [&](std::size_t prompt, std::int64_t tokens, bool past_context) {
    options.max_tokens = tokens;
    options.past_context = past_context;
    Generation generation(*model, {{std::vector<std::int64_t>(prompt, 7), options}});
    std::vector<GeneratedToken> all;
    while (!generation.done())
      for (const GeneratedToken& token : generation.advance()) all.push_back(token);
    return all;
  };
  // A context of 24: the last token is the one behind a full one, whatever there was to be drawn.
  const auto whole = drawn(3, 60, true);
  ASSERT_EQ(whole.size(), 60u);
  EXPECT_EQ(whole.back().finish, FinishReason::kLength);
  const auto ended = drawn(3, 60, false);
  ASSERT_EQ(ended.size(), 22u);
  for (std::size_t i = 0; i < 22; ++i) {
    EXPECT_EQ(ended[i].id, whole[i].id) << i;
    EXPECT_EQ(ended[i].finish, i == 21 ? FinishReason::kContext : FinishReason::kNone) << i;
  }
  EXPECT_EQ(drawn(3, 22, false).back().finish, FinishReason::kLength) << "both: all are there";
  const auto full = drawn(24, 9, false);
  ASSERT_EQ(full.size(), 1u) << "a prompt that fills the context";
  EXPECT_EQ(full[0].finish, FinishReason::kContext);
  EXPECT_EQ(full[0].id, drawn(24, 9, true)[0].id);
  EXPECT_EQ(drawn(23, 9, false).size(), 2u);
  options.stop_tokens = {full[0].id};
  EXPECT_EQ(drawn(24, 9, false)[0].finish, FinishReason::kStopToken) << "counts before";
}

TEST(Generate, SeedDecidesAndStopsStop) {
  testing::TestContext context;
  const auto model = make_random_model(context, meshloom::testing::tiny_gpt2());
  GenerateOptions options;
  options.max_tokens = 20;
  options.sampling = {.temperature = 1.5, .seed = 1};
  const auto first = run(*model, {4}, options);
  EXPECT_EQ(run(*model, {4}, options), first);
  options.sampling.seed = 2;
  EXPECT_NE(run(*model, {4}, options), first);

  options.sampling.seed = 1;
  options.stop_tokens = {first[5]};
  const auto stopped = run(*model, {4}, options);
  const auto stop = std::find(first.begin(), first.end(), first[5]);
  EXPECT_EQ(stopped, std::vector<std::int64_t>(first.begin(), stop + 1));

  std::int64_t seen = 0;
  EXPECT_EQ(generate(*model, std::vector<std::int64_t>{4}, options,
                     [&](std::int64_t) { return ++seen < 3; }),
            3);
  options.max_tokens = 0;
  EXPECT_TRUE(run(*model, {4}, options).empty());
}

TEST(Generate, EosOfTheConfigStops) {
  testing::TestContext context;
  GenerateOptions options;
  options.max_tokens = 10;
  options.sampling.temperature = 0.0;
  const auto plain = run(*make_random_model(context, meshloom::testing::tiny_gpt2()), {4}, options);
  ModelConfig config = meshloom::testing::tiny_gpt2();
  config.eos_token_id = 36;
  config.more_eos_token_ids = {plain[2]};
  const auto model = make_random_model(context, config);
  const auto stopped = run(*model, {4}, options);
  EXPECT_LE(stopped.size(), 3u);
  EXPECT_EQ(stopped.back(), plain[2]);
  options.stop_at_eos = false;
  EXPECT_EQ(run(*model, {4}, options), plain);
  // Those of the options take the config's place.
  const auto last = std::find(plain.begin(), plain.end(), plain[5]);
  options.end_tokens = {35, plain[5]};
  EXPECT_EQ(run(*model, {4}, options), std::vector<std::int64_t>(plain.begin(), last + 1));
}

TEST(Generate, SaysWhatItEndsWith) {
  testing::TestContext context;
  ModelConfig config = meshloom::testing::tiny_gpt2();
  GenerateOptions options;
  options.max_tokens = 20;
  options.sampling = {.temperature = 1.5, .seed = 1};
  const auto plain = run(*make_random_model(context, config), {4}, options);
  const auto ends = [&](const ModelConfig& of, const GenerateOptions& with) {
    const auto model = make_random_model(context, of);
    Generation generation(*model, {{{4}, with}});
    std::pair<std::size_t, FinishReason> end{0, FinishReason::kNone};
    while (!generation.done())
      for (const GeneratedToken& token : generation.advance()) {
        EXPECT_EQ(end.second, FinishReason::kNone);
        end = {end.first + 1, token.finish};
      }
    return end;
  };
  using End = std::pair<std::size_t, FinishReason>;
  EXPECT_EQ(ends(config, options), (End{20, FinishReason::kLength}));
  // The first place of a pair that does not lie across the prompt, brute force.
  const std::vector<std::int64_t> pair = {plain[6], plain[7]};
  const auto at = std::search(plain.begin(), plain.end(), pair.begin(), pair.end());
  const auto length = static_cast<std::size_t>(at - plain.begin()) + 2;
  options.stop_sequences = {{36, 35, 34, 33}, pair, {4, plain[0], plain[1], 1, 1}};
  EXPECT_EQ(ends(config, options), (End{length, FinishReason::kStopSequence}));
  const std::vector<std::int64_t> across = {4, plain[0]};  // begins in the prompt
  ASSERT_EQ(std::search(plain.begin(), at, across.begin(), across.end()), at);
  options.stop_sequences.push_back(across);
  EXPECT_EQ(ends(config, options), (End{length, FinishReason::kStopSequence}));
  const auto first_of = [&](std::int64_t id) {
    return static_cast<std::size_t>(std::find(plain.begin(), plain.end(), id) - plain.begin()) + 1;
  };
  options.stop_sequences = {{plain[3]}};
  options.stop_tokens = {plain[3]};
  EXPECT_EQ(ends(config, options), (End{first_of(plain[3]), FinishReason::kStopToken}));
  config.eos_token_id = plain[3];
  EXPECT_EQ(ends(config, options), (End{first_of(plain[3]), FinishReason::kEos}));
  options.stop_at_eos = false;
  EXPECT_EQ(ends(config, options), (End{first_of(plain[3]), FinishReason::kStopToken}));
  options.end_tokens = {plain[3]};
  EXPECT_EQ(ends(config, options), (End{first_of(plain[3]), FinishReason::kEos}));
  options.stop_sequences = {{}};
  EXPECT_THROW(ends(config, options), InvalidArgument);
}

TEST(Generate, WrongArgumentsAreRefused) {
  testing::TestContext context;
  const auto model = make_random_model(context, meshloom::testing::tiny_gpt2());
  const auto message = [&](const std::vector<std::int64_t>& prompt,
                           const GenerateOptions& options) {
    try {
      run(*model, prompt, options);
      return std::string();
    } catch (const InvalidArgument& e) {
      return std::string(e.what());
    }
  };
  EXPECT_NE(message({}, {}).find("prompt"), std::string::npos);
  EXPECT_NE(message({37}, {}).find("37"), std::string::npos);
  EXPECT_NE(message({-1}, {}).find("-1"), std::string::npos);
  EXPECT_NE(message(std::vector<std::int64_t>(25, 1), {}).find("context of 24"), std::string::npos);
  GenerateOptions options;
  options.sampling.temperature = -1;
  EXPECT_NE(message({1}, options).find("temperature"), std::string::npos);
  options.sampling = {.top_k = -1};
  EXPECT_NE(message({1}, options).find("top_k"), std::string::npos);
  options.sampling = {.top_p = 0};
  EXPECT_NE(message({1}, options).find("top_p"), std::string::npos);
  options.sampling = {};
  options.max_tokens = -1;
  EXPECT_NE(message({1}, options).find("max_tokens"), std::string::npos);
  options.max_tokens = 3;
  EXPECT_EQ(message(std::vector<std::int64_t>(24, 1), options), "") << "a full context is allowed";
}

std::map<std::int64_t, double> frequencies(const std::vector<float>& logits,
                                           const SamplingOptions& options, std::uint64_t draws) {
  std::map<std::int64_t, double> out;
  for (std::uint64_t i = 0; i < draws; ++i)
    out[sample_token(logits, options, i)] += 1.0 / static_cast<double>(draws);
  return out;
}

TEST(SampleToken, FollowsTheDistribution) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f, -INFINITY};
  for (double temperature : {0.5, 1.0, 2.0}) {
    std::vector<double> expected;
    double sum = 0.0;
    for (float l : logits)
      sum += expected.emplace_back(std::exp(static_cast<double>(l) / temperature));
    auto seen = frequencies(logits, {.temperature = temperature, .seed = 3}, 40'000);
    EXPECT_FALSE(seen.contains(4));
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(seen[static_cast<std::int64_t>(i)], expected[i] / sum, 0.012);  // 5 sigma
  }
}

TEST(SampleToken, TopKAndTopP) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits = {std::log(2.0f), std::log(4.0f), std::log(1.0f),
                                     std::log(1.0f)};
  auto k2 = frequencies(logits, {.top_k = 2}, 20'000);
  EXPECT_EQ(k2.size(), 2u);
  EXPECT_NEAR(k2[1], 2.0 / 3.0, 0.02);
  auto p = frequencies(logits, {.top_p = 0.7}, 20'000);
  EXPECT_EQ(p.size(), 2u) << "0.5 is not enough, 0.75 is";
  EXPECT_EQ(frequencies(logits, {.top_p = 0.4}, 100).size(), 1u);
  EXPECT_EQ(frequencies(logits, {.top_p = 1.0}, 1'000).size(), 4u);
  EXPECT_EQ(frequencies(logits, {.top_k = 100}, 1'000).size(), 4u);
  auto both = frequencies(logits, {.top_k = 3, .top_p = 0.9}, 20'000);
  EXPECT_EQ(both.size(), 3u);
  EXPECT_TRUE(both.contains(2)) << "the lower id of two equals";
}

TEST(SampleToken, LogProbsAreThoseOfTheSoftmax) {
  const std::vector<float> logits = {1.0f, -2.0f, 3.0f, 3.0f, -INFINITY};
  for (const double temperature : {1.0, 0.5, 4.0}) {
    double total = 0.0, sum = 0.0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    for (std::int64_t id = 0; id < 4; ++id) {
      const double log_prob = token_log_prob(logits, id, temperature);
      EXPECT_NEAR(log_prob, logits[static_cast<std::size_t>(id)] / temperature - std::log(total),
                  1e-12);
      sum += std::exp(log_prob);
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
  EXPECT_EQ(token_log_prob(logits, 2, 0.0), 0.0);
  EXPECT_NEAR(token_log_prob(std::vector<float>{1e4f, 0.0f}, 1), -1e4, 1e-8);
}

TEST(SampleToken, GreedyTakesTheLowestOfEquals) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 3, 2}, {.temperature = 0}, 0), 1);
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 3, 2}, {.temperature = 5, .top_k = 1}, 0), 1);
}

TEST(SampleToken, TakesTokensInOrderOfLogitsThenIds) {
  std::mt19937 random(3);
  std::vector<float> logits(3'000);
  for (float& logit : logits) {
    logit = static_cast<float>(static_cast<int>(random() % 801) - 400) / 100.0f;
    if (random() % 5 == 0) logit = random() % 2 == 0 ? -0.0f : 0.0f;
    if (random() % 50 == 0) logit = -INFINITY;
  }
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  // So hot that every kept token comes: those of top_k are the first k.
  for (const std::int64_t k : {2, 5, 20}) {
    auto seen = frequencies(logits, {.temperature = 50.0, .top_k = k}, 400);
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), k);
    for (std::int64_t i = 0; i < k; ++i)
      EXPECT_TRUE(seen.contains(order[static_cast<std::size_t>(i)])) << i;
  }
  for (const double cold : {0.01, 0.5}) {
    const std::int64_t id = sample_token(logits, {.temperature = cold, .top_p = 1e-9}, 1);
    EXPECT_EQ(id, order[0]);
  }
}

// Tokens in order, weights summed one by one.
std::int64_t drawn_in_full_order(const std::vector<float>& logits, const SamplingOptions& options,
                                 double uniform) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0)
    order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  const double highest = logits[order.front()];
  std::vector<double> weights;
  for (const std::size_t id : order)
    weights.push_back(std::exp((logits[id] - highest) / options.temperature));
  const double enough = options.top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0.0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < enough)) kept += weights[count++];
  double target = uniform * kept;
  std::size_t at = 0;
  while (at + 1 < count && target >= weights[at]) target -= weights[at++];
  return static_cast<std::int64_t>(order[at]);
}

TEST(SampleToken, EqualsADrawFromTheFullOrder) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const auto below = [&](std::size_t most) { return random() % most; };
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(1 + below(round % 10 == 0 ? 50'000 : 2'000));
    const float scale = std::exp(1.5f * normal(random));
    for (float& logit : logits) {
      logit = scale * normal(random);
      if (round % 3 == 1) logit = std::round(2.0f * logit) / 2.0f;  // many equals
      if (round % 5 == 2 && below(4) == 0) logit = -INFINITY;
    }
    logits[below(logits.size())] = 3.0f;
    SamplingOptions options;
    options.seed = static_cast<std::uint64_t>(round);
    options.temperature = round % 20 == 3   ? 1e-40
                          : round % 20 == 4 ? 1e60
                                            : std::exp(normal(random));
    if (round % 2 == 1) options.top_k = static_cast<std::int64_t>(1 + below(logits.size()));
    if (round % 4 >= 2) options.top_p = 0.01 + 0.001 * static_cast<double>(below(980));
    for (std::uint64_t index = 0; index < 3; ++index) {
      // The documented stream: 53 bits of the block of a token's number.
      const PhiloxBlock bits = PhiloxStream{options.seed, 0x73616d706c65ull}.block(index);
      const std::uint64_t word = std::uint64_t{bits[0]} << 32 | bits[1];
      const double uniform = static_cast<double>(word >> 11) * 0x1p-53;
      EXPECT_EQ(sample_token(logits, options, index), drawn_in_full_order(logits, options, uniform))
          << "round " << round << ", " << logits.size() << " logits, top_k " << options.top_k
          << ", top_p " << options.top_p << ", temperature " << options.temperature;
    }
  }
}

TEST(SampleToken, SickLogitsAreRefused) {
  EXPECT_THROW(sample_token(std::vector<float>{1, NAN}, {}, 0), NumericError);
  EXPECT_THROW(sample_token(std::vector<float>{1, INFINITY}, {}, 0), NumericError);
  EXPECT_THROW(sample_token(std::vector<float>{-INFINITY, -INFINITY}, {}, 0), NumericError);
  EXPECT_THROW(sample_token(std::vector<float>{}, {}, 0), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::nn
