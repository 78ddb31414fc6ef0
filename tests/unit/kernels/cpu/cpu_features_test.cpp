// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_features.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "kernels/base/error.h"

namespace meshloom::kernels::cpu {
namespace {

constexpr CpuClass kAll[] = {CpuClass::kSse4, CpuClass::kAvx2, CpuClass::kAvx512,
                             CpuClass::kAvx512Bf16, CpuClass::kAmx};

TEST(CpuFeatures, NamesGoBothWays) {
  for (const CpuClass c : kAll) EXPECT_EQ(cpu_class_from_name(cpu_class_name(c)), c);
  EXPECT_FALSE(cpu_class_from_name("avx1024").has_value());
}

TEST(CpuFeatures, AgreesWithTheKernelsList) {
  std::ifstream info("/proc/cpuinfo");
  std::string line, flags;
  while (std::getline(info, line))
    if (line.rfind("flags", 0) == 0) flags = line + " ";
  if (flags.empty()) GTEST_SKIP() << "no x86 flags";
  const auto has = [&](const char* flag) {
    return flags.find(" " + std::string(flag) + " ") != std::string::npos;
  };
  CpuClass want = CpuClass::kSse4;
  if (has("avx2") && has("fma") && has("f16c") && has("bmi2")) want = CpuClass::kAvx2;
  if (has("avx512f") && has("avx512dq") && has("avx512cd") && has("avx512bw") && has("avx512vl")) {
    want = CpuClass::kAvx512;
    if (has("avx512_bf16")) want = CpuClass::kAvx512Bf16;
    if (has("avx512_bf16") && has("amx_bf16") && has("amx_tile")) want = CpuClass::kAmx;
  }
  EXPECT_EQ(hardware_cpu_class(), want);
}

TEST(CpuFeatures, AutoMeansBFloat16OnlyWhereItIsFaster) {
  for (const CpuClass c : {CpuClass::kAvx512Bf16, CpuClass::kAmx}) {
    EXPECT_EQ(fast_dtype(c, 768), DType::kBFloat16);
    EXPECT_EQ(fast_dtype(c, 128), DType::kBFloat16);
    EXPECT_EQ(fast_dtype(c, 127), DType::kFloat32);
  }
  for (const CpuClass c : {CpuClass::kSse4, CpuClass::kAvx2, CpuClass::kAvx512})
    EXPECT_EQ(fast_dtype(c, 4096), DType::kFloat32);
}

// The class is settled once per process, so each value of the variable needs one of its own.
TEST(CpuFeaturesDeathTest, TheEnvironmentMayLowerTheClass) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](const char* value) {
    setenv("MESHLOOM_CPU_CLASS", value, 1);
    try {
      std::exit(cpu_class() == CpuClass::kSse4 ? 0 : 1);
    } catch (const InvalidArgument& error) {
      std::fputs(error.what(), stderr);
      std::exit(2);
    }
  };
  EXPECT_EXIT(run("sse4"), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run("avx9"), ::testing::ExitedWithCode(2), "unknown class");
  if (hardware_cpu_class() < CpuClass::kAmx) {
    EXPECT_EXIT(run("amx"), ::testing::ExitedWithCode(2), "above this CPU");
  }
}

}  // namespace
}  // namespace meshloom::kernels::cpu
