// SPDX-License-Identifier: Apache-2.0
// Where a tensor lies in memory changes no bit of what is summed over its rows: shapes alone decide
// the order of sums, for rows that begin at a vector and for rows that do not.
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

const std::vector<DType> kVectorDTypes{DType::kFloat32, DType::kBFloat16};
// Rows for a warp and for a block, of whole vectors and with a rest.
const std::vector<std::int64_t> kColumns{64, 203, 1400, 1403};
constexpr std::int64_t kRows = 5;

TestTensor moved(const TestTensor& x) {
  const TestTensor other(x.shape(), x.dtype(), Layout::kOddStart);
  for (std::int64_t i = 0; i < x.numel(); ++i) other.set(i, x.at(i));
  return other;
}

// Calls body(context, inputs, layout of its results) for inputs that begin at a vector and for the
// same values elsewhere, and expects the same bits of what it returns.
template <class Body>
void expect_same_bits(const std::vector<TestTensor>& inputs, Body&& body) {
  for_all_settings([&](const KernelContext& context) {
    std::vector<TestTensor> elsewhere;
    for (const TestTensor& x : inputs) elsewhere.push_back(moved(x));
    const std::vector<TestTensor> here = body(context, inputs, Layout::kDense);
    const std::vector<TestTensor> there = body(context, elsewhere, Layout::kOddStart);
    for (std::size_t i = 0; i < here.size(); ++i)
      ASSERT_EQ(here[i].values(), there[i].values()) << "result " << i;
  });
}

template <class Body>
void for_rows(Body&& body) {
  Rng rng(3);
  for (const DType dtype : kVectorDTypes)
    for (const std::int64_t columns : kColumns) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(columns));
      const auto random = [&] { return random_tensor({kRows, columns}, dtype, rng); };
      body(dtype, columns, random, rng);
    }
}

TEST(Placement, OfSoftmax) {
  for_rows([](DType dtype, std::int64_t columns, const auto& random, Rng&) {
    const std::vector<TestTensor> inputs{random(), random()};
    expect_same_bits(inputs, [&](const KernelContext& context, const auto& in, Layout layout) {
      const TestTensor y({kRows, columns}, dtype, layout), dx({kRows, columns}, dtype, layout);
      backend().softmax(context, y, in[0], false);
      backend().softmax_backward(context, dx, in[1], y, false);
      return std::vector{y, dx};
    });
  });
}

TEST(Placement, OfNorms) {
  for_rows([](DType dtype, std::int64_t columns, const auto& random, Rng& rng) {
    const std::vector<TestTensor> inputs{random(), random(), random(),
                                         random_tensor({columns}, DType::kFloat32, rng)};
    for (const NormKind kind : {NormKind::kLayer, NormKind::kRms})
      expect_same_bits(inputs, [&](const KernelContext& context, const auto& in, Layout layout) {
        const TestTensor y({kRows, columns}, dtype, layout), sum({kRows, columns}, dtype, layout);
        const TestTensor dx({kRows, columns}, dtype, layout), dweight({columns}, DType::kFloat32);
        const TestTensor mean({kRows}, DType::kFloat32), rstd({kRows}, DType::kFloat32);
        const TensorView kept = kind == NormKind::kRms ? TensorView{} : mean.view();
        backend().norm(context, {y, sum, kept, rstd, in[0], in[1], in[3], {}}, {1e-5, kind});
        backend().norm_backward(context, {dx, dweight, {}, in[2], sum, in[3], kept, rstd});
        return std::vector{y, sum, rstd, dx, dweight};
      });
  });
}

TEST(Placement, OfCrossEntropy) {
  for_rows([](DType dtype, std::int64_t columns, const auto& random, Rng& rng) {
    const TestTensor targets = random_ids({kRows}, columns, rng);
    CrossEntropyOptions options;
    options.label_smoothing = 0.1;
    expect_same_bits({random()}, [&](const KernelContext& context, const auto& in, Layout layout) {
      const TestTensor losses({kRows}, DType::kFloat32), lse({kRows}, DType::kFloat32);
      const TestTensor dlogits({kRows, columns}, dtype, layout);
      const CrossEntropyRows rows{in[0], targets, losses, lse};
      backend().cross_entropy(context, rows, options);
      backend().cross_entropy_backward(context, dlogits, {}, rows, options);
      return std::vector{losses, lse, dlogits};
    });
  });
}

TEST(Placement, OfPaddedLogits) {
  Rng rng(4);
  for (const DType dtype : kVectorDTypes) {
    const TestTensor dense = random_tensor({kRows, 1403}, dtype, rng);
    const TestTensor padded(dtype, {kRows, 1403}, {0, 1}, 1408 - 1403);
    for (std::int64_t i = 0; i < dense.numel(); ++i) padded.set(i, dense.at(i));
    const TestTensor targets = random_ids({kRows}, 1403, rng);
    for_all_settings([&](const KernelContext& context) {
      const TestTensor losses({2, kRows}, DType::kFloat32), lse({2, kRows}, DType::kFloat32);
      for (const std::int64_t at : {0, 1}) {
        const auto row = [at](const TestTensor& x) {
          TensorView view = rows_of(x, at, 1);
          view.shape = {kRows};
          view.strides = {1};
          return view;
        };
        backend().cross_entropy(context, {at == 0 ? dense : padded, targets, row(losses), row(lse)},
                                {});
      }
      for (std::int64_t r = 0; r < kRows; ++r) {
        EXPECT_EQ(losses.at(r), losses.at(kRows + r)) << r;
        EXPECT_EQ(lse.at(r), lse.at(kRows + r)) << r;
      }
    });
  }
}

TEST(Placement, OfAttentionDelta) {
  for_rows([](DType, std::int64_t columns, const auto& random, Rng&) {
    expect_same_bits({random(), random()},
                     [&](const KernelContext& context, const auto& in, Layout) {
                       const TestTensor delta({1, 1, kRows}, DType::kFloat32);
                       const auto rows = [&](const TestTensor& x) {
                         const TensorView view = x;
                         return TensorView{view.data,
                                           view.dtype,
                                           {1, 1, kRows, columns},
                                           {kRows * columns, kRows * columns, columns, 1},
                                           view.device};
                       };
                       backend().attention_delta(context, delta, rows(in[0]), rows(in[1]));
                       return std::vector{delta};
                     });
  });
}

}  // namespace
}  // namespace meshloom::kernels::test
