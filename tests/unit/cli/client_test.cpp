// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/client.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <atomic>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/support/source_folder.h"

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

TEST(Client, UnderstandsAddressesAsPeopleWriteThem) {
  // The Python package is held to the same list.
  std::ifstream cases(test::source_file("tests/e2e/python/addresses.txt"));
  int compared = 0;
  for (std::string line; std::getline(cases, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string given, expected;
    ASSERT_TRUE(words >> given >> expected) << line;
    if (expected == "refused")
      EXPECT_THROW(complete_address(given), CliError) << given;
    else
      EXPECT_EQ(complete_address(given), expected) << given;
    ++compared;
  }
  EXPECT_GT(compared, 15);
  EXPECT_EQ(Client("http://127.0.0.1").address(), "127.0.0.1:7420");
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

/// Keeps the thread of each call until the gate is opened.
class GateService final : public v1::WorkerService::Service {
 public:
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse*) override {
    while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return grpc::Status::OK;
  }
  std::atomic<bool> open = false;
};

TEST(Client, ADaemonWhoseThreadsAllHaveCallsIsAskedAgain) {
  GateService gate;
  grpc::ResourceQuota quota("few threads");
  quota.SetMaxThreads(3);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&gate).SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  const auto server = builder.BuildAndStart();
  Client client("127.0.0.1:" + std::to_string(port));
  const auto list = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::ListWorkersResponse response;
    return client.workers().ListWorkers(&context, v1::ListWorkersRequest(), &response);
  };
  std::vector<std::future<grpc::Status>> calls;
  for (int i = 0; i < 6; ++i) calls.push_back(std::async(std::launch::async, list));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(list().error_message(), "Server Threadpool Exhausted");
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    gate.open = true;
  });
  EXPECT_NO_THROW(client.call(client.workers(), &v1::WorkerService::Stub::ListWorkers,
                              v1::ListWorkersRequest()));
  opener.join();
  for (auto& call : calls) call.wait();
  server->Shutdown(std::chrono::system_clock::now());
}

}  // namespace
}  // namespace meshloom::cli
