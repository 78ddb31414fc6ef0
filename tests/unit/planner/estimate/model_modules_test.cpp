// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

using ::testing::ElementsAre;

ModuleShape module(const std::string& name, std::int64_t width = 0) {
  ModuleShape shape{.name = name};
  if (width > 0) shape.parameters.push_back({"weight", {width}});
  return shape;
}

std::vector<ModuleShape> model() {
  return {module("embed", 8), module("h.0"),         module("h.0.norm", 2),
          module("h.1"),      module("h.1.norm", 2), module("norm", 3)};
}

TEST(ModelModules, BlocksAreThoseThatAreNumbered) {
  const ModelModules all = sort_modules(model());
  EXPECT_EQ(all.block_prefix, "h");
  EXPECT_EQ(all.layers, 2);
  EXPECT_EQ(parameter_count(all), 8 + 2 * 2 + 3);
  EXPECT_THAT(module_names(all),
              ElementsAre("", "embed", "h.0", "h.0.norm", "h.1", "h.1.norm", "norm"));
  EXPECT_THAT(parameter_names(all),
              ElementsAre("embed.weight", "h.0.norm.weight", "h.1.norm.weight", "norm.weight"));
  std::vector<std::string> numbered;
  for (int i = 0; i < 4; ++i) numbered.push_back(all.at(i).name);
  EXPECT_THAT(numbered, ElementsAre("embed", "", "norm", "norm"));
  EXPECT_FALSE(all.is_block(0));
  EXPECT_TRUE(all.is_block(1) && all.is_block(2));
  EXPECT_FALSE(all.is_block(3));
}

TEST(ModelModules, BlocksThatDifferAreRefused) {
  std::vector<ModuleShape> other = model();
  other[4].parameters[0].shape = {5};
  EXPECT_THROW(sort_modules(other), Unimplemented);
  other = model();
  other.erase(other.begin() + 4);
  EXPECT_THROW(sort_modules(other), Unimplemented);
  EXPECT_THROW(sort_modules({module("embed", 8)}), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::planner
