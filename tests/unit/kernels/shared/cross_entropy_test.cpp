// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

double row_lse(const TestTensor& x, std::int64_t row, std::int64_t n) {
  double top = -std::numeric_limits<double>::infinity();
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) top = std::max(top, x.at(row * n + i));
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x.at(row * n + i) - top);
  return top + std::log(sum);
}

double row_loss(const TestTensor& x, std::int64_t row, std::int64_t n, std::int64_t target,
                double smoothing) {
  const double lse = row_lse(x, row, n);
  double loss = (1.0 - smoothing) * (lse - x.at(row * n + target));
  for (std::int64_t i = 0; i < n; ++i)
    loss += smoothing / static_cast<double>(n) * (lse - x.at(row * n + i));
  return loss;
}

struct Problem {
  Problem(std::int64_t rows, std::int64_t classes, DType dtype, Rng& rng, double spread)
      : logits(random_tensor({rows, classes}, dtype, rng, -spread, spread)),
        targets(random_ids({rows}, classes, rng)) {
    if (rows > 2) targets.set(1, -100);
  }
  TestTensor logits, targets;
};

TEST(CrossEntropy, LossesAndLse) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes) {
    for (const std::int64_t classes : {1, 2, 17, 2048, 5003}) {
      for (const float smoothing : {0.0f, 0.1f}) {
        const Problem p(7, classes, dtype, rng, 20.0);
        CrossEntropyOptions options;
        options.label_smoothing = smoothing;
        for_all_settings([&](const KernelContext& context) {
          TestTensor losses({7}, DType::kFloat32), lse({7}, DType::kFloat32);
          backend().cross_entropy(context, {p.logits, p.targets, losses, lse}, options);
          for (std::int64_t r = 0; r < 7; ++r) {
            EXPECT_NEAR(lse.at(r), row_lse(p.logits, r, classes), 1e-5);
            const auto target = static_cast<std::int64_t>(p.targets.at(r));
            EXPECT_NEAR(losses.at(r),
                        target < 0 ? 0.0 : row_loss(p.logits, r, classes, target, smoothing), 2e-5);
          }
        });
      }
    }
  }
}

// Later logits lie far above or below the first ones, or are -inf: sums must be taken from where
// the large ones are.
TEST(CrossEntropy, LogitsThatRiseAndFall) {
  Rng rng(5);
  constexpr std::int64_t kClasses = 7001;
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloatDTypes) {
    TestTensor logits = random_tensor({6, kClasses}, dtype, rng, -5.0, 5.0);
    for (std::int64_t i = 0; i < kClasses; ++i) {
      logits.set(i, logits.at(i) + static_cast<double>(i) * 0.02);
      logits.set(kClasses + i, logits.at(kClasses + i) - static_cast<double>(i) * 0.02);
      if (i < 5000) logits.set(2 * kClasses + i, -inf);
      if (i == 6500) logits.set(3 * kClasses + i, 3e4);
      logits.set(4 * kClasses + i, logits.at(4 * kClasses + i) - 3e4);
      logits.set(5 * kClasses + i, -inf);
    }
    TestTensor targets({6}, DType::kInt64);
    for (std::int64_t r = 0; r < 6; ++r) targets.set(r, 6500);
    for_all_settings([&](const KernelContext& context) {
      TestTensor losses({6}, DType::kFloat32), lse({6}, DType::kFloat32);
      backend().cross_entropy(context, {logits, targets, losses, lse}, {});
      for (std::int64_t r = 0; r < 5; ++r) {
        const double expected = row_lse(logits, r, kClasses);
        EXPECT_NEAR(lse.at(r), expected, 1e-5 + 2e-7 * std::abs(expected)) << r;
      }
      EXPECT_EQ(lse.at(5), -inf);
    });
  }
}

TEST(CrossEntropy, GradientsAreFiniteDifferences) {
  Rng rng(2);
  for (const DType dtype : kFloatDTypes) {
    for (const float smoothing : {0.0f, 0.2f}) {
      const std::int64_t classes = 37;
      const Problem p(5, classes, dtype, rng, 3.0);
      const TestTensor grads = random_tensor({5}, DType::kFloat32, rng);
      TestTensor lse({5}, DType::kFloat32);
      for (std::int64_t r = 0; r < 5; ++r) lse.set(r, row_lse(p.logits, r, classes));
      CrossEntropyOptions options;
      options.label_smoothing = smoothing;
      options.grad_scale = 0.25f;
      std::vector<double> expected;
      for (std::int64_t r = 0; r < 5; ++r) {
        const auto target = static_cast<std::int64_t>(p.targets.at(r));
        for (std::int64_t i = 0; i < classes; ++i) {
          const double probability =
              std::exp(p.logits.at(r * classes + i) - row_lse(p.logits, r, classes));
          const double wanted = (i == target ? 1.0 - smoothing : 0.0) + smoothing / classes;
          expected.push_back(target < 0 ? 0.0 : grads.at(r) * 0.25 * (probability - wanted));
        }
        if (target < 0) continue;
        // The formula above against a difference quotient, at the target and beside.
        for (const std::int64_t i : {target, (target + 1) % classes}) {
          TestTensor up({5, classes}, DType::kFloat64), down({5, classes}, DType::kFloat64);
          for (std::int64_t k = 0; k < up.numel(); ++k) {
            const double step = k == r * classes + i ? 1e-5 : 0.0;
            up.set(k, p.logits.at(k) + step);
            down.set(k, p.logits.at(k) - step);
          }
          const double slope = (row_loss(up, r, classes, target, smoothing) -
                                row_loss(down, r, classes, target, smoothing)) /
                               2e-5;
          ASSERT_NEAR(expected[r * classes + i], grads.at(r) * 0.25 * slope, 1e-7);
        }
      }
      for_all_settings([&](const KernelContext& context) {
        TestTensor dlogits({5, classes}, dtype);
        backend().cross_entropy_backward(context, dlogits, grads, {p.logits, p.targets, {}, lse},
                                         options);
        expect_close(dlogits.values(), expected, std::max(tolerance(dtype), 1e-6), 0.1);
      });
    }
  }
}

TEST(CrossEntropy, GradientInPlaceOfLogits) {
  Rng rng(3);
  const Problem p(9, 300, DType::kFloat32, rng, 5.0);
  TestTensor lse({9}, DType::kFloat32), losses({9}, DType::kFloat32);
  for_all_settings([&](const KernelContext& context) {
    backend().cross_entropy(context, {p.logits, p.targets, losses, lse}, {});
    TestTensor apart({9, 300}, DType::kFloat32), in_place({9, 300}, DType::kFloat32);
    backend().copy(context, in_place, p.logits);
    backend().cross_entropy_backward(context, apart, {}, {p.logits, p.targets, {}, lse}, {});
    backend().cross_entropy_backward(context, in_place, {}, {in_place, p.targets, {}, lse}, {});
    EXPECT_EQ(in_place.values(), apart.values());
  });
}

TEST(CrossEntropy, GradientOfFloat32LogitsInBFloat16) {
  Rng rng(6);
  const Problem p(5, 129, DType::kFloat32, rng, 5.0);
  for_all_settings([&](const KernelContext& context) {
    const TestTensor lse({5}, DType::kFloat32), losses({5}, DType::kFloat32);
    backend().cross_entropy(context, {p.logits, p.targets, losses, lse}, {});
    const TestTensor wide({5, 129}, DType::kFloat32), narrow({5, 129}, DType::kBFloat16);
    backend().cross_entropy_backward(context, wide, {}, {p.logits, p.targets, {}, lse}, {});
    backend().cross_entropy_backward(context, narrow, {}, {p.logits, p.targets, {}, lse}, {});
    expect_close(narrow.values(), wide.values(), 0x1p-8, 1e-3);
  });
}

TEST(CrossEntropy, TargetsOutsideHaveNoLogit) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const TestTensor logits = zeros({2, 4}, dtype), losses({2}, dtype), lse({2}, dtype);
    const TestTensor targets = zeros({2}, DType::kInt64);
    for (const double bad : {-1.0, -7.0, 4.0, 1e18}) {
      targets.set(1, bad);
      backend().cross_entropy(test_context(), {logits, targets, losses, lse}, {});
      expect_close(losses.values(), {std::log(4.0), std::log(4.0)}, 1e-6);
      const TestTensor dlogits({2, 4}, dtype);
      backend().cross_entropy_backward(test_context(), dlogits, {}, {logits, targets, {}, lse}, {});
      expect_close(dlogits.values(), {-0.75, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25}, 1e-6);
    }
  }
}

// Three slices of the classes, by as many calls, give the losses and gradients of all of them.
TEST(CrossEntropy, SlicesOfTheClassesCombine) {
  Rng rng(7);
  constexpr std::int64_t kRows = 6, kClasses = 300, kSlices = 3;
  const std::int64_t begins[kSlices + 1] = {0, 130, 131, kClasses};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
    const Problem p(kRows, kClasses, dtype, rng, 6.0);
    for (const double smoothing : {0.0, 0.1}) {
      CrossEntropyOptions options;
      options.label_smoothing = smoothing;
      options.grad_scale = 0.5;
      CrossEntropyOptions sliced = options;
      sliced.slice.total = kClasses;
      for_all_settings([&](const KernelContext& context) {
        const TestTensor losses({kRows}, wide), lse({kRows}, wide);
        const TestTensor dlogits({kRows, kClasses}, dtype);
        const CrossEntropyRows whole{p.logits, p.targets, losses, lse};
        backend().cross_entropy(context, whole, options);
        backend().cross_entropy_backward(context, dlogits, {}, whole, options);

        const TestTensor shares({kSlices, 2, kRows}, wide);
        const TestTensor joined({kRows}, wide), joined_lse({kRows}, wide);
        const TestTensor slices_dlogits({kRows, kClasses}, dtype);
        const auto columns = [&](const TestTensor& x, std::int64_t s) {
          TensorView view = x;
          view.data =
              view.as<std::byte>() + begins[s] * static_cast<std::int64_t>(dtype_size(dtype));
          view.shape[1] = begins[s + 1] - begins[s];
          return view;
        };
        std::vector<TestTensor> targets;
        for (std::int64_t s = 0; s < kSlices; ++s) {
          targets.emplace_back(Shape{kRows}, DType::kInt64);
          for (std::int64_t r = 0; r < kRows; ++r) {
            const double id = p.targets.at(r), place = id - static_cast<double>(begins[s]);
            const bool inside = place >= 0 && id < static_cast<double>(begins[s + 1]);
            targets.back().set(r, id < 0 ? id : inside ? place : kOtherSlice);
          }
        }
        const auto row_of_shares = [&](std::int64_t at) {
          TensorView view = rows_of(shares, at / 2, 1);
          view.data =
              view.as<std::byte>() + at % 2 * kRows * static_cast<std::int64_t>(dtype_size(wide));
          view.shape = {kRows};
          view.strides = {1};
          return view;
        };
        for (std::int64_t s = 0; s < kSlices; ++s)
          backend().cross_entropy(context,
                                  {columns(p.logits, s), targets[static_cast<std::size_t>(s)],
                                   row_of_shares(2 * s), row_of_shares(2 * s + 1)},
                                  sliced);
        const CrossEntropyRows joint{{}, targets[0], joined, joined_lse};
        backend().combine_class_slices(context, joint, shares, sliced.ignore_index);
        for (std::int64_t s = 0; s < kSlices; ++s)
          backend().cross_entropy_backward(
              context, columns(slices_dlogits, s), {},
              {columns(p.logits, s), targets[static_cast<std::size_t>(s)], {}, joined_lse}, sliced);
        const double bound = dtype == DType::kFloat64 ? 1e-12 : 3e-6;
        expect_close(joined_lse.values(), lse.values(), bound);
        expect_close(joined.values(), losses.values(), bound, 10.0);
        expect_close(slices_dlogits.values(), dlogits.values(), tolerance(dtype), 0.1);
      });
    }
  }
}

TEST(CrossEntropy, NanInTheLogitsReachesTheLoss) {
  const TestTensor logits = zeros({1, 5000}, DType::kFloat32);
  logits.set(4321, std::nan(""));
  const TestTensor targets = zeros({1}, DType::kInt64);
  for_all_settings([&](const KernelContext& context) {
    TestTensor losses({1}, DType::kFloat32);
    backend().cross_entropy(context, {logits, targets, losses, {}}, {});
    EXPECT_TRUE(std::isnan(losses.at(0)));
  });
}

}  // namespace
}  // namespace meshloom::kernels::test
