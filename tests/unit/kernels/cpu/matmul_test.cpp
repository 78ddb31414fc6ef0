// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <thread>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/matmul/library_threads.h"
#include "kernels/cpu/matmul/matmul_onednn.h"
#include "kernels/cpu/matmul/matmul_table.h"
#include "tests/unit/kernels/cpu/compute_fixture.h"

namespace meshloom::kernels::cpu {
namespace {

using testing::ForcedTarget;
using testing::HeapWorkspace;
using testing::HostTensor;

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }
double gelu_tanh(double x) {
  return 0.5 * x *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 1e-12;
    case DType::kBFloat16: return 1.0 / 256;
    case DType::kFloat16: return 1.0 / 1024;
    default: return 1e-5;
  }
}

struct Case {
  DType dtype = DType::kFloat32;
  DType y_dtype = DType::kFloat32;
  std::int64_t batch = 0;  ///< 0: two dims
  std::int64_t m = 1, n = 1, k = 1;
  bool a_transposed = false, b_transposed = false, b_shared = false;
  std::int64_t a_gap = 0, b_gap = 0;
  float alpha = 1.0f, beta = 0.0f;
  Epilogue epilogue = Epilogue::kNone;
  bool keep_pre_activation = false;
  int threads = 1;
};

Shape with_batch(const Case& c, std::int64_t rows, std::int64_t columns) {
  return c.batch == 0 ? Shape{rows, columns} : Shape{c.batch, rows, columns};
}

HostTensor operand(const Case& c, std::int64_t rows, std::int64_t columns, bool is_transposed,
                   std::int64_t gap) {
  const bool batched = c.batch > 0;
  std::vector<int> order = batched ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1};
  if (is_transposed) std::swap(order[order.size() - 1], order[order.size() - 2]);
  return HostTensor(c.dtype, with_batch(c, rows, columns), order, gap);
}

void run_case(const Case& c, std::mt19937& random) {
  const std::int64_t batches = std::max<std::int64_t>(c.batch, 1);
  const HostTensor a = operand(c, c.m, c.k, c.a_transposed, c.a_gap);
  Case shared = c;
  if (c.b_shared) shared.batch = 0;
  const HostTensor b = operand(shared, c.k, c.n, c.b_transposed, c.b_gap);
  const HostTensor y(c.y_dtype, with_batch(c, c.m, c.n));
  const HostTensor pre(c.y_dtype, with_batch(c, c.m, c.n));
  const HostTensor bias(c.dtype, {c.n});
  for (const HostTensor* t : {&a, &b, &y, &bias}) t->fill_random(random);
  MatmulOptions options;
  options.alpha = c.alpha;
  options.beta = c.beta;
  options.epilogue = c.epilogue;
  if (c.epilogue != Epilogue::kNone) options.bias = bias.view();
  if (c.keep_pre_activation) options.pre_activation = pre.view();
  TensorView b_view = b.view();
  if (c.b_shared && c.batch > 0) {
    b_view.shape = {c.batch, c.k, c.n};
    b_view.strides = {0, b.view().stride(0), b.view().stride(1)};
  }
  const std::vector<double> before = y.values();
  HeapWorkspace workspace;
  const KernelContext context{{c.threads}, {}, &workspace};
  EXPECT_EQ(
      matmul_workspace_bytes(context.threads, y.view(), a.view(), b_view, options) > 0,
      (cpu_backend().matmul(context, y.view(), a.view(), b_view, options), workspace.most() > 0));
  EXPECT_LE(workspace.most(),
            matmul_workspace_bytes(context.threads, y.view(), a.view(), b_view, options));
  // A sample of the elements, the corners among them, against sums in double.
  const std::int64_t total = batches * c.m * c.n;
  for (std::int64_t s = 0; s < std::min<std::int64_t>(total, 400); ++s) {
    const std::int64_t at = s < 2 ? s * (total - 1) : static_cast<std::int64_t>(random() % total);
    const std::int64_t batch = at / (c.m * c.n), i = at / c.n % c.m, j = at % c.n;
    double sum = 0.0, size = 1.0;
    for (std::int64_t p = 0; p < c.k; ++p) {
      const double term =
          a.at((batch * c.m + i) * c.k + p) * b.at(((c.b_shared ? 0 : batch) * c.k + p) * c.n + j);
      sum += term;
      size += std::abs(term) * 0.05;
    }
    double want = c.alpha * sum + c.beta * before[static_cast<std::size_t>(at)];
    if (c.epilogue != Epilogue::kNone) want += bias.at(j);
    const double tolerance = tolerance_of(c.y_dtype) * (1.0 + std::abs(want)) + 1e-6 * size;
    if (c.keep_pre_activation) {
      ASSERT_NEAR(pre.at(at), want, tolerance) << "pre_activation " << at;
    }
    if (c.epilogue == Epilogue::kBiasGelu) want = gelu(want);
    if (c.epilogue == Epilogue::kBiasGeluTanh) want = gelu_tanh(want);
    ASSERT_NEAR(y.at(at), want, tolerance) << "element " << at << " of " << total;
  }
}

Case random_case(std::mt19937& random) {
  Case c;
  const DType dtypes[] = {DType::kFloat32, DType::kFloat32, DType::kBFloat16, DType::kFloat16,
                          DType::kFloat64};
  c.dtype = dtypes[random() % 5];
  c.y_dtype = c.dtype != DType::kFloat64 && random() % 3 == 0 ? DType::kFloat32 : c.dtype;
  c.batch = static_cast<std::int64_t>(random() % 4);
  const auto size = [&] {
    const std::int64_t kinds[] = {1, 2 + static_cast<std::int64_t>(random() % 30),
                                  2 + static_cast<std::int64_t>(random() % 300)};
    return kinds[random() % 3];
  };
  c.m = size();
  c.n = size();
  c.k = size();
  c.a_transposed = random() % 2 == 0;
  c.b_transposed = random() % 2 == 0;
  c.b_shared = random() % 2 == 0;
  c.a_gap = static_cast<std::int64_t>(random() % 2 * 5);
  c.b_gap = static_cast<std::int64_t>(random() % 2 * 3);
  c.alpha = random() % 3 == 0 ? 0.5f : 1.0f;
  const Epilogue epilogues[] = {Epilogue::kNone, Epilogue::kNone, Epilogue::kBias,
                                Epilogue::kBiasGelu, Epilogue::kBiasGeluTanh};
  c.epilogue = epilogues[random() % 5];
  c.beta = c.epilogue == Epilogue::kNone && random() % 2 == 0 ? 1.0f : 0.0f;
  c.keep_pre_activation = c.epilogue > Epilogue::kBias && random() % 2 == 0;
  c.threads = 1 + static_cast<int>(random() % 3);
  return c;
}

std::string describe(const Case& c) {
  return fmt::format(
      "{} -> {} batch {} [{}, {}, {}] transposed {} {} shared {} gaps {} {} beta {} "
      "epilogue {} threads {}",
      dtype_name(c.dtype), dtype_name(c.y_dtype), c.batch, c.m, c.n, c.k, c.a_transposed,
      c.b_transposed, c.b_shared, c.a_gap, c.b_gap, c.beta, static_cast<int>(c.epilogue),
      c.threads);
}

TEST(Matmul, MatchesSumsInDoubleOnRandomProblems) {
  std::mt19937 random(7);
  for (int i = 0; i < 250; ++i) {
    const Case c = random_case(random);
    SCOPED_TRACE(describe(c));
    const std::vector<std::string> targets = available_targets();
    const ForcedTarget forced(targets[random() % targets.size()]);
    run_case(c, random);
    if (HasFatalFailure()) return;
  }
}

// Sizes at which conversions go panel by panel, and those of the provider table.
TEST(Matmul, MatchesSumsInDoubleAtLargeSizes) {
  std::mt19937 random(8);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const bool wgrad : {false, true}) {
      Case c;
      c.dtype = dtype;
      c.y_dtype = wgrad ? DType::kFloat32 : dtype;
      c.m = 1100;
      c.n = wgrad ? 400 : 1300;
      c.k = 2300;
      c.a_transposed = wgrad;
      c.b_transposed = !wgrad;
      c.beta = wgrad ? 1.0f : 0.0f;
      c.epilogue = wgrad ? Epilogue::kNone : Epilogue::kBiasGeluTanh;
      c.keep_pre_activation = !wgrad;
      c.threads = 2;
      SCOPED_TRACE(describe(c));
      run_case(c, random);
    }
  }
}

TEST(Matmul, RepeatsBitForBit) {
  std::mt19937 random(10);
  for (const bool wgrad : {false, true}) {
    const HostTensor a(DType::kFloat32, {600, 3072},
                       wgrad ? std::vector<int>{1, 0} : std::vector<int>{});
    const HostTensor b(DType::kFloat32, {3072, 384});
    a.fill_random(random);
    b.fill_random(random);
    for (int threads = 1; threads <= 2; ++threads) {
      std::vector<double> first;
      for (int i = 0; i < 3; ++i) {
        const HostTensor y(DType::kFloat32, {600, 384});
        HeapWorkspace workspace;
        cpu_backend().matmul({{threads}, {}, &workspace}, y.view(), a.view(), b.view(), {});
        if (i == 0) first = y.values();
        EXPECT_EQ(y.values(), first);
      }
    }
  }
}

// What products of bfloat16 keep, whoever multiplies: the same bits on one thread and on two, and
// for a part of the rows those of the whole.
TEST(Matmul, BFloat16HasTheSameBitsOnAnyThreadsAndForASplitOfRows) {
  if (!bfloat16_dot_products()) GTEST_SKIP() << "this CPU class widens bfloat16";
  std::mt19937 random(14);
  struct Product {
    std::int64_t m, n, k;
    bool a_transposed, b_transposed, accumulate;
    const char* route;
  };
  const Product products[] = {{256, 1152, 384, false, false, false, "primitive"},
                              {256, 384, 1536, false, true, false, "primitive"},
                              {301, 77, 129, false, false, false, "primitive"},
                              {130, 4096, 768, false, true, false, "primitive"},
                              {384, 1536, 1024, true, false, true, "packed"},
                              {1536, 384, 3072, true, false, true, "packed"},
                              {300, 384, 3072, false, false, false, "packed"},
                              {100, 17000, 96, false, true, false, "packed"}};
  const std::vector<int> columns_first{1, 0};
  for (const Product& p : products) {
    SCOPED_TRACE(fmt::format("[{}, {}, {}] {}{}", p.m, p.n, p.k, p.a_transposed ? 'T' : 'N',
                             p.b_transposed ? 'T' : 'N'));
    const HostTensor a(DType::kBFloat16, {p.m, p.k},
                       p.a_transposed ? columns_first : std::vector<int>{});
    const HostTensor b(DType::kBFloat16, {p.k, p.n},
                       p.b_transposed ? columns_first : std::vector<int>{});
    a.fill_random(random);
    b.fill_random(random);
    MatmulOptions options;
    options.beta = p.accumulate ? 1.0f : 0.0f;
    const auto product = [&](const TensorView& y, std::int64_t begin, std::int64_t rows,
                             int threads) {
      TensorView y_rows = y, a_rows = a.view();
      y_rows.data = y.as<float>() + begin * p.n;
      a_rows.data = a_rows.as<bfloat16>() + begin * a_rows.stride(0);
      y_rows.shape[0] = a_rows.shape[0] = rows;
      EXPECT_STREQ(matmul_route({threads}, y_rows, a_rows, b.view(), options),
                   tile_registers() == TileRegisters::kAmx ? "packed" : p.route);
      HeapWorkspace workspace;
      cpu_backend().matmul({{threads}, {}, &workspace}, y_rows, a_rows, b.view(), options);
    };
    const HostTensor one(DType::kFloat32, {p.m, p.n}), two(DType::kFloat32, {p.m, p.n}),
        split(DType::kFloat32, {p.m, p.n});
    product(one.view(), 0, p.m, 1);
    product(two.view(), 0, p.m, 2);
    EXPECT_TRUE(one.values() == two.values()) << "threads";
    const std::int64_t cut = p.m / 3;
    product(split.view(), 0, cut, 1);
    product(split.view(), cut, p.m - cut, 1);
    EXPECT_TRUE(one.values() == split.values()) << "rows";
  }
}

TEST(Matmul, RanksAsThreadsDoNotDisturbEachOther) {
  std::mt19937 random(11);
  const HostTensor a(DType::kFloat32, {200, 300}), b(DType::kFloat32, {300, 250});
  a.fill_random(random);
  b.fill_random(random);
  const HostTensor want(DType::kFloat32, {200, 250});
  HeapWorkspace workspace;
  cpu_backend().matmul({{1}, {}, &workspace}, want.view(), a.view(), b.view(), {});
  std::vector<std::thread> ranks;
  std::vector<int> wrong(4, 0);
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      for (int i = 0; i < 10; ++i) {
        const HostTensor y(DType::kFloat32, {200, 250});
        HeapWorkspace own;
        cpu_backend().matmul({{1}, {}, &own}, y.view(), a.view(), b.view(), {});
        wrong[rank] += y.values() != want.values();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Matmul, RefusesIntegers) {
  const HostTensor a(DType::kInt64, {2, 2});
  EXPECT_THROW(cpu_backend().matmul({{1}, {}, nullptr}, a.view(), a.view(), a.view(), {}),
               Unimplemented);
}

// The primitives that CPUs with AMX multiply bfloat16 by; any CPU with AVX-512 bfloat16 runs them,
// slowly.
TEST(OneDnnMatmul, MultipliesAndAddsInEveryLayout) {
  std::mt19937 random(12);
  for (int i = 0; i < 32; ++i) {
    OneDnnTypes types;
    const bool narrow = i % 2 == 1 && cpu_class() >= CpuClass::kAvx512Bf16;
    types.operands = narrow ? DType::kBFloat16 : DType::kFloat32;
    types.y = i % 4 == 1 ? types.operands : DType::kFloat32;
    types.with_bias = i % 8 < 4;
    const std::vector<int> columns_first{1, 0};
    const HostTensor a(types.operands, {70, 90}, i & 8 ? columns_first : std::vector<int>{});
    const HostTensor b(types.operands, {90, 50}, i & 16 ? columns_first : std::vector<int>{});
    const HostTensor y(types.y, {70, 50}), bias(types.operands, {50});
    for (const HostTensor* t : {&a, &b, &y, &bias}) t->fill_random(random);
    const std::vector<double> before = y.values();
    Gemm gemm{70,
              50,
              90,
              {a.view().data, i & 8 ? 70 : 90, (i & 8) != 0},
              {b.view().data, i & 16 ? 90 : 50, (i & 16) != 0},
              y.view().data,
              50,
              1.0f,
              i % 3 == 0 ? 1.0f : 0.0f};
    const Threads threads{1 + i % 2};
    HeapWorkspace workspace;
    const std::size_t bytes = onednn_matmul_scratch_bytes(gemm, types, threads);
    onednn_matmul(gemm, types, bias.view().data, threads, workspace.reserve(bytes).data());
    for (std::int64_t at = 0; at < y.numel(); ++at) {
      double want = types.with_bias ? bias.at(at % 50) : 0.0;
      if (gemm.beta != 0.0f) want += before[static_cast<std::size_t>(at)];
      for (std::int64_t p = 0; p < 90; ++p) want += a.at(at / 50 * 90 + p) * b.at(p * 50 + at % 50);
      ASSERT_NEAR(y.at(at), want, tolerance_of(types.y) * (2.0 + std::abs(want))) << i << " " << at;
    }
  }
}

TEST(MatmulTable, Float64GoesToOpenBlasOnEveryClass) {
  Gemm gemm;
  gemm.m = gemm.n = gemm.k = 100;
  for (const CpuClass c : {CpuClass::kSse4, CpuClass::kAvx2, CpuClass::kAvx512, CpuClass::kAmx})
    EXPECT_EQ(choose_matmul_provider(c, DType::kFloat64, gemm), MatmulProvider::kOpenBlas);
}

TEST(MatmulTable, WeightGradientsInFloat32GoToOpenBlasOnAvx2Alone) {
  Gemm gemm;
  gemm.m = gemm.n = gemm.k = 300;
  const auto provider = [&](CpuClass c) {
    return choose_matmul_provider(c, DType::kFloat32, gemm);
  };
  EXPECT_EQ(provider(CpuClass::kAvx2), MatmulProvider::kOneDnnSgemm);
  gemm.a.transposed = true;
  EXPECT_EQ(provider(CpuClass::kAvx2), MatmulProvider::kOpenBlas);
  for (const CpuClass c : {CpuClass::kSse4, CpuClass::kAvx512, CpuClass::kAvx512Bf16})
    EXPECT_EQ(provider(c), MatmulProvider::kOneDnnSgemm);
  gemm.k = 100;  // little work
  EXPECT_EQ(provider(CpuClass::kAvx2), MatmulProvider::kOneDnnSgemm);
}

TEST(LibraryThreads, TheOpenMpBuildOfOpenBlasIsLoaded) { EXPECT_NO_THROW(verify_blas()); }

}  // namespace
}  // namespace meshloom::kernels::cpu
