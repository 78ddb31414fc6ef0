// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/host_batch.h"

#include <gtest/gtest.h>

#include "daemon/nn/models/model.h"
#include "daemon/tensor/host_uploads.h"
#include "tests/support/test_context.h"

namespace meshloom::nn {
namespace {

using Values = std::vector<std::int64_t>;

HostBatch two_rows() {
  return {.rows = 2,
          .length = 3,
          .targets = 2,
          .inputs = {0, 1, 2, 10, 11, 12},
          .labels = {1, -1, 2, -2, 3, -3, 11, -11, 12, -12, 13, -13},
          .documents = {0, 0, 1, 0, 1, 1}};
}

TEST(HostBatch, WhatIsNotGivenIsNoTensor) {
  testing::TestContext context;
  HostUploads uploads(context);
  const Batch batch = to_batch(uploads, two_rows());
  EXPECT_EQ(batch.input_ids.shape(), (Shape{2, 3}));
  EXPECT_EQ(batch.labels.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(batch.labels.to_vector()[7], -11.0);
  EXPECT_EQ(batch.document_ids.to_vector(), (std::vector<double>{0, 0, 1, 0, 1, 1}));
  EXPECT_FALSE(batch.position_ids || batch.label_weights || batch.attention_mask);
  EXPECT_TRUE(batch.labels_shifted);
}

TEST(HostBatch, OneTargetEachHasTheShapeOfTheIds) {
  testing::TestContext context;
  HostUploads uploads(context);
  const Batch batch = to_batch(
      uploads,
      {.rows = 1, .length = 2, .inputs = {4, 5}, .labels = {5, 6}, .weights = {0.5f, 1.0f}});
  EXPECT_EQ(batch.labels.shape(), (Shape{1, 2}));
  EXPECT_EQ(batch.label_weights.to_vector(), (std::vector<double>{0.5, 1.0}));
}

TEST(HostBatch, SomeTokensAreThoseOfTheirPlacesWithAllTheirLabels) {
  const HostBatch some = some_tokens(two_rows(), Values{2, 0, 3, 5});
  EXPECT_EQ(some.rows, 2);
  EXPECT_EQ(some.length, 2);
  EXPECT_EQ(some.inputs, (Values{2, 0, 10, 12}));
  EXPECT_EQ(some.labels, (Values{3, -3, 1, -1, 11, -11, 13, -13}));
  EXPECT_EQ(some.documents, (Values{1, 0, 0, 1}));
  EXPECT_TRUE(some.positions.empty() && some.weights.empty());
  EXPECT_EQ(some_tokens(two_rows(), Values{}).length, 0);
}

}  // namespace
}  // namespace meshloom::nn
