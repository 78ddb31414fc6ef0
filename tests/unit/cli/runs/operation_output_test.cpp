// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/runs/operation_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshloom::cli {
namespace {

using ::testing::EndsWith;

std::string printed(const v1::Operation& operation) {
  ::testing::internal::CaptureStdout();
  print_operation(operation);
  return ::testing::internal::GetCapturedStdout();
}

TEST(OperationOutput, ParametersAreATableWithoutTheirValues) {
  v1::Operation operation;
  operation.set_name("operations/r/1/3");
  operation.set_state(v1::OPERATION_STATE_SUCCEEDED);
  auto& parameters = *operation.mutable_result()->mutable_parameters();
  v1::ParameterValue& weight = *parameters.add_parameters();
  weight.set_name("transformer.wte.weight");
  weight.set_dtype("float32");
  weight.add_shape(256);
  weight.add_shape(2);
  weight.set_data(std::string(2048, 'v'));
  v1::ParameterValue& scale = *parameters.add_parameters();
  scale.set_name("scale");
  scale.set_dtype("float32");
  scale.set_data("vvvv");
  EXPECT_THAT(printed(operation), EndsWith("parameter               shape     dtype    size\n"
                                           "transformer.wte.weight  [256, 2]  float32  2.0 KiB\n"
                                           "scale                   []        float32  4 B\n"));
}

TEST(OperationOutput, AVerbThatReturnsNothingShowsNoResult) {
  v1::Operation operation;
  operation.set_name("operations/r/1/4");
  operation.set_verb("skip");
  operation.set_state(v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(printed(operation),
            "operation   operations/r/1/4\nverb        skip\nstate       succeeded\n"
            "taken       0s\n");
}

}  // namespace
}  // namespace meshloom::cli
