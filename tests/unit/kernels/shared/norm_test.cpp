// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

constexpr float kEps = 1e-5f;
const NormOptions kLayer{kEps, NormKind::kLayer}, kRms{kEps, NormKind::kRms};

struct Reference {
  std::vector<double> y, mean, rstd;
};

Reference norm_reference(const std::vector<double>& x, std::int64_t n, const TestTensor* weight,
                         const TestTensor* bias, bool rms) {
  Reference out;
  out.y.resize(x.size());
  for (std::size_t r = 0; r < x.size() / n; ++r) {
    double mean = 0.0, square = 0.0;
    for (std::int64_t i = 0; i < n && !rms; ++i) mean += x[r * n + i] / static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) square += std::pow(x[r * n + i] - mean, 2);
    const double rstd = 1.0 / std::sqrt(square / static_cast<double>(n) + kEps);
    for (std::int64_t i = 0; i < n; ++i)
      out.y[r * n + i] = (x[r * n + i] - mean) * rstd * (weight != nullptr ? weight->at(i) : 1.0) +
                         (bias != nullptr ? bias->at(i) : 0.0);
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
  }
  return out;
}

// sum(dy * norm(x)) as a function of x, weight and bias, for finite differences.
double objective(const std::vector<double>& x, const std::vector<double>& dy, std::int64_t n,
                 const TestTensor* weight, const TestTensor* bias, bool rms) {
  const Reference forward = norm_reference(x, n, weight, bias, rms);
  double sum = 0.0;
  for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * forward.y[i];
  return sum;
}

DType parameter_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

struct Shapes {
  std::int64_t rows, columns;
};

const std::vector<Shapes> kShapes{{1, 1},   {3, 7},   {5, 64},  {130, 33},
                                  {9, 771}, {4, 129}, {2, 1000}};

TEST(LayerNorm, ForwardInEveryDType) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes) {
    for (const auto& [rows, columns] : kShapes) {
      const TestTensor x = random_tensor({rows, columns}, dtype, rng, -1.0, 4.0);
      const TestTensor weight = random_tensor({columns}, parameter_dtype(dtype), rng);
      const TestTensor bias = random_tensor({columns}, parameter_dtype(dtype), rng);
      const Reference expected = norm_reference(x.values(), columns, &weight, &bias, false);
      for_all_settings([&](const KernelContext& context) {
        TestTensor y({rows, columns}, dtype);
        TestTensor mean({rows}, DType::kFloat32);
        TestTensor rstd({rows}, DType::kFloat32);
        backend().norm(context,
                       {.y = y, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias},
                       kLayer);
        // A column of one has no spread: rstd is about 316 and scales the rounding of x - mean.
        expect_close(y.values(), expected.y, 4 * tolerance(dtype));
        expect_close(mean.values(), expected.mean, 1e-6);
        expect_close(rstd.values(), expected.rstd, 1e-5);
      });
    }
  }
}

TEST(LayerNorm, WithoutParametersAndStatistics) {
  Rng rng(2);
  const TestTensor x = random_tensor({6, 45}, DType::kFloat32, rng);
  const TestTensor weight = random_tensor({45}, DType::kBFloat16, rng);
  for_all_settings([&](const KernelContext& context) {
    TestTensor y({6, 45}, DType::kFloat32);
    backend().norm(context, {.y = y, .x = x}, kLayer);
    expect_close(y.values(), norm_reference(x.values(), 45, nullptr, nullptr, false).y, 1e-5);
    backend().norm(context, {.y = y, .x = x, .weight = weight}, kLayer);
    expect_close(y.values(), norm_reference(x.values(), 45, &weight, nullptr, false).y, 1e-5);
  });
}

TEST(LayerNorm, LargeMeanSmallSpread) {
  Rng rng(3);
  const TestTensor x = random_tensor({4, 500}, DType::kFloat32, rng, 1000.0, 1001.0);
  for_all_settings([&](const KernelContext& context) {
    TestTensor y({4, 500}, DType::kFloat32);
    backend().norm(context, {.y = y, .x = x}, kLayer);
    // The mean itself is rounded to 6e-5, a part of 2e-4 of the spread.
    expect_close(y.values(), norm_reference(x.values(), 500, nullptr, nullptr, false).y, 5e-4);
  });
}

TEST(RmsNorm, ForwardInEveryDType) {
  Rng rng(4);
  for (const DType dtype : kFloatDTypes) {
    for (const auto& [rows, columns] : kShapes) {
      const TestTensor x = random_tensor({rows, columns}, dtype, rng, -1.0, 4.0);
      const TestTensor weight = random_tensor({columns}, parameter_dtype(dtype), rng);
      const Reference expected = norm_reference(x.values(), columns, &weight, nullptr, true);
      for_all_settings([&](const KernelContext& context) {
        TestTensor y({rows, columns}, dtype);
        TestTensor rstd({rows}, DType::kFloat32);
        backend().norm(context, {.y = y, .rstd = rstd, .x = x, .weight = weight}, kRms);
        expect_close(y.values(), expected.y, 4 * tolerance(dtype));
        expect_close(rstd.values(), expected.rstd, 1e-5);
      });
    }
  }
}

TEST(AddNorm, IsAddThenNorm) {
  Rng rng(5);
  for (const DType dtype : kFloatDTypes) {
    for (const bool rms : {false, true}) {
      const TestTensor x = random_tensor({21, 131}, dtype, rng);
      const TestTensor residual = random_tensor({21, 131}, dtype, rng);
      const TestTensor weight = random_tensor({131}, parameter_dtype(dtype), rng);
      const TestTensor bias = random_tensor({131}, parameter_dtype(dtype), rng);
      for_all_settings([&](const KernelContext& context) {
        TestTensor y({21, 131}, dtype), sum({21, 131}, dtype);
        TestTensor mean({21}, DType::kFloat32), rstd({21}, DType::kFloat32);
        const NormOptions& options = rms ? kRms : kLayer;
        const TensorView kept_mean = rms ? TensorView{} : mean.view();
        const TensorView used_bias = rms ? TensorView{} : bias.view();
        backend().norm(context, {y, sum, kept_mean, rstd, x, residual, weight, used_bias}, options);
        TestTensor sum2({21, 131}, dtype), y2({21, 131}, dtype), rstd2({21}, DType::kFloat32);
        backend().binary(context, BinaryOp::kAdd, sum2, x, residual);
        backend().norm(context, {y2, {}, {}, rstd2, sum2, {}, weight, used_bias}, options);
        EXPECT_EQ(sum.values(), sum2.values());
        EXPECT_EQ(y.values(), y2.values());
        EXPECT_EQ(rstd.values(), rstd2.values());
      });
    }
  }
}

// One random backward problem with its expected gradients by central differences in double.
struct BackwardCase {
  BackwardCase(Shapes shape, DType dtype, bool is_rms, Rng& rng)
      : rows(shape.rows),
        columns(shape.columns),
        rms(is_rms),
        x(random_tensor({rows, columns}, dtype, rng, -1.0, 4.0)),
        dy(random_tensor({rows, columns}, dtype, rng)),
        weight(random_tensor({columns}, parameter_dtype(dtype), rng)),
        bias(random_tensor({columns}, parameter_dtype(dtype), rng)),
        mean({rows}, DType::kFloat32),
        rstd({rows}, DType::kFloat32) {
    const Reference forward = norm_reference(x.values(), columns, &weight, &bias, rms);
    for (std::int64_t r = 0; r < rows; ++r) {
      mean.set(r, forward.mean[r]);
      rstd.set(r, forward.rstd[r]);
    }
    difference();
  }

  void difference() {
    const double h = 1e-5;
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<double> row(columns), grad(columns);
      for (std::int64_t i = 0; i < columns; ++i) {
        row[i] = x.at(r * columns + i);
        grad[i] = dy.at(r * columns + i);
      }
      for (std::int64_t i = 0; i < columns; ++i) {
        std::vector<double> up = row, down = row;
        up[i] += h;
        down[i] -= h;
        dx.push_back((objective(up, grad, columns, &weight, &bias, rms) -
                      objective(down, grad, columns, &weight, &bias, rms)) /
                     (2 * h));
      }
    }
    const Reference plain = norm_reference(x.values(), columns, nullptr, nullptr, rms);
    dweight.assign(columns, 0.0);
    dbias.assign(columns, 0.0);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      dweight[i % columns] += dy.at(i) * plain.y[i];
      dbias[i % columns] += dy.at(i);
    }
  }

  std::int64_t rows, columns;
  bool rms;
  TestTensor x, dy, weight, bias, mean, rstd;
  std::vector<double> dx, dweight, dbias;
};

void check_backward(const BackwardCase& c, DType dtype, bool accumulate) {
  for_all_settings([&](const KernelContext& context) {
    TestTensor dx({c.rows, c.columns}, dtype);
    TestTensor dweight({c.columns}, parameter_dtype(dtype)),
        dbias({c.columns}, parameter_dtype(dtype));
    backend().fill(context, dx, 0.5);
    backend().fill(context, dweight, 0.25);
    backend().fill(context, dbias, 0.75);
    const TensorView bias_sums = c.rms ? TensorView{} : dbias.view();
    const TensorView kept_mean = c.rms ? TensorView{} : c.mean.view();
    backend().norm_backward(context, {dx, dweight, bias_sums, c.dy, c.x, c.weight, kept_mean,
                                      c.rstd, accumulate, accumulate});
    const auto plus = [&](std::vector<double> values, double start) {
      for (double& v : values) v += accumulate ? start : 0.0;
      return values;
    };
    const double scale = c.rstd.at(0) > 100 ? 100.0 : 4.0;
    // Float32 statistics bound float64 too.
    const double relative = std::max(tolerance(dtype), 2e-6);
    expect_close(dx.values(), plus(c.dx, 0.5), relative, scale);
    expect_close(dweight.values(), plus(c.dweight, 0.25), 1e-5, 4.0);
    if (!c.rms) expect_close(dbias.values(), plus(c.dbias, 0.75), 1e-5, 4.0);
  });
}

TEST(NormBackward, MatchesFiniteDifferences) {
  Rng rng(6);
  for (const DType dtype : kFloatDTypes)
    for (const Shapes& shape : {Shapes{3, 7}, Shapes{70, 33}, Shapes{4, 200}})
      for (const bool rms : {false, true}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + (rms ? " rms " : " layer ") +
                     std::to_string(shape.columns));
        const BackwardCase c(shape, dtype, rms, rng);
        check_backward(c, dtype, false);
        check_backward(c, dtype, true);
      }
}

TEST(NormBackward, ManyRowsAndNoParameters) {
  Rng rng(7);
  const BackwardCase c({1500, 24}, DType::kFloat32, false, rng);
  check_backward(c, DType::kFloat32, true);
  for_all_settings([&](const KernelContext& context) {
    TestTensor dx({1500, 24}, DType::kFloat32);
    backend().norm_backward(context, {dx, {}, {}, c.dy, c.x, c.weight, c.mean, c.rstd});
    expect_close(dx.values(), c.dx, 2e-6, 4.0);
  });
}

TEST(LayerNorm, OfRowsOf64K) {
  Rng rng(8);
  constexpr std::int64_t kColumns = 65536;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16})
    for (const std::int64_t columns : {kColumns, kColumns - 1}) {
      const TestTensor x = random_tensor({2, columns}, dtype, rng, 3.0, 5.0);
      const TestTensor dy = random_tensor({2, columns}, dtype, rng);
      const Reference forward = norm_reference(x.values(), columns, nullptr, nullptr, false);
      // dx = rstd (dy - mean(dy) - n mean(dy n))
      std::vector<double> expected(forward.y.size());
      for (std::int64_t r = 0; r < 2; ++r) {
        double grad = 0.0, product = 0.0;
        for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i) {
          grad += dy.at(i) / static_cast<double>(columns);
          product += dy.at(i) * forward.y[i] / static_cast<double>(columns);
        }
        for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i)
          expected[i] = forward.rstd[r] * (dy.at(i) - grad - forward.y[i] * product);
      }
      for_all_settings([&](const KernelContext& context) {
        const TestTensor y({2, columns}, dtype), dx({2, columns}, dtype);
        const TestTensor mean({2}, DType::kFloat32), rstd({2}, DType::kFloat32);
        backend().norm(context, {.y = y, .mean = mean, .rstd = rstd, .x = x}, kLayer);
        backend().norm_backward(context, {.dx = dx, .dy = dy, .x = x, .mean = mean, .rstd = rstd});
        expect_close(y.values(), forward.y, std::max(4 * tolerance(dtype), 2e-5));
        expect_close(rstd.values(), forward.rstd, 1e-5);
        expect_close(dx.values(), expected, std::max(4 * tolerance(dtype), 2e-5), 2.0);
      });
    }
}

TEST(NormBackward, NoRowsClearsParameters) {
  const TestTensor empty({0, 8}, DType::kFloat32);
  const TestTensor none({0}, DType::kFloat32);
  TestTensor dweight({8}, DType::kFloat32);
  backend().fill(test_context(), dweight, 3.0);
  backend().norm_backward(test_context(),
                          {.dx = empty, .dweight = dweight, .dy = empty, .x = empty, .rstd = none});
  for (const double v : dweight.values()) EXPECT_EQ(v, 0.0);
}

}  // namespace
}  // namespace meshloom::kernels::test
