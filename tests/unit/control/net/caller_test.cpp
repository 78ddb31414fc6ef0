// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/caller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/control/net/grpc_caller.h"
#include "daemon/control/net/grpc_server.h"
#include "kernels/base/error.h"
#include "v1/worker_service.grpc.pb.h"

namespace meshloom::control {
namespace {

using ::testing::HasSubstr;

TEST(Caller, IsCalledByItsOwnNameElseByItsAddress) {
  EXPECT_EQ(Caller("127.0.0.1", "me", "", Identity::admin()).name(), "me");
  EXPECT_EQ(Caller("127.0.0.1", "me", "", Identity::admin()).address(), "127.0.0.1");
  EXPECT_EQ(Caller("127.0.0.1", std::nullopt, "", Identity::admin()).name(), "address:127.0.0.1");
  EXPECT_EQ(Caller("127.0.0.1", std::string(63, 'a'), "", Identity::admin()).name(),
            std::string(63, 'a'));
  EXPECT_EQ(Caller("127.0.0.1", std::nullopt, "secret", Identity::admin()).run_token(), "secret");
}

TEST(Caller, AWrongNameIsRefusedOnceAnybodyAsksForIt) {
  for (const std::string wrong : {std::string(), std::string(64, 'a'), std::string("-a"),
                                  std::string("a b"), std::string("address:127.0.0.1")}) {
    const Caller caller("127.0.0.1", wrong, "secret", Identity::admin());
    EXPECT_EQ(caller.run_token(), "secret");
    try {
      caller.name();
      ADD_FAILURE() << wrong;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.reason(), "CLIENT_INVALID");
      EXPECT_THAT(error.what(), HasSubstr("meshloom-client \"" + wrong + "\" is not valid"));
    }
  }
}

/// Tells who calls in the reason of a failure.
class WhoCalls final : public v1::WorkerService::Service {
 public:
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainResponse*) override {
    return guarded("Drain", *context, *request, [](const Caller& caller) {
      throw NotFound(
          fmt::format("{} at {} with {}", caller.name(), caller.address(), caller.run_token()));
    });
  }
};

TEST(GrpcCaller, IsMadeOfTheCall) {
  WhoCalls service;
  GrpcServer server({resolve_listen_address("127.0.0.1:0", "listen"), {&service}});
  const auto stub = v1::WorkerService::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(server.port()), grpc::InsecureChannelCredentials()));
  const auto message_of = [&](const std::string& client, const std::string& token) {
    grpc::ClientContext context;
    if (!client.empty()) context.AddMetadata(kClientKey, client);
    if (!token.empty()) context.AddMetadata(kRunTokenKey, token);
    v1::DrainResponse response;
    return stub->Drain(&context, {}, &response).error_message();
  };
  EXPECT_THAT(message_of("me", "secret"), HasSubstr("me at 127.0.0.1 with secret"));
  EXPECT_THAT(message_of("", ""), HasSubstr("address:127.0.0.1 at 127.0.0.1 with "));
  EXPECT_THAT(message_of("a b", ""), HasSubstr("is not valid"));
  server.shutdown();
}

}  // namespace
}  // namespace meshloom::control
