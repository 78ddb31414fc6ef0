// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_table.h"

#include <gtest/gtest.h>

namespace meshloom::kernels::cuda {
namespace {

// Addresses are only looked at, never followed.
TensorView heads(DType dtype, std::int64_t h, std::int64_t s, std::int64_t d) {
  return make_view(reinterpret_cast<void*>(4096), dtype, {2, h, s, d}, {DeviceKind::kCuda, 0});
}

struct Call {
  AttentionInputs in;
  AttentionOutputs out;
  AttentionOptions options;
};

Call call_of(DType dtype, std::int64_t queries, std::int64_t keys, std::int64_t dims = 64) {
  Call call;
  call.in = {heads(dtype, 4, queries, dims), heads(dtype, 2, keys, dims),
             heads(dtype, 2, keys, dims)};
  call.out = {heads(dtype, 4, queries, dims),
              make_view(reinterpret_cast<void*>(8192), DType::kFloat32, {2, 4, queries}), false};
  call.options.is_causal = true;
  return call;
}

AttentionCode code_of(const Call& call) {
  return choose_attention(call.out, call.in, call.options).code;
}

TEST(AttentionTable, CudnnComesFirstThenTensorCoresThenPlainProducts) {
  EXPECT_EQ(code_of(call_of(DType::kBFloat16, 64, 64)), AttentionCode::kCudnn);
  EXPECT_EQ(code_of(call_of(DType::kBFloat16, 64, 64, 256)), AttentionCode::kBfloat16);
  EXPECT_EQ(code_of(call_of(DType::kFloat32, 64, 64)), AttentionCode::kAny);
  EXPECT_EQ(code_of(call_of(DType::kFloat64, 64, 64)), AttentionCode::kAny);
  EXPECT_EQ(code_of(call_of(DType::kBFloat16, 64, 0)), AttentionCode::kNone);
}

TEST(AttentionTable, OneQueryIsThatOfGenerationWhereItSeesEveryKey) {
  Call call = call_of(DType::kBFloat16, 1, 64);
  call.options.query_offset = 63;
  EXPECT_EQ(code_of(call), AttentionCode::kOneQuery);
  call.options.query_offset = 62;
  EXPECT_EQ(code_of(call), AttentionCode::kBfloat16) << "the last key is hidden";
  call.options.query_offset = 163;
  call.options.key_offset = 100;
  call.options.window_left = 63;
  EXPECT_EQ(code_of(call), AttentionCode::kOneQuery) << "the window reaches the first key";
  call.options.window_left = 62;
  EXPECT_EQ(code_of(call), AttentionCode::kBfloat16);
  call = call_of(DType::kFloat32, 1, 64);
  call.options.is_causal = false;
  EXPECT_EQ(code_of(call), AttentionCode::kOneQuery);
  call.out.carry = true;
  EXPECT_EQ(code_of(call), AttentionCode::kAny) << "it is carried on";
}

TEST(AttentionTable, SaysWhatTakesTheCallsThatCudnnCannotBuild) {
  const Call call = call_of(DType::kBFloat16, 64, 64);
  EXPECT_EQ(choose_attention(call.out, call.in, call.options).otherwise, AttentionCode::kBfloat16);
}

}  // namespace
}  // namespace meshloom::kernels::cuda
