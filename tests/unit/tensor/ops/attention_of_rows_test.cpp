// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_context.h"

namespace meshloom::ops {
namespace {

class AttentionOfRows : public ::testing::TestWithParam<DType> {
 protected:
  AttentionOfRows()
      : context_([] {
          ExecutionContext::Options options;
          options.threads = {3};
          return options;
        }()) {}

  Tensor random(const Shape& shape) {
    return test::random_tensor(context_, shape, rng_, GetParam());
  }
  KeyValue memory(std::int64_t heads, std::int64_t length, std::int64_t dims) {
    return {random({1, heads, length, dims}), random({1, heads, length, dims})};
  }

  testing::TestContext context_;
  std::mt19937_64 rng_{5};
};
INSTANTIATE_TEST_SUITE_P(DTypes, AttentionOfRows,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

TEST_P(AttentionOfRows, GivesEachRowWhatItGetsAlone) {
  for (const std::int64_t dims : {32, 20}) {
    const Tensor q = transpose(random({5, 1, 6, dims}), 1, 2);
    std::vector<KeyValue> rows;
    for (const std::int64_t length : {1, 70, 3, 129, 18}) rows.push_back(memory(2, length, dims));
    rows[3].k = transpose(random({1, 2, dims, 129}), 2, 3);
    for (const double scale : {0.0, 0.3}) {
      const Tensor o = attention_of_rows(q, rows, scale);
      ASSERT_EQ(o.shape(), (Shape{5, 6, 1, dims}));
      for (std::int64_t b = 0; b < 5; ++b) {
        const auto& [k, v] = rows[static_cast<std::size_t>(b)];
        const Tensor alone = scaled_dot_product_attention(slice(q, 0, b, b + 1), k, v,
                                                          {.scale = scale, .enable_gqa = true})
                                 .o;
        EXPECT_EQ(slice(o, 0, b, b + 1).to_vector(), alone.to_vector()) << dims << " row " << b;
      }
    }
  }
}

TEST_P(AttentionOfRows, ErrorsNameWhatDoesNotFit) {
  const Tensor q = random({2, 4, 1, 16});
  const KeyValue fits = memory(2, 7, 16);
  const auto refused = [&](const Tensor& queries, const std::vector<KeyValue>& rows) {
    try {
      attention_of_rows(queries, rows);
      ADD_FAILURE() << "nothing was refused";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("attention_of_rows"), std::string::npos);
    }
  };
  refused(q, {fits});
  refused(random({0, 4, 1, 16}), {});
  refused(random({2, 4, 2, 16}), {fits, fits});
  refused(q, {fits, memory(3, 7, 16)});
  refused(q, {fits, memory(2, 0, 16)});
  refused(q, {fits, memory(2, 7, 8)});
  refused(q, {fits, {fits.k, slice(fits.v, 2, 0, 5)}});
  refused(q, {fits, {fits.k, slice(fits.v, 3, 0, 8)}});
}

}  // namespace
}  // namespace meshloom::ops
