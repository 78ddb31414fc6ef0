// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/client.h"

#include <gmock/gmock.h>

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;

CliError error_of(const grpc::Status& status) {
  const Client client("127.0.0.1:1");
  try {
    client.fail(status);
  } catch (const CliError& error) {
    return error;
  }
}

TEST(Client, SaysWhatARefusalWithoutTextMeans) {
  for (int code = 1; code <= 16; ++code) {
    const CliError error = error_of({static_cast<grpc::StatusCode>(code), ""});
    EXPECT_THAT(error.what(), HasSubstr("meshloomd")) << code;
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:1")) << code;
  }
  const auto large = error_of({grpc::StatusCode::RESOURCE_EXHAUSTED, ""});
  EXPECT_THAT(large.what(), HasSubstr("larger than allowed"));
  const auto unread = error_of({grpc::StatusCode::UNIMPLEMENTED, ""});
  EXPECT_THAT(unread.what(), HasSubstr("another version"));
  EXPECT_EQ(error_of({grpc::StatusCode::DEADLINE_EXCEEDED, ""}).code(), kUnreachable);
  const auto told = error_of({grpc::StatusCode::INTERNAL, "stream was reset"});
  EXPECT_THAT(told.what(), HasSubstr("stream was reset")) << "gRPC's own text is kept";
}

}  // namespace
}  // namespace meshloom::cli
