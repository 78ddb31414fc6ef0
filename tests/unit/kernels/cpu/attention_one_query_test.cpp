// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_one_query.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/kernels/cpu/attention_problem.h"
#include "tests/unit/kernels/cpu/compute_fixture.h"

namespace meshloom::kernels::cpu {
namespace {

using testing::Answers;
using testing::brute_force;
using testing::expect_near;
using testing::ForcedTarget;
using testing::HeapWorkspace;
using testing::HostTensor;
using testing::Problem;
using testing::Sizes;

Problem one_query(std::mt19937& random, DType dtype) {
  Problem p;
  Sizes& n = p.n;
  const auto size = [&](int most) { return 1 + static_cast<std::int64_t>(random() % most); };
  n = {size(3), 0, size(3), 1, size(300), 16 * size(8), 16 * size(8)};
  n.hq = n.hkv * size(3);
  const std::int64_t gap = static_cast<std::int64_t>(random() % 3);
  p.q = HostTensor(dtype, {n.b, n.hq, 1, n.d}, {0, 2, 1, 3});
  p.k = HostTensor(dtype, {n.b, n.hkv, n.skv, n.d}, {}, gap);
  p.v = HostTensor(dtype, {n.b, n.hkv, n.skv, n.dv}, {0, 2, 1, 3});
  for (const HostTensor* t : {&p.q, &p.k, &p.v}) t->fill_random(random);
  p.grad_o = HostTensor(dtype, {n.b, n.hq, 1, n.dv});
  p.options.is_causal = random() % 2 == 0;
  p.options.query_offset = n.skv - 1;
  if (random() % 3 == 0) p.options.scale = 0.4;
  return p;
}

struct Result {
  std::vector<double> o, lse;
  bool operator==(const Result&) const = default;
};

Result attend(const Problem& p, int threads) {
  HeapWorkspace workspace;
  const HostTensor o(p.q.view().dtype, {p.n.b, p.n.hq, 1, p.n.dv}, {0, 2, 1, 3});
  const HostTensor lse(DType::kFloat32, {p.n.b, p.n.hq, 1});
  const AttentionOutputs out{o.view(), lse.view(), false};
  EXPECT_TRUE(is_one_query(out, p.inputs(), p.options));
  attention({{threads}, {}, &workspace}, out, p.inputs(), p.options);
  return {o.values(), lse.values()};
}

TEST(AttentionOneQuery, EqualsTheFormulasOnEveryInstructionSetAndAnyThreads) {
  std::mt19937 random(4);
  for (int i = 0; i < 40; ++i) {
    const DType dtype = i % 2 == 0 ? DType::kFloat32 : DType::kBFloat16;
    const Problem p = one_query(random, dtype);
    SCOPED_TRACE(fmt::format("{} b {} hq {} hkv {} keys {} d {} dv {}", dtype_name(dtype), p.n.b,
                             p.n.hq, p.n.hkv, p.n.skv, p.n.d, p.n.dv));
    const Answers want = brute_force(p);
    for (const std::string& target : available_targets()) {
      const ForcedTarget forced(target);
      const Result got = attend(p, 1);
      expect_near(got.o, want.o, dtype == DType::kFloat32 ? 2e-5 : 1.6e-2, target.c_str());
      expect_near(got.lse, want.lse, 2e-5, target.c_str());
      EXPECT_EQ(attend(p, 3), got) << target;
    }
  }
}

TEST(AttentionOneQuery, IsForPlainCallsAlone) {
  std::mt19937 random(5);
  const auto taken = [&](const std::function<void(Problem&)>& change) {
    Problem p = one_query(random, DType::kFloat32);
    p.options.is_causal = true;
    change(p);
    const HostTensor o(DType::kFloat32, {p.n.b, p.n.hq, 1, p.n.dv});
    const HostTensor lse(DType::kFloat32, {p.n.b, p.n.hq, 1});
    return is_one_query({o.view(), lse.view(), false}, p.inputs(), p.options);
  };
  EXPECT_TRUE(taken([](Problem&) {}));
  EXPECT_FALSE(taken([](Problem& p) { p.options.key_offset = 1; })) << "a key that is not seen";
  EXPECT_FALSE(taken([](Problem& p) { p.options.window_left = 5; }));
  EXPECT_FALSE(taken([](Problem& p) { p.options.dropout_p = 0.1f; }));
  EXPECT_FALSE(taken([](Problem& p) {
    p.q = HostTensor(DType::kFloat32, {p.n.b, p.n.hq, 1, 24});
    p.k = HostTensor(DType::kFloat32, {p.n.b, p.n.hkv, p.n.skv, 24});
  })) << "no whole vectors";
}

}  // namespace
}  // namespace meshloom::kernels::cpu
