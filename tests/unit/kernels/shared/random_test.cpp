// SPDX-License-Identifier: Apache-2.0
#include "kernels/backend_table.h"
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

constexpr PhiloxStream kStream{0x123456789abcdefull, 42};

// Around block, chunk and 32-bit boundaries of the index.
const std::vector<std::uint64_t> kStarts{0, 1, 2, 3, 4, 1021, (4ull << 32) - 37, (1ull << 40) + 5};

TEST(FillUniform, IsTheStreamsSequence) {
  for_all_settings([&](const KernelContext& context) {
    for (const std::uint64_t start : kStarts) {
      TestTensor x({20001}, DType::kFloat32);
      backend().fill_uniform(context, x, kStream, start, -1.0f, 3.0f);
      for (int i = 0; i < 20001; ++i) {
        const double expected = -1.0 + 4.0 * philox_uniform(kStream.at(start + i));
        ASSERT_NEAR(x.at(i), expected, 5e-7) << start << " + " << i;
      }
    }
  });
}

// Box and Muller on pairs (2k, 2k + 1) of the sequence.
double normal_at(std::uint64_t index) {
  const std::uint64_t even = index / 2 * 2;
  const double u = 1.0 - philox_uniform(kStream.at(even));
  const double turns = philox_uniform(kStream.at(even + 1));
  const double radius = std::sqrt(-2.0 * std::log(u));
  return radius * (index % 2 == 0 ? std::cos(2 * M_PI * turns) : std::sin(2 * M_PI * turns));
}

TEST(FillNormal, IsBoxMullerByPosition) {
  for_all_settings([&](const KernelContext& context) {
    for (const std::uint64_t start : kStarts) {
      TestTensor x({10001}, DType::kFloat32);
      backend().fill_normal(context, x, kStream, start, 0.5f, 2.0f);
      for (int i = 0; i < 10001; ++i)
        ASSERT_NEAR(x.at(i), 0.5 + 2.0 * normal_at(start + i), 1e-5) << start << " + " << i;
    }
  });
}

TEST(FillNormal, AnyShardDrawsWhatTheWholeDoes) {
  for_all_settings([&](const KernelContext& context) {
    TestTensor whole({50000}, DType::kFloat32);
    backend().fill_normal(context, whole, kStream, 7, 0.0f, 1.0f);
    TestTensor part({12345}, DType::kFloat32);
    backend().fill_normal(context, part, kStream, 7 + 30001, 0.0f, 1.0f);
    for (int i = 0; i < 12345; ++i) ASSERT_EQ(part.at(i), whole.at(30001 + i));
  });
}

TEST(Dropout, KeepsByGlobalIndex) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes) {
    const TestTensor x = random_tensor({33333}, dtype, rng, 1.0, 2.0);
    for_all_settings([&](const KernelContext& context) {
      for (const std::uint64_t start : {0ull, 5ull, (1ull << 34) - 11}) {
        TestTensor y({33333}, dtype);
        backend().dropout(context, y, x, {0.3f, kStream, start});
        int kept = 0;
        for (int i = 0; i < 33333; ++i) {
          const bool keep = philox_uniform(kStream.at(start + i)) >= 0.3f;
          kept += keep;
          ASSERT_NEAR(y.at(i), keep ? x.at(i) / 0.7 : 0.0, 3.0 * tolerance(dtype) + 1e-7);
        }
        EXPECT_NEAR(kept / 33333.0, 0.7, 0.02);
      }
    });
  }
}

// The CPU's bytes of the same call, on host memory.
template <typename Call>
std::vector<std::byte> bytes_of_cpu(std::int64_t count, DType dtype, const Call& call) {
  std::vector<std::byte> memory(static_cast<std::size_t>(count) * dtype_size(dtype));
  call(backend_for(kCpuDevice), make_view(memory.data(), dtype, {count}));
  return memory;
}

TEST(Random, BitsAreThoseOfTheCpu) {
  Rng rng(3);
  for (const std::int64_t count : {1, 7, 33, 129, 1000, 5003})
    for (const std::uint64_t start : {0ull, 3ull, (4ull << 32) - 37}) {
      const auto uniform = bytes_of_cpu(count, DType::kFloat32, [&](auto& cpu, auto view) {
        cpu.fill_uniform({}, view, kStream, start, -0.7f, 1.9f);
      });
      run_on_device([&](const KernelContext& context) {
        const TestTensor x({count}, DType::kFloat32);
        backend().fill_uniform(context, x, kStream, start, -0.7f, 1.9f);
        EXPECT_EQ(x.bytes(), uniform) << count << " from " << start;
      });
      for (const DType dtype : kFloatDTypes) {
        const TestTensor x = random_tensor({count}, dtype, rng);
        std::vector<std::byte> input = x.bytes();
        const auto dropped = bytes_of_cpu(count, dtype, [&](auto& cpu, auto view) {
          cpu.dropout({}, view, make_view(input.data(), dtype, {count}), {0.1, kStream, start});
        });
        for_all_settings([&](const KernelContext& context) {
          const TestTensor y({count}, dtype), in_place = x.copy();
          backend().dropout(context, y, x, {0.1, kStream, start});
          backend().dropout(context, in_place, in_place, {0.1, kStream, start});
          EXPECT_EQ(y.bytes(), dropped) << dtype_name(dtype) << " from " << start;
          EXPECT_EQ(in_place.bytes(), dropped) << dtype_name(dtype) << " from " << start;
        });
      }
    }
}

TEST(Dropout, OfZeroIsACopy) {
  Rng rng(2);
  const TestTensor x = random_tensor({100}, DType::kFloat32, rng);
  TestTensor y({100}, DType::kFloat32);
  backend().dropout(test_context(), y, x, {0.0f, kStream, 0});
  EXPECT_EQ(y.values(), x.values());
}

}  // namespace
}  // namespace meshloom::kernels::test
