// SPDX-License-Identifier: Apache-2.0
// The vector functions against double precision, in units in the last place, and the vector
// conversions against bit arithmetic, on every instruction set.
#include <bit>
#include <limits>

#include "kernels/cpu/cpu_features.h"
#include "tests/unit/kernels/cpu/kernel_test.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/unit/kernels/cpu/simd_math_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/coarse_math.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/simd_math.h"
#include "kernels/cpu/simd/simd_philox.h"

#ifndef MESHLOOM_TESTS_SIMD_MATH_FUNCTION_
#define MESHLOOM_TESTS_SIMD_MATH_FUNCTION_
namespace meshloom::kernels::cpu {
enum class Function {
  kExp,
  kExpBounded,
  kLog,
  kTanh,
  kExp2,
  kGelu,
  kGeluDerivative,
  kSine,
  kCosine,
  kCoarseExp2,
  kCoarseSigmoid,
  kCoarseSilu,
  kCoarseGelu,
  kCoarseGeluDerivative,
  kCoarseGeluTanh,
};
}  // namespace meshloom::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

hn::Vec<simd::FloatTag> evaluate(Function function, hn::Vec<simd::FloatTag> x) {
  const simd::FloatTag d;
  auto sine = x, cosine = x;
  switch (function) {
    case Function::kExp: return simd::exp(d, x);
    case Function::kExpBounded: return simd::exp_bounded(d, x);
    case Function::kLog: return simd::log(d, x);
    case Function::kTanh: return simd::tanh(d, x);
    case Function::kExp2: return simd::exp2(d, x);
    case Function::kGelu: return simd::gelu(d, x);
    case Function::kGeluDerivative: return simd::gelu_derivative(d, x);
    case Function::kCoarseExp2: return simd::coarse::exp2(d, x);
    case Function::kCoarseSigmoid: return simd::coarse::sigmoid(d, x);
    case Function::kCoarseSilu: return simd::coarse::silu(d, x);
    case Function::kCoarseGelu: return simd::coarse::gelu(d, x);
    case Function::kCoarseGeluDerivative: return simd::coarse::gelu_derivative(d, x);
    case Function::kCoarseGeluTanh: return simd::coarse::gelu_tanh(d, x);
    case Function::kSine:
    case Function::kCosine: break;
  }
  simd::sincos_turns(d, x, sine, cosine);
  return function == Function::kSine ? sine : cosine;
}

// n is a multiple of 16.
void evaluate_all(Function function, float* y, const float* x, std::size_t n) {
  const simd::FloatTag d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d))
    simd::store(d, evaluate(function, simd::load(d, x + i)), y + i);
}

void to_bfloat16(bfloat16* y, const float* x, std::size_t n) {
  const simd::FloatTag d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) simd::store(d, simd::load(d, x + i), y + i);
}
// By pairs of vectors where the target has a way of its own.
void to_bfloat16_by_two(bfloat16* y, const float* x, std::size_t n) {
  if constexpr (simd::kStoresTwo<bfloat16>) {
    const simd::FloatTag d;
    const std::size_t lanes = hn::Lanes(d);
    for (std::size_t i = 0; i + 2 * lanes <= n; i += 2 * lanes)
      simd::store_two(d, simd::load(d, x + i), simd::load(d, x + i + lanes), y + i);
  } else {
    to_bfloat16(y, x, n);
  }
}
void to_native_bfloat16(bfloat16* y, const float* x, std::size_t n) {
  if constexpr (simd::kStoresTwo<NativeBFloat16>) {
    const simd::FloatTag d;
    const std::size_t lanes = hn::Lanes(d);
    auto* to = reinterpret_cast<NativeBFloat16*>(y);
    for (std::size_t i = 0; i + 4 * lanes <= n; i += 4 * lanes) {
      simd::store_two(d, simd::load(d, x + i), simd::load(d, x + i + lanes), to + i);
      simd::store(d, simd::load(d, x + i + 2 * lanes), to + i + 2 * lanes);
      simd::store(d, simd::load(d, x + i + 3 * lanes), to + i + 3 * lanes);
    }
  } else {
    to_bfloat16(y, x, n);
  }
}
void to_float16(float16* y, const float* x, std::size_t n) {
  const simd::FloatTag d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) simd::store(d, simd::load(d, x + i), y + i);
}
void from_bfloat16(float* y, const bfloat16* x, std::size_t n) {
  const simd::FloatTag d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) simd::store(d, simd::load(d, x + i), y + i);
}
void from_float16(float* y, const float16* x, std::size_t n) {
  const simd::FloatTag d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) simd::store(d, simd::load(d, x + i), y + i);
}

void philox_words(const PhiloxStream& stream, std::uint64_t first, std::uint32_t* out,
                  std::size_t* blocks) {
  const simd::PhiloxTag d;
  *blocks = hn::Lanes(d);
  std::uint32_t low[16], high[16];
  for (std::size_t j = 0; j < *blocks; ++j) {
    low[j] = static_cast<std::uint32_t>(first + j);
    high[j] = static_cast<std::uint32_t>((first + j) >> 32);
  }
  const simd::PhiloxVectors random = simd::philox_blocks_at(
      simd::philox_keys(stream), stream.stream, hn::LoadU(d, low), hn::LoadU(d, high));
  for (int w = 0; w < 4; ++w) hn::StoreU(random.words[w], d, out + w * *blocks);
}

}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::kernels::cpu {
HWY_EXPORT(evaluate_all);
HWY_EXPORT(to_bfloat16);
HWY_EXPORT(to_bfloat16_by_two);
HWY_EXPORT(to_native_bfloat16);
HWY_EXPORT(to_float16);
HWY_EXPORT(from_bfloat16);
HWY_EXPORT(from_float16);
HWY_EXPORT(philox_words);

namespace {

void for_all_targets(const std::function<void()>& body) {
  for (const std::string& target : available_targets()) {
    SCOPED_TRACE(target);
    force_target(target);
    body();
  }
  force_target("");
}

struct Range {
  Function function;
  double low, high;
  double (*reference)(double);
  double bound;  // ulp; for sine and cosine in units of 2^-23
};

const std::vector<Range> kRanges{
    {Function::kExp, -87.3, 88.72, [](double x) { return std::exp(x); }, 2.0},
    {Function::kExpBounded, -87.3, 0.0, [](double x) { return std::exp(x); }, 2.0},
    {Function::kLog, 1e-38, 1e-30, [](double x) { return std::log(x); }, 2.0},
    {Function::kLog, 0.4, 2.5, [](double x) { return std::log(x); }, 2.0},
    {Function::kLog, 1.0, 1e6, [](double x) { return std::log(x); }, 2.0},
    {Function::kTanh, -1.0, 1.0, [](double x) { return std::tanh(x); }, 2.0},
    {Function::kTanh, -12.0, 12.0, [](double x) { return std::tanh(x); }, 2.0},
    {Function::kExp2, -125.9, 127.4, [](double x) { return std::exp2(x); }, 2.0},
    {Function::kExp2, -1.0, 1.0, [](double x) { return std::exp2(x); }, 2.0},
    {Function::kSine, 0.0, 1.0, [](double x) { return std::sin(2 * M_PI * x); }, 2.0},
    {Function::kCosine, 0.0, 1.0, [](double x) { return std::cos(2 * M_PI * x); }, 2.0},
};

double ulp_of(double value) {
  const float nearest = std::abs(static_cast<float>(value));
  return std::nextafterf(nearest, std::numeric_limits<float>::infinity()) -
         static_cast<double>(nearest);
}

TEST(SimdMath, ErrorsStayWithinTwoUlp) {
  constexpr std::size_t kPoints = 1 << 18;
  std::vector<float> x(kPoints), y(kPoints);
  for (const Range& range : kRanges) {
    for (std::size_t i = 0; i < kPoints; ++i)
      x[i] = static_cast<float>(range.low +
                                (range.high - range.low) * static_cast<double>(i) / kPoints);
    for_all_targets([&] {
      HWY_DYNAMIC_DISPATCH(evaluate_all)(range.function, y.data(), x.data(), kPoints);
      for (std::size_t i = 0; i < kPoints; ++i) {
        const double expected = range.reference(x[i]);
        const bool turns = range.function >= Function::kSine;
        const double unit = turns ? 0x1p-23 : ulp_of(expected);
        ASSERT_LE(std::abs(y[i] - expected) / unit, range.bound)
            << "function " << static_cast<int>(range.function) << " at " << x[i];
      }
    });
  }
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }
double gelu(double x) { return x * normal_cdf(x); }
double gelu_derivative(double x) {
  return normal_cdf(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI);
}

// Relative to the value down to where the normal distribution ends, and absolute beyond.
TEST(SimdMath, GeluKeepsItsLowerTail) {
  constexpr std::size_t kPoints = 1 << 18;
  std::vector<float> x(kPoints), y(kPoints);
  for (std::size_t i = 0; i < kPoints; ++i)
    x[i] = static_cast<float>(-12.0 + 24.0 * static_cast<double>(i) / kPoints);
  for_all_targets([&] {
    HWY_DYNAMIC_DISPATCH(evaluate_all)(Function::kGelu, y.data(), x.data(), kPoints);
    for (std::size_t i = 0; i < kPoints; ++i) {
      // Exponents are rounded, so that the error grows with x^2.
      const double relative = 5e-7 + 8e-8 * (x[i] < 0 ? static_cast<double>(x[i]) * x[i] : 0.0);
      ASSERT_NEAR(y[i], gelu(x[i]), relative * std::abs(gelu(x[i])) + 2e-11) << x[i];
    }
    HWY_DYNAMIC_DISPATCH(evaluate_all)(Function::kGeluDerivative, y.data(), x.data(), kPoints);
    for (std::size_t i = 0; i < kPoints; ++i) {
      const double wanted = gelu_derivative(x[i]);
      ASSERT_NEAR(y[i], wanted, 4e-7 * std::abs(wanted) + 1e-7) << x[i];
    }
  });
}

TEST(SimdMath, EdgesAndNan) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // The payloads of the last two would be shifted into an exponent if they were not kept apart.
  const float x[16] = {0.0f,
                       -0.0f,
                       inf,
                       -inf,
                       nan,
                       88.8f,
                       -88.0f,
                       -200.0f,
                       1e-40f,
                       -1.0f,
                       3e38f,
                       -3e38f,
                       std::bit_cast<float>(0xffffffffu),
                       std::bit_cast<float>(0x7fc00001u),
                       1.0f,
                       2.0f};
  float y[16];
  for_all_targets([&] {
    HWY_DYNAMIC_DISPATCH(evaluate_all)(Function::kExp, y, x, 16);
    const float exps[] = {1.0f, 1.0f, inf,         0.0f, nan,  inf, 0.0f,
                          0.0f, 1.0f, 0.36787945f, inf,  0.0f, nan, nan};
    for (int i = 0; i < 14; ++i) {
      if (std::isnan(exps[i]))
        EXPECT_TRUE(std::isnan(y[i])) << i;
      else
        EXPECT_EQ(y[i], exps[i]) << i;
    }
    HWY_DYNAMIC_DISPATCH(evaluate_all)(Function::kLog, y, x, 16);
    EXPECT_EQ(y[0], -inf);
    EXPECT_EQ(y[1], -inf);
    EXPECT_EQ(y[2], inf);
    EXPECT_FLOAT_EQ(y[8], std::log(1e-40));
    for (const int i : {3, 4, 9, 12, 13}) EXPECT_TRUE(std::isnan(y[i])) << i;
    HWY_DYNAMIC_DISPATCH(evaluate_all)(Function::kTanh, y, x, 16);
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[2], 1.0f);
    EXPECT_EQ(y[3], -1.0f);
    for (const int i : {4, 12, 13}) EXPECT_TRUE(std::isnan(y[i])) << i;
    for (const Function function : {Function::kExp2, Function::kCoarseExp2}) {
      HWY_DYNAMIC_DISPATCH(evaluate_all)(function, y, x, 16);
      for (const int i : {0, 1}) EXPECT_NEAR(y[i], 1.0f, 2e-6f) << i;
      for (const int i : {3, 7, 11}) EXPECT_EQ(y[i], 0.0f) << i;
      for (const int i : {2, 10}) EXPECT_EQ(y[i], inf) << i;
      for (const int i : {4, 12, 13}) EXPECT_TRUE(std::isnan(y[i])) << i;
    }
    for (const Function function : {Function::kGelu, Function::kCoarseGelu}) {
      HWY_DYNAMIC_DISPATCH(evaluate_all)(function, y, x, 16);
      EXPECT_EQ(y[0], 0.0f);
      for (const int i : {2, 5, 10}) EXPECT_EQ(y[i], x[i]) << i;
      for (const int i : {3, 6, 7, 11}) EXPECT_NEAR(y[i], 0.0f, 1e-20f) << i;
      for (const int i : {4, 12, 13}) EXPECT_TRUE(std::isnan(y[i])) << i;
    }
    for (const Function function : {Function::kGeluDerivative, Function::kCoarseGeluDerivative}) {
      HWY_DYNAMIC_DISPATCH(evaluate_all)(function, y, x, 16);
      EXPECT_NEAR(y[0], 0.5f, 1e-5f);
      for (const int i : {2, 5, 10}) EXPECT_EQ(y[i], 1.0f) << i;
      for (const int i : {3, 6, 7, 11}) EXPECT_EQ(y[i], 0.0f) << i;
      for (const int i : {4, 12, 13}) EXPECT_TRUE(std::isnan(y[i])) << i;
    }
  });
}

TEST(SimdConversion, EveryHalfPatternToFloat) {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> y(65536);
  for_all_targets([&] {
    HWY_DYNAMIC_DISPATCH(from_bfloat16)
    (y.data(), reinterpret_cast<const bfloat16*>(bits.data()), 65536);
    for (std::uint32_t i = 0; i < 65536; ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]), i << 16);
    HWY_DYNAMIC_DISPATCH(from_float16)
    (y.data(), reinterpret_cast<const float16*>(bits.data()), 65536);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const float expected = float16::to_float(static_cast<std::uint16_t>(i));
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(y[i])) << i;
      else
        ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  });
}

// Every half value, the midpoints to its neighbour and the values right beside those.
std::vector<float> rounding_inputs() {
  std::vector<float> x;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const std::uint32_t bits = i << 16;
    for (const std::uint32_t low : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(bits | low));
    const float half = float16::to_float(static_cast<std::uint16_t>(i));
    const float next = float16::to_float(static_cast<std::uint16_t>(i + 1));
    const float middle = 0.5f * (half + next);
    for (const float v :
         {half, middle, std::nextafterf(middle, half), std::nextafterf(middle, next)})
      x.push_back(v);
  }
  x.resize((x.size() + 63) / 64 * 64, 0.0f);
  return x;
}

TEST(SimdConversion, RoundsAsBitArithmeticDoes) {
  const std::vector<float> x = rounding_inputs();
  std::vector<bfloat16> b(x.size());
  std::vector<float16> h(x.size());
  for_all_targets([&] {
    HWY_DYNAMIC_DISPATCH(to_bfloat16)(b.data(), x.data(), x.size());
    HWY_DYNAMIC_DISPATCH(to_float16)(h.data(), x.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(b[i].bits, bfloat16::from_float(x[i])) << x[i];
      if (std::isnan(x[i]))
        ASSERT_TRUE(std::isnan(static_cast<float>(h[i])));
      else
        ASSERT_EQ(h[i].bits, float16::from_float(x[i])) << x[i];
    }
  });
}

TEST(SimdConversion, PairsOfVectorsRoundAlike) {
  const std::vector<float> x = rounding_inputs();
  std::vector<bfloat16> two(x.size()), native(x.size());
  for_all_targets([&] {
    HWY_DYNAMIC_DISPATCH(to_bfloat16_by_two)(two.data(), x.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(two[i].bits, bfloat16::from_float(x[i])) << x[i];
    if (!bfloat16_dot_products()) return;
    HWY_DYNAMIC_DISPATCH(to_native_bfloat16)(native.data(), x.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      // Below the normal numbers it is free to give 0.
      if (std::abs(x[i]) >= std::numeric_limits<float>::min() || std::isnan(x[i]))
        ASSERT_EQ(native[i].bits, bfloat16::from_float(x[i])) << x[i];
      else
        ASSERT_LE(std::abs(static_cast<float>(native[i])), std::numeric_limits<float>::min());
    }
  });
}

// Every bfloat16 as input; results below the normal numbers may be 0.
TEST(CoarseMath, StaysFarBelowTheRoundingOfBfloat16) {
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  const auto gelu_tanh = [&](double x) {
    return x * sigmoid(2.0 * std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
  };
  std::vector<float> x(65536), y(65536);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i) << 16);
  const auto check = [&](Function function, const auto& expected, double absolute = 2e-36) {
    HWY_DYNAMIC_DISPATCH(evaluate_all)(function, y.data(), x.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(y[i]));
      }
      if (!std::isfinite(x[i])) continue;
      const double wanted = expected(x[i]);
      ASSERT_NEAR(y[i], wanted, std::abs(wanted) * 0x1p-16 + absolute) << x[i];
    }
  };
  for_all_targets([&] {
    check(Function::kCoarseSigmoid, sigmoid);
    check(Function::kCoarseSilu, [&](double v) { return v * sigmoid(v); });
    check(Function::kCoarseGeluTanh, gelu_tanh);
    check(Function::kCoarseGelu, gelu, 1e-10);
    check(Function::kCoarseGeluDerivative, gelu_derivative, 1e-6);
  });
}

TEST(SimdPhilox, IsTheScalarPhilox) {
  std::uint32_t words[64];
  for_all_targets([&] {
    for (const std::uint64_t first :
         {0ull, 1ull, 0xfffffff5ull, 0xffffffffull, (7ull << 32) - 3, ~0ull - 20}) {
      const PhiloxStream stream{0xdeadbeefcafef00dull, 0x0123456789abcdefull};
      std::size_t blocks = 0;
      HWY_DYNAMIC_DISPATCH(philox_words)(stream, first, words, &blocks);
      for (std::size_t j = 0; j < blocks; ++j)
        for (std::size_t w = 0; w < 4; ++w)
          ASSERT_EQ(words[w * blocks + j], stream.block(first + j)[w]) << first << " + " << j;
    }
  });
}

TEST(Targets, AreListedAndForced) {
  const std::vector<std::string> targets = available_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(current_target(), targets.front());
  for (const std::string& target : targets) {
    force_target(target);
    EXPECT_EQ(current_target(), target);
  }
  EXPECT_THROW(force_target("AVX9"), InvalidArgument);
  force_target("");
  EXPECT_EQ(current_target(), targets.front());
}

}  // namespace
}  // namespace meshloom::kernels::cpu
#endif  // HWY_ONCE
