// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "tests/support/attention_problem.h"
#include "tests/support/expect_near.h"
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

using meshloom::testing::AttentionAnswers;
using meshloom::testing::AttentionSizes;
using meshloom::testing::brute_force;
using meshloom::testing::expect_near;
using meshloom::testing::kInfinity;
using AttentionProblem = meshloom::testing::AttentionProblem<TestTensor>;

// [B,S,H,D] in memory, as projections leave it.
const std::vector<int> kSequenceFirst{0, 2, 1, 3};

double attention_tolerance(DType dtype) {
  if (dtype == DType::kFloat64) return 1e-6;  // lse and delta are float32
  return dtype == DType::kFloat32 ? 2e-5 : 1.6e-2;
}

struct AttentionCase {
  const char* name;
  AttentionSizes n;
  std::function<void(AttentionProblem&)> options = [](AttentionProblem&) {};
  std::vector<int> order = kSequenceFirst;
  std::int64_t gap = 0;
};

AttentionProblem problem_of(const AttentionCase& c, DType dtype) {
  std::mt19937 random(31);
  AttentionProblem p;
  p.n = c.n;
  const AttentionSizes& n = p.n;
  p.q = TestTensor(dtype, {n.b, n.hq, n.sq, n.d}, c.order, c.gap);
  p.k = TestTensor(dtype, {n.b, n.hkv, n.skv, n.d}, c.order, c.gap);
  p.v = TestTensor(dtype, {n.b, n.hkv, n.skv, n.dv}, c.order);
  p.grad_o = TestTensor(dtype, {n.b, n.hq, n.sq, n.dv}, c.order);
  for (const TestTensor* t : {&p.q, &p.k, &p.v, &p.grad_o}) t->fill_random(random);
  c.options(p);
  return p;
}

void causal(AttentionProblem& p) { p.options.is_causal = true; }
void causal_to_the_last_key(AttentionProblem& p) {
  p.options.is_causal = true;
  p.options.query_offset = p.n.skv - p.n.sq;
}
void window(AttentionProblem& p) {
  p.options.is_causal = true;
  p.options.window_left = 5;
}
void two_sided_window(AttentionProblem& p) {
  p.options.window_left = 6;
  p.options.window_right = 3;
}
void dropout(AttentionProblem& p) {
  p.options.dropout_p = 0.3f;
  p.options.dropout_random = {1234, 77};
  p.options.dropout_first_head = 5;
  p.options.dropout_total_queries = 1000;
  p.options.dropout_total_keys = 1003;
}
void causal_dropout(AttentionProblem& p) {
  dropout(p);
  p.options.is_causal = true;
}
void nothing_seen(AttentionProblem& p) {
  p.options.is_causal = true;
  p.options.key_offset = 9;
}
void positions(AttentionProblem& p) {
  p.query_positions = TestTensor({p.n.sq}, DType::kInt64);
  p.key_positions = TestTensor({p.n.skv}, DType::kInt64);
  for (std::int64_t i = 0; i < p.n.sq; ++i)
    p.query_positions.set(i, static_cast<double>((i * 7 + 3) % p.n.sq * 2));
  for (std::int64_t j = 0; j < p.n.skv; ++j)
    p.key_positions.set(j, static_cast<double>((j * 5 + 1) % p.n.skv * 2));
  p.options.query_positions = p.query_positions;
  p.options.key_positions = p.key_positions;
  p.options.is_causal = true;
}
void documents(AttentionProblem& p) {
  p.query_documents = TestTensor({p.n.b, p.n.sq}, DType::kInt64);
  p.key_documents = TestTensor({p.n.b, p.n.skv}, DType::kInt64);
  for (std::int64_t i = 0; i < p.query_documents.numel(); ++i)
    p.query_documents.set(i, static_cast<double>(i % p.n.sq / 9));
  for (std::int64_t j = 0; j < p.key_documents.numel(); ++j)
    p.key_documents.set(j, static_cast<double>(j % p.n.skv / 9));
  p.options.query_documents = p.query_documents;
  p.options.key_documents = p.key_documents;
}
void bias_of(AttentionProblem& p, const Shape& shape) {
  std::mt19937 random(4);
  p.bias = TestTensor(DType::kFloat32, shape);
  p.bias.fill_random(random);
  p.options.bias = p.bias;
  p.options.bias.shape = {p.n.b, p.n.hq, p.n.sq, p.n.skv};
  for (int d = 0; d < 4; ++d)
    if (shape[d] == 1) p.options.bias.strides[d] = 0;
}
void whole_bias(AttentionProblem& p) { bias_of(p, {p.n.b, p.n.hq, p.n.sq, p.n.skv}); }
void bias_of_keys(AttentionProblem& p) { bias_of(p, {p.n.b, 1, 1, p.n.skv}); }
void alibi(AttentionProblem& p) {
  p.slopes = TestTensor({p.n.hq}, DType::kFloat32);
  for (std::int64_t h = 0; h < p.n.hq; ++h) p.slopes.set(h, 0.05 * static_cast<double>(h + 1));
  p.options.alibi_slopes = p.slopes;
}

// What GPT-2, Llama and BERT train with, and a window: no device refuses these.
const std::vector<AttentionCase> kPlainCases{
    {"one query and key", {1, 1, 1, 1, 1, 8, 8}},
    {"full", {2, 2, 2, 33, 33, 16, 16}},
    {"full, other keys", {1, 2, 2, 7, 41, 32, 32}},
    {"causal", {2, 3, 3, 33, 33, 24, 24}, causal},
    {"causal, wide heads", {1, 1, 1, 40, 40, 128, 128}, causal},
    {"causal to the last key", {1, 2, 2, 9, 30, 16, 16}, causal_to_the_last_key},
    {"causal, shared keys", {1, 6, 2, 33, 33, 16, 16}, causal},
    {"window", {1, 2, 2, 37, 37, 16, 16}, window},
    {"another size of values", {1, 2, 1, 20, 20, 16, 40}, causal},
    {"heads first, gaps", {1, 2, 2, 20, 20, 16, 16}, causal, {0, 1, 2, 3}, 8},
    {"scale", {1, 1, 1, 12, 12, 16, 16}, [](AttentionProblem& p) { p.options.scale = 0.4; }},
};
const std::vector<AttentionCase> kOtherCases{
    {"dropout", {2, 2, 2, 33, 33, 16, 16}, dropout},
    {"causal dropout", {1, 4, 2, 20, 20, 16, 16}, causal_dropout},
    {"odd heads", {1, 2, 2, 17, 19, 7, 5}, causal},
    {"two-sided window", {1, 2, 2, 37, 37, 16, 16}, two_sided_window},
    {"queries that see nothing", {1, 2, 2, 20, 20, 16, 16}, nothing_seen},
    {"positions", {1, 2, 2, 21, 23, 16, 16}, positions},
    {"documents", {2, 2, 2, 33, 33, 16, 16}, documents},
    {"bias", {2, 2, 2, 17, 19, 16, 16}, whole_bias},
    {"bias of keys", {2, 2, 2, 17, 19, 16, 16}, bias_of_keys},
    {"slopes", {1, 4, 2, 20, 20, 16, 16}, alibi},
};

void expect_bias_gradient(const AttentionProblem& p, const TestTensor& found,
                          const AttentionAnswers& want) {
  const AttentionSizes& n = p.n;
  std::vector<double> sums(static_cast<std::size_t>(found.numel()), 0.0);
  std::size_t at = 0;
  for (std::int64_t b = 0; b < n.b; ++b)
    for (std::int64_t h = 0; h < n.hq; ++h)
      for (std::int64_t i = 0; i < n.sq; ++i)
        for (std::int64_t j = 0; j < n.skv; ++j)
          sums[static_cast<std::size_t>(p.bias_index(b, h, i, j))] += want.dbias[at++];
  expect_near(found.values(), sums, 1e-4, "dbias");
}

void check_case(const KernelContext& context, const AttentionProblem& p,
                const AttentionAnswers& want) {
  const AttentionSizes& n = p.n;
  const DType dtype = p.q.dtype();
  const TestTensor o(dtype, {n.b, n.hq, n.sq, n.dv}, kSequenceFirst);
  const TestTensor lse({n.b, n.hq, n.sq}, DType::kFloat32);
  backend().attention(context, {o, lse, false}, p.inputs(), p.options);
  expect_near(o.values(), want.o, attention_tolerance(dtype), "o");
  expect_near(lse.values(), want.lse, std::min(attention_tolerance(dtype), 2e-5), "lse");

  const TestTensor delta({n.b, n.hq, n.sq}, DType::kFloat32);
  for (std::int64_t i = 0; i < delta.numel(); ++i) {
    lse.set(i, want.lse[static_cast<std::size_t>(i)]);
    delta.set(i, want.delta[static_cast<std::size_t>(i)]);
  }
  const TestTensor dq(dtype, p.q.shape(), kSequenceFirst), dk(dtype, p.k.shape(), kSequenceFirst),
      dv(dtype, p.v.shape(), kSequenceFirst);
  TestTensor dbias;
  AttentionGrads grads;
  grads.grad_o = p.grad_o;
  grads.lse = lse;
  grads.delta = delta;
  grads.dq = dq;
  grads.dk = dk;
  grads.dv = dv;
  if (p.bias.defined()) {
    dbias = zeros(p.bias.shape(), DType::kFloat32);
    grads.grad_bias = dbias;
    grads.grad_bias.shape = p.options.bias.shape;
    grads.grad_bias.strides = p.options.bias.strides;
  }
  backend().attention_backward(context, grads, p.inputs(), p.options);
  const double bound = attention_tolerance(dtype) * (dtype == DType::kFloat32 ? 4 : 1);
  expect_near(dq.values(), want.dq, bound, "dq");
  expect_near(dk.values(), want.dk, bound, "dk");
  expect_near(dv.values(), want.dv, bound, "dv");
  if (p.bias.defined()) expect_bias_gradient(p, dbias, want);
}

void check_cases(const std::vector<AttentionCase>& cases, DType dtype) {
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(std::string(c.name) + ", " + dtype_name(dtype));
    const AttentionProblem p = problem_of(c, dtype);
    const AttentionAnswers want = brute_force(p);
    run_on_device([&](const KernelContext& context) { check_case(context, p, want); });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Attention, PlainCasesInFloat32) { check_cases(kPlainCases, DType::kFloat32); }
TEST(Attention, PlainCasesInBFloat16) { check_cases(kPlainCases, DType::kBFloat16); }
TEST(Attention, OtherCasesInFloat32) { check_cases(kOtherCases, DType::kFloat32); }
TEST(Attention, OtherCasesInBFloat16) { check_cases(kOtherCases, DType::kBFloat16); }
std::int64_t drawn(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}
bool one_in(std::mt19937& random, unsigned count) { return random() % count == 0; }

// Increasing ids with jumps, as documents have, or positions of a rank that holds several pieces.
TestTensor rising_ids(std::mt19937& random, const Shape& shape, unsigned most_step) {
  TestTensor ids(shape, DType::kInt64);
  std::int64_t id = 0;
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    if (i % shape[shape.size() - 1] == 0) id = drawn(random, 0, 3);
    ids.set(i, static_cast<double>(id));
    id += static_cast<std::int64_t>(random() % (most_step + 1));
  }
  return ids;
}

// Any mask with any other, on sizes around and beyond a tile's.
void draw_options(AttentionProblem& p, std::mt19937& random) {
  p.options.is_causal = one_in(random, 2);
  if (one_in(random, 3)) p.options.window_left = drawn(random, 0, 40);
  if (!p.options.is_causal && one_in(random, 3)) p.options.window_right = drawn(random, 0, 40);
  if (one_in(random, 2)) p.options.query_offset = drawn(random, 0, p.n.skv);
  if (one_in(random, 2)) p.options.key_offset = drawn(random, 0, 20);
  if (one_in(random, 2)) {
    p.query_positions = rising_ids(random, {p.n.sq}, 3);
    p.key_positions = rising_ids(random, {p.n.skv}, 3);
    p.options.query_positions = p.query_positions;
    p.options.key_positions = p.key_positions;
  }
  if (one_in(random, 3)) {
    p.query_documents = rising_ids(random, {p.n.b, p.n.sq}, 1);
    p.key_documents = rising_ids(random, {p.n.b, p.n.skv}, 1);
    p.options.query_documents = p.query_documents;
    p.options.key_documents = p.key_documents;
  }
  if (one_in(random, 3)) dropout(p);
  if (one_in(random, 4)) alibi(p);
  if (one_in(random, 4)) {
    const auto size = [&](std::int64_t n) { return one_in(random, 2) ? n : 1; };
    bias_of(p, {size(p.n.b), size(p.n.hq), size(p.n.sq), size(p.n.skv)});
  }
}

TEST(Attention, RandomMasksOnRandomSizes) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    AttentionSizes n;
    n.b = drawn(random, 1, 2);
    n.hkv = drawn(random, 1, 2);
    n.hq = n.hkv * drawn(random, 1, 3);
    n.sq = drawn(random, 1, 70);
    n.skv = drawn(random, 1, 100);
    // Mostly small heads; sizes of each tile's kernel, odd ones among them.
    const std::int64_t most = std::vector<std::int64_t>{32, 64, 120, 256}[seed % 4];
    n.d = one_in(random, 2) ? most : drawn(random, 1, most);
    n.dv = one_in(random, 2) ? n.d : drawn(random, 1, most);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      SCOPED_TRACE(fmt::format("seed {} in {}: {} of {} heads, {} queries, {} keys, dims {} and {}",
                               seed, dtype_name(dtype), n.hq, n.hkv, n.sq, n.skv, n.d, n.dv));
      const AttentionProblem p =
          problem_of({"random", n, [&](AttentionProblem& q) { draw_options(q, random); }}, dtype);
      const AttentionAnswers want = brute_force(p);
      run_on_device([&](const KernelContext& context) { check_case(context, p, want); });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Attention, Float16) { check_cases({kPlainCases[3], kOtherCases[0]}, DType::kFloat16); }
TEST(Attention, Float64) { check_cases({kPlainCases[3], kOtherCases[0]}, DType::kFloat64); }

TEST(Attention, HasTheSameBitsEveryTime) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16})
    for (const AttentionCase& c : {kPlainCases[3], kPlainCases[6], kOtherCases[1]}) {
      SCOPED_TRACE(std::string(c.name) + ", " + dtype_name(dtype));
      const AttentionProblem p = problem_of(c, dtype);
      const AttentionAnswers want = brute_force(p);
      for_all_settings([&](const KernelContext& context) { check_case(context, p, want); });
    }
}

// The keys [begin, end) of a problem, as context parallelism hands them over.
AttentionInputs key_block(const AttentionProblem& p, std::int64_t begin, std::int64_t end) {
  AttentionInputs block = p.inputs();
  for (TensorView* view : {&block.k, &block.v}) {
    view->data = view->as<std::byte>() +
                 begin * view->stride(2) * static_cast<std::int64_t>(dtype_size(view->dtype));
    view->shape[2] = end - begin;
  }
  return block;
}

TEST(Attention, KeyBlocksThatAreCarriedEqualOne) {
  const AttentionCase c{"blocks", {1, 2, 2, 20, 31, 16, 16}, causal_to_the_last_key};
  const std::int64_t cuts[] = {0, 12, 13, 31};
  // The first block holds keys that some queries do not see at all.
  const std::size_t sequence[] = {2, 0, 1};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const AttentionProblem p = problem_of(c, dtype);
    const AttentionAnswers want = brute_force(p);
    run_on_device([&](const KernelContext& context) {
      const TestTensor o({1, 2, 20, 16}, DType::kFloat32), lse({1, 2, 20}, DType::kFloat32);
      bool carry = false;
      for (const std::size_t i : sequence) {
        AttentionOptions options = p.options;
        options.key_offset = cuts[i];
        backend().attention(context, {o, lse, carry}, key_block(p, cuts[i], cuts[i + 1]), options);
        carry = true;
      }
      expect_near(o.values(), want.o, dtype == DType::kBFloat16 ? 4e-3 : 3e-5, "o");
      expect_near(lse.values(), want.lse, 3e-5, "lse");
    });
  }
}

// A ring of ranks: each block of keys is one rank's, results are carried on and gradients add up.
TEST(Attention, BlocksOfARingEqualOneBlockWithTheirGradients) {
  AttentionCase c{"ring", {1, 2, 1, 20, 35, 24, 16}, [](AttentionProblem& p) {
                    causal_dropout(p);
                    p.options.query_offset = 15;
                  }};
  const AttentionProblem p = problem_of(c, DType::kFloat32);
  const AttentionAnswers want = brute_force(p);
  for (const std::int64_t blocks : {1, 2, 3, 4})
    run_on_device([&](const KernelContext& context) {
      SCOPED_TRACE(fmt::format("{} blocks", blocks));
      const TestTensor o({1, 2, 20, 16}, DType::kFloat32), lse({1, 2, 20}, DType::kFloat32),
          delta({1, 2, 20}, DType::kFloat32);
      const TestTensor dq = zeros(p.q.shape(), DType::kFloat32),
                       dk = zeros(p.k.shape(), DType::kFloat32),
                       dv = zeros(p.v.shape(), DType::kFloat32);
      const auto cut = [&](std::int64_t block) { return block * p.n.skv / blocks; };
      const auto rows = [](const TensorView& all, std::int64_t begin, std::int64_t end) {
        TensorView part = all;
        part.data = all.as<float>() + begin * all.stride(2);
        part.shape[2] = end - begin;
        return part;
      };
      AttentionOptions options = p.options;
      for (std::int64_t block = 0; block < blocks; ++block) {
        options.key_offset = cut(block);
        backend().attention(context, {o, lse, block > 0}, key_block(p, cut(block), cut(block + 1)),
                            options);
      }
      expect_near(o.values(), want.o, 5e-6, "o");
      expect_near(lse.values(), want.lse, 2e-6, "lse");
      backend().attention_delta(context, delta, p.grad_o, o);
      for (std::int64_t block = blocks - 1; block >= 0; --block) {
        options.key_offset = cut(block);
        AttentionGrads grads;
        grads.o = o;
        grads.grad_o = p.grad_o;
        grads.lse = lse;
        grads.delta = delta;
        grads.dq = dq;
        grads.dk = rows(dk, cut(block), cut(block + 1));
        grads.dv = rows(dv, cut(block), cut(block + 1));
        grads.accumulate = true;
        backend().attention_backward(context, grads, key_block(p, cut(block), cut(block + 1)),
                                     options);
      }
      expect_near(dq.values(), want.dq, 2e-5, "dq");
      expect_near(dk.values(), want.dk, 2e-5, "dk");
      expect_near(dv.values(), want.dv, 2e-5, "dv");
    });
}

TEST(Attention, GradientsAreAddedWhereAsked) {
  const AttentionProblem p =
      problem_of({"sums", {1, 2, 1, 20, 20, 16, 16}, causal}, DType::kFloat32);
  const AttentionAnswers want = brute_force(p);
  run_on_device([&](const KernelContext& context) {
    const TestTensor o({1, 2, 20, 16}, DType::kFloat32), lse({1, 2, 20}, DType::kFloat32),
        delta({1, 2, 20}, DType::kFloat32);
    backend().attention(context, {o, lse, false}, p.inputs(), p.options);
    backend().attention_delta(context, delta, p.grad_o, o);
    const TestTensor dq = zeros(p.q.shape(), DType::kFloat32),
                     dk = zeros(p.k.shape(), DType::kFloat32),
                     dv = zeros(p.v.shape(), DType::kFloat32);
    for (const TestTensor* t : {&dq, &dk, &dv}) t->fill(0.5);
    AttentionGrads grads;
    grads.o = o;
    grads.grad_o = p.grad_o;
    grads.lse = lse;
    grads.delta = delta;
    grads.dq = dq;
    grads.dk = dk;
    grads.dv = dv;
    grads.accumulate = true;
    backend().attention_backward(context, grads, p.inputs(), p.options);
    const auto plus = [](std::vector<double> values) {
      for (double& value : values) value += 0.5;
      return values;
    };
    expect_near(dq.values(), plus(want.dq), 8e-5, "dq");
    expect_near(dk.values(), plus(want.dk), 8e-5, "dk");
    expect_near(dv.values(), plus(want.dv), 8e-5, "dv");
  });
}

TEST(Attention, NoKeysGiveZeros) {
  const AttentionProblem p = problem_of({"no keys", {1, 2, 2, 5, 0, 8, 8}}, DType::kFloat32);
  run_on_device([&](const KernelContext& context) {
    const TestTensor o({1, 2, 5, 8}, DType::kFloat32), lse({1, 2, 5}, DType::kFloat32);
    backend().attention(context, {o, lse, false}, p.inputs(), p.options);
    EXPECT_EQ(o.values(), std::vector<double>(80, 0.0));
    EXPECT_EQ(lse.values(), std::vector<double>(10, -kInfinity));
  });
}

TEST(Attention, NanInTheKeysReachesEveryRow) {
  const AttentionProblem p = problem_of({"nan", {1, 1, 1, 8, 30, 16, 16}}, DType::kFloat32);
  p.k.set(7 * 16 + 3, std::numeric_limits<double>::quiet_NaN());
  for_all_settings([&](const KernelContext& context) {
    const TestTensor o({1, 1, 8, 16}, DType::kFloat32), lse({1, 1, 8}, DType::kFloat32);
    backend().attention(context, {o, lse, false}, p.inputs(), p.options);
    for (std::int64_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(lse.at(i))) << i;
  });
}

TEST(Attention, RowsOfAnyLengthsAreThoseOfEachAlone) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    std::mt19937 random(6);
    const TestTensor q(dtype, {3, 4, 1, 16}, kSequenceFirst);
    q.fill_random(random);
    std::vector<TestTensor> keys, values;
    for (const std::int64_t length : {1, 33, 7}) {
      keys.emplace_back(dtype, Shape{1, 2, length, 16});
      values.emplace_back(dtype, Shape{1, 2, length, 16});
      keys.back().fill_random(random);
      values.back().fill_random(random);
    }
    for_all_settings([&](const KernelContext& context) {
      std::vector<AttentionMemory> memories;
      for (std::size_t i = 0; i < 3; ++i) memories.push_back({keys[i], values[i]});
      const TestTensor o(dtype, {3, 4, 1, 16}, kSequenceFirst), lse({3, 4, 1}, DType::kFloat32);
      const TestTensor each(dtype, {3, 4, 1, 16}, kSequenceFirst);
      const TestTensor each_lse({3, 4, 1}, DType::kFloat32);
      backend().attention_rows(context, {o, lse, false}, q, memories, 0.0);
      backend().Backend::attention_rows(context, {each, each_lse, false}, q, memories, 0.0);
      EXPECT_EQ(o.values(), each.values());
      EXPECT_EQ(lse.values(), each_lse.values());
    });
  }
}

TEST(AttentionDelta, IsTheRowSumOfProducts) {
  std::mt19937 random(18);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64})
    for (const std::int64_t columns : {1, 7, 16, 33, 129}) {
      const TestTensor grad_o(dtype, {2, 3, 17, columns}, kSequenceFirst, 3);
      const TestTensor o(dtype, {2, 3, 17, columns});
      for (const TestTensor* t : {&grad_o, &o}) t->fill_random(random);
      for_all_settings([&](const KernelContext& context) {
        const TestTensor delta({2, 3, 17}, DType::kFloat32, Layout::kPermuted);
        backend().attention_delta(context, delta, grad_o, o);
        for (std::int64_t row = 0; row < delta.numel(); ++row) {
          double sum = 0.0;
          for (std::int64_t c = row * columns; c < (row + 1) * columns; ++c)
            sum += o.at(c) * grad_o.at(c);
          ASSERT_NEAR(delta.at(row), sum, 1e-4) << row;
        }
      });
    }
}

}  // namespace
}  // namespace meshloom::kernels::test
