// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/nn/models/model.h"
#include "kernels/base/error.h"
#include "planner/dim_order.h"
#include "tests/unit/planner/estimate/model_configs.h"
#include "tests/unit/planner/estimate/models.h"

namespace meshloom::planner {
namespace {

/// Names and shapes.
std::vector<std::string> described(const ModelShape& model) {
  const ModelParameters all = model_parameters(model);
  std::vector<std::string> lines;
  const auto add = [&](const std::string& prefix, const std::vector<ParameterShape>& list) {
    for (const ParameterShape& p : list) lines.push_back(prefix + p.name + to_string(p.shape));
  };
  add("", all.before);
  for (std::int64_t i = 0; i < model.layers; ++i)
    add(fmt::format("{}.{}.", all.block_prefix, i), all.block);
  add("", all.after);
  return lines;
}

std::vector<std::string> real(const ModelShape& shape) {
  ExecutionContext context;
  const auto model = nn::make_model(context, testing::config_of(shape), DType::kFloat32);
  std::vector<std::string> lines;
  for (const auto& [name, parameter] : model->named_parameters())
    lines.push_back(name + to_string(parameter->value.shape()));
  return lines;
}

void expect_like_the_model(const ModelShape& shape) {
  EXPECT_THAT(described(shape), ::testing::UnorderedElementsAreArray(real(shape)));
  EXPECT_EQ(parameter_count(shape), nn::parameter_count(testing::config_of(shape)));
}

TEST(ModelShape, HasTheParametersOfGpt2) {
  ModelShape model = testing::byte_gpt();
  model.hidden = 30;
  model.heads = model.kv_heads = 5;
  model.head_dim = 6;
  model.intermediate = 71;
  expect_like_the_model(model);
  model.tied = false;
  expect_like_the_model(model);
}

TEST(ModelShape, HasTheParametersOfLlama) {
  ModelShape model = testing::small_llama();
  expect_like_the_model(model);
  model.attention_bias = model.mlp_bias = model.tied = true;
  model.head_dim = 10;
  expect_like_the_model(model);
}

TEST(ModelShape, HasTheParametersOfBert) { expect_like_the_model(testing::small_bert()); }

TEST(ModelShape, CountsParametersOfKnownModels) {
  EXPECT_EQ(parameter_count(testing::gpt2_124m()), 124'439'808);
  EXPECT_EQ(parameter_count(testing::llama3_8b()), 8'030'261'248);
}

// Every part of every sharding against DimOrder, and all parts together against the whole.
TEST(ModelShape, ShardsAsTheLayoutsDo) {
  for (const ModelShape& model :
       {testing::byte_gpt(), testing::small_llama(), testing::small_bert()}) {
    const ModelParameters all = model_parameters(model);
    for (const auto* list : {&all.before, &all.block, &all.after}) {
      for (const ParameterShape& p : *list) {
        if (p.sharding.dim < 0) continue;
        const std::int64_t size = p.shape[p.sharding.dim];
        for (const int parts : {1, 2, 3, 4, 5, 8, 13}) {
          const TensorSharding sharding = settle(p.sharding, size, parts);
          if (sharding.dim < 0) {
            EXPECT_EQ(tensor_parallel_shape(p, parts, parts - 1), p.shape);
            continue;
          }
          const auto order = DimOrder::blocked(size, parts, sharding.groups, sharding.unit);
          std::int64_t sum = 0;
          for (int i = 0; i < parts; ++i) {
            const Shape local = tensor_parallel_shape(p, parts, i);
            EXPECT_EQ(local[p.sharding.dim], order->part_size(i))
                << p.name << " " << i << "/" << parts;
            sum += local[p.sharding.dim];
          }
          EXPECT_EQ(sum, size) << p.name;
        }
      }
    }
  }
}

TEST(ModelShape, RefusesSizesThatDoNotFit) {
  ModelShape model = testing::byte_gpt();
  model.layers = 0;
  EXPECT_THROW(check_model_shape(model), InvalidArgument);
  model = testing::byte_gpt();
  model.kv_heads = 3;
  EXPECT_THROW(check_model_shape(model), InvalidArgument);
  model = testing::small_llama();
  model.kv_heads = 5;
  try {
    check_model_shape(model);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("5 kv_heads do not divide 16 heads"));
  }
}

}  // namespace
}  // namespace meshloom::planner
