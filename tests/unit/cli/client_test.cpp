// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/client.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>

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

/// Takes calls and answers none.
class SilentService final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    struct Silence final : grpc::ServerGenericBidiReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    return new Silence;
  }
};

TEST(Client, TellsABusyDaemonFromOneThatWaitsForItsRanks) {
  SilentService silent, silent_but_healthy;
  std::string address;
  const auto serve = [&](bool health) {
    grpc::EnableDefaultHealthCheckService(health);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(health ? &silent_but_healthy : &silent);
    auto server = builder.BuildAndStart();
    grpc::EnableDefaultHealthCheckService(false);
    address = "127.0.0.1:" + std::to_string(port);
    return server;
  };
  const auto busy = serve(false);
  EXPECT_EQ(Client(address).health(), Client::Health::kBusy);
  const auto ready = serve(true);
  ready->GetHealthCheckService()->SetServingStatus(false);
  EXPECT_EQ(Client(address).health(), Client::Health::kNotServing);
  ready->GetHealthCheckService()->SetServingStatus(true);
  EXPECT_EQ(Client(address).health(), Client::Health::kServing);
  ready->Shutdown(std::chrono::system_clock::now());
  EXPECT_EQ(Client(address).health(), Client::Health::kUnreachable);
}

}  // namespace
}  // namespace meshloom::cli
