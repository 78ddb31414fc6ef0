// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "kernels/cpu/attention/attention_reference.h"
#include "kernels/cpu/cpu_features.h"
#include "tests/support/attention_problem.h"
#include "tests/support/expect_near.h"
#include "tests/unit/kernels/cpu/compute_fixture.h"

namespace meshloom::kernels::cpu {
namespace {

using meshloom::testing::brute_force;
using meshloom::testing::expect_near;
using meshloom::testing::kInfinity;
using testing::ForcedTarget;
using testing::HeapWorkspace;
using testing::HostTensor;
using Answers = meshloom::testing::AttentionAnswers;
using Problem = meshloom::testing::AttentionProblem<HostTensor>;
using Sizes = meshloom::testing::AttentionSizes;

double tolerance_of(DType dtype) {
  if (dtype == DType::kFloat64) return 1e-6;  // lse and delta are float32
  return dtype == DType::kFloat32 ? 2e-5 : 1.6e-2;
}

// [B,S,H,D] in memory, as projections leave it, with unused elements behind each row.
const std::vector<int> kSequenceFirst{0, 2, 1, 3};

Problem random_problem(std::mt19937& random, DType dtype, const Sizes& n) {
  Problem p;
  p.n = n;
  const bool heads_inside = random() % 2 == 0;
  const std::vector<int> order = heads_inside ? kSequenceFirst : std::vector<int>{0, 1, 2, 3};
  const std::int64_t gap = static_cast<std::int64_t>(random() % 3);
  p.q = HostTensor(dtype, {n.b, n.hq, n.sq, n.d}, order, gap);
  p.k = HostTensor(dtype, {n.b, n.hkv, n.skv, n.d}, order, gap);
  p.v = HostTensor(dtype, {n.b, n.hkv, n.skv, n.dv}, order);
  p.grad_o = HostTensor(dtype, {n.b, n.hq, n.sq, n.dv}, order);
  for (const HostTensor* t : {&p.q, &p.k, &p.v, &p.grad_o}) t->fill_random(random);
  return p;
}

void check_forward(const Problem& p, const Answers& want, int threads) {
  HeapWorkspace workspace;
  const KernelContext context{{threads}, {}, &workspace};
  const DType dtype = p.q.view().dtype;
  HostTensor o(dtype, {p.n.b, p.n.hq, p.n.sq, p.n.dv}, kSequenceFirst);
  HostTensor lse(DType::kFloat32, {p.n.b, p.n.hq, p.n.sq});
  cpu_backend().attention(context, {o.view(), lse.view(), false}, p.inputs(), p.options);
  expect_near(o.values(), want.o, tolerance_of(dtype), "o");
  expect_near(lse.values(), want.lse, std::min(tolerance_of(dtype), 2e-5), "lse");
}

void check_backward(const Problem& p, const Answers& want, int threads) {
  HeapWorkspace workspace;
  const KernelContext context{{threads}, {}, &workspace};
  const DType dtype = p.q.view().dtype;
  const Sizes& n = p.n;
  HostTensor lse(DType::kFloat32, {n.b, n.hq, n.sq}), delta(DType::kFloat32, {n.b, n.hq, n.sq});
  for (std::int64_t i = 0; i < lse.numel(); ++i) {
    lse.set(i, want.lse[i]);
    delta.set(i, want.delta[i]);
  }
  const HostTensor dq(dtype, p.q.shape(), kSequenceFirst), dk(dtype, p.k.shape()),
      dv(dtype, p.v.shape());
  HostTensor dbias;
  AttentionGrads grads{p.grad_o.view(), lse.view(), delta.view(), dq.view(), dk.view(),
                       dv.view(),       false,      {},           {}};
  if (p.options.bias.defined()) {
    dbias = HostTensor(DType::kFloat32, p.bias.shape());
    grads.grad_bias = dbias.view();
    grads.grad_bias.shape = p.options.bias.shape;
    grads.grad_bias.strides = p.options.bias.strides;
  }
  cpu_backend().attention_backward(context, grads, p.inputs(), p.options);
  const double tolerance = tolerance_of(dtype) * (dtype == DType::kFloat32 ? 4 : 1);
  expect_near(dq.values(), want.dq, tolerance, "dq");
  expect_near(dk.values(), want.dk, tolerance, "dk");
  expect_near(dv.values(), want.dv, tolerance, "dv");
  if (!p.options.bias.defined()) return;
  // The gradient of a broadcast bias is the sum over what it was broadcast to.
  std::vector<double> sums(dbias.numel(), 0.0);
  const TensorView& t = p.options.bias;
  std::int64_t i = 0;
  for (std::int64_t b = 0; b < n.b; ++b)
    for (std::int64_t h = 0; h < n.hq; ++h)
      for (std::int64_t s = 0; s < n.sq; ++s)
        for (std::int64_t j = 0; j < n.skv; ++j)
          sums[b * t.stride(0) + h * t.stride(1) + s * t.stride(2) + j * t.stride(3)] +=
              want.dbias[i++];
  expect_near(dbias.values(), sums, 1e-4, "dbias");
}

void check_everywhere(const Problem& p) {
  const Answers want = brute_force(p);
  int threads = 1;
  for (const std::string& target : available_targets()) {
    SCOPED_TRACE(target);
    const ForcedTarget forced(target);
    check_forward(p, want, threads);
    check_backward(p, want, threads);
    if (::testing::Test::HasFatalFailure()) return;
    threads = threads % 3 + 1;
  }
}

Sizes random_sizes(std::mt19937& random) {
  Sizes n;
  n.b = 1 + random() % 2;
  n.hkv = 1 + random() % 2;
  n.hq = n.hkv * (1 + random() % 3);
  n.sq = 1 + random() % 200;
  n.skv = random() % 2 == 0 ? n.sq : 1 + random() % 200;
  const std::int64_t dims[] = {1, 7, 16, 24, 40, 64, 80, 33};
  n.d = dims[random() % 8];
  n.dv = random() % 2 == 0 ? n.d : dims[random() % 8];
  return n;
}

// Every option is taken with some chance, so that they meet each other.
void random_options(std::mt19937& random, Problem& p) {
  const Sizes& n = p.n;
  AttentionOptions& o = p.options;
  const auto chance = [&](unsigned one_in) { return random() % one_in == 0; };
  o.is_causal = chance(2);
  if (chance(3)) o.scale = 0.3f;
  if (chance(3)) o.query_offset = static_cast<std::int64_t>(random() % 200) - 50;
  if (chance(4)) o.key_offset = static_cast<std::int64_t>(random() % 60);
  if (chance(4)) o.window_left = static_cast<std::int64_t>(random() % 90);
  if (chance(4)) o.window_right = static_cast<std::int64_t>(random() % 90);
  if (chance(4)) {
    p.query_positions = HostTensor(DType::kInt64, {n.sq});
    p.key_positions = HostTensor(DType::kInt64, {n.skv});
    std::vector<std::int64_t> order(std::max(n.sq, n.skv));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(2 * i);
    std::shuffle(order.begin(), order.end(), random);
    for (std::int64_t i = 0; i < n.sq; ++i) p.query_positions.set(i, order[i]);
    for (std::int64_t i = 0; i < n.skv; ++i) p.key_positions.set(i, order[i]);
    o.query_positions = p.query_positions.view();
    o.key_positions = p.key_positions.view();
  }
  if (chance(4)) {
    p.query_documents = HostTensor(DType::kInt64, {n.b, n.sq});
    p.key_documents = HostTensor(DType::kInt64, {n.b, n.skv});
    for (std::int64_t b = 0; b < n.b; ++b) {
      for (std::int64_t i = 0; i < n.sq; ++i) p.query_documents.set(b * n.sq + i, i / (20 + 9 * b));
      for (std::int64_t i = 0; i < n.skv; ++i) p.key_documents.set(b * n.skv + i, i / (20 + 9 * b));
    }
    o.query_documents = p.query_documents.view();
    o.key_documents = p.key_documents.view();
  }
  if (chance(3)) {
    const Shape whole{chance(2) ? n.b : 1, chance(2) ? n.hq : 1, chance(3) ? 1 : n.sq, n.skv};
    p.bias = HostTensor(DType::kFloat32, whole);
    p.bias.fill_random(random);
    o.bias = p.bias.view();
    o.bias.shape = {n.b, n.hq, n.sq, n.skv};
    for (int d = 0; d < 4; ++d)
      if (whole[d] == 1) o.bias.strides[d] = 0;
  }
  if (chance(3)) {
    p.slopes = HostTensor(DType::kFloat32, {n.hq});
    for (std::int64_t h = 0; h < n.hq; ++h) p.slopes.set(h, 0.05 * static_cast<double>(h + 1));
    o.alibi_slopes = p.slopes.view();
  }
  if (chance(4)) {
    o.dropout_p = 0.3f;
    o.dropout_random = {1234, 77};
    o.dropout_first_head = 5;
    o.dropout_total_queries = 1000;
    o.dropout_total_keys = 1003;
  }
}

// Random problems, which take the dtypes in turn.
void match_brute_force(unsigned seed, int problems, const std::vector<DType>& dtypes) {
  std::mt19937 random(seed);
  for (int i = 0; i < problems; ++i) {
    SCOPED_TRACE(i);
    const DType dtype = dtypes[static_cast<std::size_t>(i) % dtypes.size()];
    Problem p = random_problem(random, dtype, random_sizes(random));
    random_options(random, p);
    check_everywhere(p);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Attention, MatchesBruteForceOnRandomProblems) {
  match_brute_force(20240, 30, {DType::kFloat32});
}

TEST(Attention, MatchesBruteForceInBFloat16AndFloat16) {
  match_brute_force(20241, 10, {DType::kBFloat16, DType::kFloat16});
}

// The model of tile registers where the CPU has none, while it lives.
struct WithTiles {
  WithTiles() { force_model_tiles(true); }
  ~WithTiles() { force_model_tiles(false); }
};

TEST(Attention, MatchesBruteForceByTileRegisters) {
  if (!bfloat16_dot_products()) GTEST_SKIP() << "this CPU class widens bfloat16";
  const WithTiles with_tiles;
  match_brute_force(20244, 12, {DType::kBFloat16});
}

TEST(Attention, MatchesBruteForceInFloat64) {
  std::mt19937 random(20242);
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    Sizes n = random_sizes(random);
    n.sq = n.sq % 40 + 1;
    n.skv = n.skv % 40 + 1;
    Problem p = random_problem(random, DType::kFloat64, n);
    random_options(random, p);
    const Answers want = brute_force(p);
    check_forward(p, want, 2);
    check_backward(p, want, 2);
    if (HasFatalFailure()) return;
  }
}

// The brute force's own gradients, against differences of its own outputs.
TEST(Attention, BruteForceGradientsMatchFiniteDifferences) {
  std::mt19937 random(3);
  Problem p = random_problem(random, DType::kFloat64, {1, 2, 1, 5, 6, 4, 3});
  p.options.is_causal = true;
  p.options.query_offset = 1;
  p.options.dropout_p = 0.2f;
  p.options.dropout_total_queries = p.options.dropout_total_keys = 8;
  const Answers a = brute_force(p);
  const auto loss = [&] {
    const Answers now = brute_force(p);
    double sum = 0.0;
    for (std::size_t i = 0; i < now.o.size(); ++i)
      sum += now.o[i] * p.grad_o.at(static_cast<std::int64_t>(i));
    return sum;
  };
  const auto check = [&](const HostTensor& t, const std::vector<double>& gradient) {
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      constexpr double kStep = 1e-5;
      const double value = t.at(i);
      t.set(i, value + kStep);
      const double up = loss();
      t.set(i, value - kStep);
      const double down = loss();
      t.set(i, value);
      EXPECT_NEAR(gradient[static_cast<std::size_t>(i)], (up - down) / (2 * kStep), 1e-7);
    }
  };
  check(p.q, a.dq);
  check(p.k, a.dk);
  check(p.v, a.dv);
}

// The keys [begin, end) of a problem, as context parallelism would hand them over.
Problem key_block(const Problem& p, std::int64_t begin, std::int64_t end) {
  Problem block = p;
  const auto cut = [&](const HostTensor& t) {
    const Shape& shape = t.shape();
    HostTensor part(t.view().dtype, {shape[0], shape[1], end - begin, shape[3]});
    const meshloom::testing::DenseRows all(t);
    std::int64_t i = 0;
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t s = begin; s < end; ++s)
          for (std::int64_t c = 0; c < shape[3]; ++c) part.set(i++, all.row(b, h, s)[c]);
    return part;
  };
  block.k = cut(p.k);
  block.v = cut(p.v);
  block.n.skv = end - begin;
  block.options.key_offset += begin;
  return block;
}

void several_key_blocks_equal_one(std::initializer_list<DType> dtypes) {
  std::mt19937 random(11);
  for (const DType dtype : dtypes) {
    Problem p = random_problem(random, dtype, {2, 4, 2, 150, 210, 32, 48});
    p.options.is_causal = true;
    p.options.query_offset = 60;
    p.options.window_left = 120;
    p.options.dropout_p = 0.2f;
    p.options.dropout_random = {9, 4};
    p.options.dropout_total_queries = p.options.dropout_total_keys = 210;
    const Answers want = brute_force(p);
    HeapWorkspace workspace;
    const KernelContext context{{2}, {}, &workspace};
    const DType o_dtype = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
    HostTensor o(o_dtype, {2, 4, 150, 48}), lse(DType::kFloat32, {2, 4, 150});
    HostTensor delta(DType::kFloat32, {2, 4, 150});
    const HostTensor dq(o_dtype, p.q.shape()), dk(o_dtype, p.k.shape()), dv(o_dtype, p.v.shape());
    for (std::int64_t i = 0; i < delta.numel(); ++i) delta.set(i, want.delta[i]);
    const std::int64_t cuts[] = {0, 100, 101, 190, 210};
    // Out of order: the first block holds keys that some queries do not see at all.
    const int sequence[] = {3, 0, 2, 1};
    for (int i = 0; i < 4; ++i) {
      const Problem block = key_block(p, cuts[sequence[i]], cuts[sequence[i] + 1]);
      cpu_backend().attention(context, {o.view(), lse.view(), i > 0}, block.inputs(),
                              block.options);
    }
    const double tolerance = dtype == DType::kFloat64 ? 1e-6 : 3e-5;
    // Probabilities are rounded to bfloat16 where its dot products are used.
    const double rounded = dtype == DType::kBFloat16 ? 4e-3 : tolerance;
    const double gradients = dtype == DType::kBFloat16 ? 1e-2 : 1e-4;
    expect_near(o.values(), want.o, rounded, "o");
    expect_near(lse.values(), want.lse, tolerance, "lse");
    for (int i = 0; i < 4; ++i) {
      const std::int64_t begin = cuts[sequence[i]], end = cuts[sequence[i] + 1];
      const Problem block = key_block(p, begin, end);
      const auto rows = [&](const HostTensor& t) {
        TensorView part = t.view();
        part.data = part.as<std::byte>() +
                    begin * part.stride(2) * static_cast<std::int64_t>(dtype_size(part.dtype));
        part.shape[2] = end - begin;
        return part;
      };
      cpu_backend().attention_backward(
          context,
          {p.grad_o.view(), lse.view(), delta.view(), dq.view(), rows(dk), rows(dv), true, {}},
          block.inputs(), block.options);
    }
    expect_near(dq.values(), want.dq, gradients, "dq");
    expect_near(dk.values(), want.dk, gradients, "dk");
    expect_near(dv.values(), want.dv, gradients, "dv");
  }
}

TEST(Attention, SeveralKeyBlocksEqualOne) {
  several_key_blocks_equal_one({DType::kFloat32, DType::kBFloat16, DType::kFloat64});
  if (!bfloat16_dot_products()) return;
  const WithTiles with_tiles;
  several_key_blocks_equal_one({DType::kBFloat16});
}

TEST(Attention, QueriesThatSeeNothingAreZero) {
  std::mt19937 random(12);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Problem p = random_problem(random, dtype, {1, 2, 2, 130, 140, 16, 16});
    p.options.is_causal = true;
    p.options.key_offset = 50;
    check_forward(p, brute_force(p), 2);
    check_backward(p, brute_force(p), 2);
    p.options.key_offset = 1000;
    check_forward(p, brute_force(p), 2);
    check_backward(p, brute_force(p), 2);
  }
}

TEST(Attention, BiasOfMinusInfinityMasks) {
  std::mt19937 random(13);
  Problem p = random_problem(random, DType::kFloat32, {1, 1, 1, 40, 120, 16, 16});
  p.bias = HostTensor(DType::kFloat32, {1, 1, 40, 120});
  for (std::int64_t i = 0; i < 40; ++i)
    for (std::int64_t j = 0; j < 120; ++j)
      p.bias.set(i * 120 + j, i == 3 || (i + j) % 3 == 0 ? -kInfinity : i == 5 ? -1e9 : 0.5);
  p.options.bias = p.bias.view();
  const Answers want = brute_force(p);
  HeapWorkspace workspace;
  const KernelContext context{{1}, {}, &workspace};
  HostTensor o(DType::kFloat32, {1, 1, 40, 16}), lse(DType::kFloat32, {1, 1, 40});
  cpu_backend().attention(context, {o.view(), lse.view(), false}, p.inputs(), p.options);
  EXPECT_EQ(lse.at(3), -kInfinity);
  for (std::int64_t i = 0; i < 40; ++i) {
    if (i == 5) continue;  // near -1e9 float32 has no digits left for the scores
    for (std::int64_t c = 0; c < 16; ++c)
      EXPECT_NEAR(o.at(i * 16 + c), want.o[i * 16 + c], 2e-5) << i << " " << c;
  }
  for (std::int64_t c = 0; c < 16; ++c) EXPECT_TRUE(std::isfinite(o.at(5 * 16 + c)));
}

TEST(Attention, BitsDoNotDependOnForwardThreadsAndRepeat) {
  std::mt19937 random(15);
  Problem p = random_problem(random, DType::kFloat32, {1, 3, 1, 300, 300, 64, 64});
  p.options.is_causal = true;
  const Answers want = brute_force(p);
  HostTensor first(DType::kFloat32, {1, 3, 300, 64}), first_dq, first_dk;
  for (int threads = 1; threads <= 3; ++threads) {
    HeapWorkspace workspace;
    HostTensor o(DType::kFloat32, {1, 3, 300, 64}), lse(DType::kFloat32, {1, 3, 300});
    cpu_backend().attention({{threads}, {}, &workspace}, {o.view(), lse.view(), false}, p.inputs(),
                            p.options);
    if (threads == 1) first = o;
    EXPECT_EQ(o.values(), first.values());
    HostTensor delta(DType::kFloat32, {1, 3, 300});
    for (std::int64_t i = 0; i < delta.numel(); ++i) delta.set(i, want.delta[i]);
    const auto backward = [&] {
      const HostTensor dq(DType::kFloat32, p.q.shape()), dk(DType::kFloat32, p.k.shape()),
          dv(DType::kFloat32, p.v.shape());
      cpu_backend().attention_backward(
          {{threads}, {}, &workspace},
          {p.grad_o.view(), lse.view(), delta.view(), dq.view(), dk.view(), dv.view(), false, {}},
          p.inputs(), p.options);
      std::vector<double> all = dq.values();
      for (const HostTensor* t : {&dk, &dv})
        for (const double value : t->values()) all.push_back(value);
      return all;
    };
    EXPECT_EQ(backward(), backward()) << threads;
  }
}

TEST(Attention, WorkspaceGrowsWithSequenceNotItsSquare) {
  std::mt19937 random(16);
  std::size_t most[2] = {};
  for (int i = 0; i < 2; ++i) {
    const std::int64_t s = 1024 << i;
    Problem p = random_problem(random, DType::kFloat32, {1, 2, 2, s, s, 16, 16});
    p.options.is_causal = true;
    HeapWorkspace workspace;
    HostTensor o(DType::kFloat32, {1, 2, s, 16}), lse(DType::kFloat32, {1, 2, s});
    const KernelContext context{{2}, {}, &workspace};
    cpu_backend().attention(context, {o.view(), lse.view(), false}, p.inputs(), p.options);
    HostTensor delta(DType::kFloat32, {1, 2, s});
    cpu_backend().attention_delta(context, delta.view(), p.grad_o.view(), o.view());
    const HostTensor dq(DType::kFloat32, p.q.shape()), dk(DType::kFloat32, p.k.shape()),
        dv(DType::kFloat32, p.v.shape());
    cpu_backend().attention_backward(
        context,
        {p.grad_o.view(), lse.view(), delta.view(), dq.view(), dk.view(), dv.view(), false, {}},
        p.inputs(), p.options);
    most[i] = workspace.most();
  }
  EXPECT_LT(most[1], most[0] * 5 / 2);
}

}  // namespace
}  // namespace meshloom::kernels::cpu
