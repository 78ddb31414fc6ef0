// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/matmul_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace meshloom::kernels::cuda {
namespace {

using ::testing::HasSubstr;

MatmulShape some_shape() {
  MatmulShape shape;
  shape.operands = DType::kBFloat16;
  shape.m = 16384;
  shape.n = 2304;
  shape.k = 768;
  shape.b.transposed = true;
  return shape;
}

TEST(MatmulTable, AnEmptyOneLeavesTheLibrarysFirstKernel) {
  ASSERT_EQ(matmul_table_version(), 0) << "no table of measured kernels is here yet";
  EXPECT_EQ(choose_matmul_kernel("sm_90", "cuBLASLt 13.1.0, cuDNN 9.19.0", some_shape()), 0);
  EXPECT_EQ(choose_matmul_kernel("sm_90", "", some_shape()), 0);
}

TEST(MatmulTable, AnEntryNamesAllThatChoosesAKernel) {
  EXPECT_EQ(
      matmul_entry("sm_90", some_shape(), 3),
      "MatmulChoice{\"sm_90\", DType::kBFloat16, DType::kFloat32, 16384, 2304, 768, 1, false, "
      "true, static_cast<LibraryEpilogue>(0), 3}");
}

TEST(MatmulTable, TheNextVersionIsASourceFileWithItsLibraries) {
  const std::vector<std::string> entries{matmul_entry("sm_90", some_shape(), 3),
                                         matmul_entry("sm_90", some_shape(), 1)};
  const std::string source = matmul_table_source("cuBLASLt 13.1.0", entries);
  EXPECT_THAT(source, HasSubstr("kMatmulTableVersion = 1;"));
  EXPECT_THAT(source, HasSubstr("kMatmulTableLibraries = \"cuBLASLt 13.1.0\";"));
  EXPECT_THAT(source, HasSubstr("std::array<MatmulChoice, 2> kMatmulChoices{\n    " + entries[0] +
                                ",\n    " + entries[1] + ",\n};"));
}

}  // namespace
}  // namespace meshloom::kernels::cuda
