// SPDX-License-Identifier: Apache-2.0
// Requests that are no messages, to methods of each kind, over real gRPC.
#include "daemon/control/net/unread_requests.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <future>

#include "daemon/control/net/grpc_server.h"
#include "tests/unit/control/status_info.h"
#include "v1/job_service.grpc.pb.h"

namespace meshloom::control {
namespace {

/// A method of each kind that the daemon has; none fails.
class EachKind final : public v1::JobService::WithCallbackMethod_GetJob<
                           v1::JobService::WithCallbackMethod_WatchJob<v1::JobService::Service>> {
 public:
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest*,
                         v1::CancelJobResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                        v1::ListJobsResponse*) override {
    return {grpc::StatusCode::INTERNAL, "", "details of a handler"};
  }
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest*,
                                   v1::GetJobResponse*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(grpc::CallbackServerContext*,
                                                           const v1::WatchJobRequest*) override {
    struct Nothing final : grpc::ServerWriteReactor<v1::WatchJobResponse> {
      void OnDone() override { delete this; }
    };
    auto* reactor = new Nothing;
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class UnreadRequestsTest : public ::testing::Test {
 protected:
  ~UnreadRequestsTest() override { server_.shutdown(); }
  grpc::Status call(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(grpc::CreateChannel("127.0.0.1:" + std::to_string(server_.port()),
                                               grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> ended;
    stub.UnaryCall(&context, "/meshloom.v1.JobService/" + method, grpc::StubOptions(), &request,
                   &response, [&](const grpc::Status& status) { ended.set_value(status); });
    return ended.get_future().get();
  }

  EachKind service_;
  GrpcServer server_{{resolve_listen_address("127.0.0.1:0", "listen"), {&service_}, 16}};
};

TEST_F(UnreadRequestsTest, AreRefusedWithTheirMethodWhateverItsKind) {
  const std::string no_message = "\xff\xff", no_utf8 = "\x0a\x01\xff", cut = "\x0a\x05x";
  for (const char* method : {"CancelJob", "GetJob", "WatchJob"})
    for (const std::string& bytes : {no_message, no_utf8, cut}) {
      const grpc::Status status = call(method, bytes);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
      EXPECT_EQ(info_of(status).reason(), "REQUEST_UNREADABLE") << method;
      EXPECT_NE(status.error_message().find(method), std::string::npos) << status.error_message();
    }
}

TEST_F(UnreadRequestsTest, WhatHandlersEndWithIsLeftAlone) {
  for (const char* method : {"CancelJob", "GetJob"}) EXPECT_TRUE(call(method, "").ok()) << method;
  EXPECT_EQ(call("ListJobs", "").error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(info_of(call("Explode", "")).reason(), "METHOD_UNKNOWN");
}

}  // namespace
}  // namespace meshloom::control
