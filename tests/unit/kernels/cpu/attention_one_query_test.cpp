// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_one_query.h"

#include <gtest/gtest.h>

#include <functional>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/attention_problem.h"
#include "tests/support/expect_near.h"
#include "tests/unit/kernels/cpu/compute_fixture.h"

namespace meshloom::kernels::cpu {
namespace {

using meshloom::testing::brute_force;
using meshloom::testing::expect_near;
using testing::ForcedTarget;
using testing::HeapWorkspace;
using testing::HostTensor;
using Answers = meshloom::testing::AttentionAnswers;
using Problem = meshloom::testing::AttentionProblem<HostTensor>;
using Sizes = meshloom::testing::AttentionSizes;

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
  cpu_backend().attention({{threads}, {}, &workspace}, out, p.inputs(), p.options);
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

// Rows of a batch with keys and values of their own, which lie in larger memories.
struct Rows {
  HostTensor q;
  std::vector<HostTensor> memories;  // k and v of each row in turn, longer than what is seen
  std::vector<AttentionMemory> seen;
  std::int64_t dims_v;

  Rows(std::mt19937& random, DType dtype, std::int64_t count, std::int64_t dims)
      : dims_v(dims == 48 ? 32 : dims) {
    const std::int64_t kv_heads = 1 + static_cast<std::int64_t>(random() % 3);
    const std::int64_t heads = kv_heads * (1 + static_cast<std::int64_t>(random() % 3));
    q = HostTensor(dtype, {count, heads, 1, dims}, {0, 2, 1, 3});
    q.fill_random(random);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto length = 1 + static_cast<std::int64_t>(random() % (i % 3 == 0 ? 5 : 300));
      for (const std::int64_t width : {dims, dims_v}) {
        memories.emplace_back(dtype, Shape{1, kv_heads, length + 3, width});
        memories.back().fill_random(random);
      }
      AttentionMemory row{memories[memories.size() - 2].view(), memories.back().view()};
      row.k.shape[2] = row.v.shape[2] = length;
      seen.push_back(row);
    }
  }

  template <typename Call>
  Result result(int threads, const Call& call) const {
    HeapWorkspace workspace;
    const Shape& shape = q.shape();
    const HostTensor o(q.view().dtype, {shape[0], shape[1], 1, dims_v}, {0, 2, 1, 3});
    const HostTensor lse(DType::kFloat32, {shape[0], shape[1], 1});
    call(KernelContext{{threads}, {}, &workspace}, AttentionOutputs{o.view(), lse.view(), false});
    return {o.values(), lse.values()};
  }
  Result together(int threads) const {
    return result(threads, [&](const KernelContext& context, const AttentionOutputs& out) {
      cpu_backend().attention_rows(context, out, q.view(), seen, 0.0);
    });
  }
  Result each_alone() const {
    return result(1, [&](const KernelContext& context, const AttentionOutputs& out) {
      cpu_backend().Backend::attention_rows(context, out, q.view(), seen, 0.0);
    });
  }
};

TEST(AttentionOneQuery, RowsOfAnyLengthsGetTheBitsOfEachAloneOnAnyThreads) {
  std::mt19937 random(6);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64})
    for (const std::int64_t count : {1, 2, 8, 13})
      for (const std::int64_t dims : {16, 24, 48, 64}) {  // 24: not for the own kernel
        const Rows rows(random, dtype, count, dims);
        SCOPED_TRACE(fmt::format("{} rows {} dims {}", dtype_name(dtype), count, dims));
        for (const std::string& target : available_targets()) {
          const ForcedTarget forced(target);
          const Result want = rows.each_alone();
          for (const int threads : {1, 2, 3, 16}) EXPECT_EQ(rows.together(threads), want) << target;
        }
      }
}

TEST(AttentionOneQuery, RowsTakeOneCallWhereAllAreForIt) {
  std::mt19937 random(7);
  Rows rows(random, DType::kBFloat16, 3, 64);
  const HostTensor o(DType::kBFloat16, {3, rows.q.shape()[1], 1, 64});
  const HostTensor lse(DType::kFloat32, {3, rows.q.shape()[1], 1});
  const AttentionOutputs out{o.view(), lse.view(), false};
  EXPECT_TRUE(is_one_query_each(out, rows.q.view(), rows.seen));
  rows.seen[1].k.strides[3] = 2;
  EXPECT_FALSE(is_one_query_each(out, rows.q.view(), rows.seen));
}

}  // namespace
}  // namespace meshloom::kernels::cpu
