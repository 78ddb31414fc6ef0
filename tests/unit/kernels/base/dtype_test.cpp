// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/dtype.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/base/error.h"

namespace meshloom {
namespace {

constexpr DType kAll[] = {DType::kFloat32,    DType::kBFloat16,  DType::kFloat16, DType::kFloat64,
                          DType::kInt64,      DType::kInt32,     DType::kUInt8,   DType::kBool,
                          DType::kFloat8E4M3, DType::kFloat8E5M2};

TEST(DType, NamesLeadBack) {
  for (const DType dtype : kAll) {
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_EQ(dtype_from_safetensors_name(dtype_safetensors_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("F32"), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors_name("float32"), std::nullopt);
}

TEST(DType, SizesAndKinds) {
  EXPECT_EQ(dtype_size(DType::kFloat64), 8u);
  EXPECT_EQ(dtype_size(DType::kBFloat16), 2u);
  EXPECT_EQ(dtype_size(DType::kBool), 1u);
  EXPECT_TRUE(dtype_is_floating(DType::kFloat16));
  EXPECT_FALSE(dtype_is_floating(DType::kUInt8));
  EXPECT_STREQ(dtype_name(DType::kBFloat16), "bfloat16");
  EXPECT_STREQ(dtype_safetensors_name(DType::kBFloat16), "BF16");
}

TEST(Error, CarriesKindReasonAndMetadata) {
  try {
    throw NotFound("run: no such job", "JOB_NOT_FOUND", {{"job", "7"}});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    EXPECT_EQ(error.reason(), "JOB_NOT_FOUND");
    EXPECT_EQ(error.metadata().at("job"), "7");
    EXPECT_STREQ(error.what(), "run: no such job");
  }
  EXPECT_EQ(InvalidArgument("x").reason(), "INVALID_ARGUMENT");
  EXPECT_THROW(check(false, "op: {} is not {}", 1, 2), InvalidArgument);
  EXPECT_NO_THROW(check(true, "op: {} is not {}", 1, 2));
  EXPECT_THROW(check_internal(false, "broken"), InternalError);
}

}  // namespace
}  // namespace meshloom
