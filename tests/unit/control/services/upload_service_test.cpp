// SPDX-License-Identifier: Apache-2.0
// Uploads and models over real gRPC.
#include "daemon/control/services/upload_service.h"

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <thread>

#include "daemon/control/net/grpc_server.h"
#include "daemon/control/services/model_service.h"
#include "tests/unit/control/status_info.h"
#include "tests/unit/control/stores/transfer_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using grpc::StatusCode;

std::string reason_in(const grpc::Status& status) { return info_of(status).reason(); }

/// "CODE REASON", for one line of a table.
std::string outcome(const grpc::Status& status) {
  return fmt::format("{} {}", static_cast<int>(status.error_code()), reason_in(status));
}
std::string expected(StatusCode code, const std::string& reason) {
  return fmt::format("{} {}", static_cast<int>(code), reason);
}

/// Nobody holds a run here.
class NoRuns final : public RunHolders {
 public:
  std::string own_open_run(const Caller&, const std::string& name) const override {
    throw NotFound(name + " does not exist", "RUN_NOT_FOUND");
  }
  Hold hold_lease(const Caller&, const std::string& name) const override {
    throw NotFound(name + " does not exist", "RUN_NOT_FOUND");
  }
};

class UploadServiceTest : public TransferTest {
 protected:
  void SetUp() override {
    open();
    serve(10s);
  }
  void TearDown() override { server_->shutdown(); }

  /// `silence` ends a stream.
  void serve(std::chrono::milliseconds silence) {
    if (server_) server_->shutdown();
    server_.reset();
    upload_service_ = std::make_unique<UploadServiceImpl>(
        uploads(), runs_, UploadServiceImpl::Options{.most_streams = 4, .silence = silence});
    model_service_ = std::make_unique<ModelServiceImpl>(models(), *stores_->uses);
    server_ = std::make_unique<GrpcServer>(
        GrpcServerOptions{resolve_listen_address("127.0.0.1:0", "listen"),
                          {upload_service_.get(), model_service_.get()}});
    channel_ = grpc::CreateChannel(fmt::format("127.0.0.1:{}", server_->port()),
                                   grpc::InsecureChannelCredentials());
    stub_ = v1::UploadService::NewStub(channel_);
    model_stub_ = v1::ModelService::NewStub(channel_);
  }

  template <typename Stub, typename Request, typename Response>
  grpc::Status call(Stub& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, const std::string& client = "me") {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    if (!client.empty()) context.AddMetadata("meshloom-client", client);
    return (stub.*method)(&context, request, response);
  }
  std::string create_upload(const std::string& name, const std::string& bytes) {
    v1::CreateUploadResponse response;
    EXPECT_TRUE(
        call(*stub_, &v1::UploadService::Stub::CreateUpload, request(name, bytes), &response).ok());
    return response.upload().name();
  }
  grpc::Status get(const std::string& name, v1::Upload* upload, const std::string& client = "me") {
    v1::GetUploadRequest request;
    request.set_name(name);
    v1::GetUploadResponse response;
    const auto status =
        call(*stub_, &v1::UploadService::Stub::GetUpload, request, &response, client);
    *upload = response.upload();
    return status;
  }
  std::int64_t committed(const std::string& name) {
    v1::Upload upload;
    EXPECT_TRUE(get(name, &upload).ok());
    return upload.committed_bytes();
  }
  static v1::WriteUploadRequest chunk(const std::string& name, std::int64_t offset,
                                      const std::string& data) {
    v1::WriteUploadRequest chunk;
    chunk.set_upload(name);
    chunk.set_write_offset(offset);
    chunk.set_data(data);
    chunk.set_crc32c(base::crc32c(std::as_bytes(std::span(data))));
    return chunk;
  }
  grpc::Status write(const std::vector<v1::WriteUploadRequest>& chunks,
                     std::int64_t* committed = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    context.AddMetadata("meshloom-client", "me");
    v1::WriteUploadResponse response;
    const auto writer = stub_->WriteUpload(&context, &response);
    for (const auto& item : chunks)
      if (!writer->Write(item)) break;
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (committed) *committed = response.committed_bytes();
    return status;
  }
  grpc::Status finish(const std::string& name) {
    v1::FinishUploadRequest request;
    request.set_name(name);
    v1::FinishUploadResponse response;
    return call(*stub_, &v1::UploadService::Stub::FinishUpload, request, &response);
  }

  const NoRuns runs_;
  std::unique_ptr<UploadServiceImpl> upload_service_;
  std::unique_ptr<ModelServiceImpl> model_service_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::UploadService::Stub> stub_;
  std::unique_ptr<v1::ModelService::Stub> model_stub_;
};

TEST_F(UploadServiceTest, AFileArrivesInSeveralStreams) {
  const std::string bytes = random_bytes(3 * kLargestChunk, 20);
  const std::string name = create_upload("a.bin", bytes);
  std::int64_t there = 0;
  EXPECT_TRUE(write({chunk(name, 0, bytes.substr(0, kLargestChunk)),
                     chunk("", kLargestChunk, bytes.substr(kLargestChunk, 100))},
                    &there)
                  .ok());
  EXPECT_EQ(there, static_cast<std::int64_t>(kLargestChunk + 100));
  EXPECT_EQ(committed(name), there);
  std::vector<v1::WriteUploadRequest> rest;
  for (auto at = static_cast<std::size_t>(there); at < bytes.size(); at += kLargestChunk)
    rest.push_back(chunk(name, static_cast<std::int64_t>(at), bytes.substr(at, kLargestChunk)));
  EXPECT_TRUE(write(rest).ok());
  EXPECT_TRUE(finish(name).ok());
  v1::Upload upload;
  EXPECT_TRUE(get(name, &upload).ok());
  EXPECT_EQ(upload.state(), v1::UPLOAD_STATE_COMPLETE);
  EXPECT_EQ(upload.client(), "me");
}

TEST_F(UploadServiceTest, AStreamThatBreaksKeepsWhatCameAndMakesRoom) {
  const std::string bytes = random_bytes(1000, 21);
  const std::string name = create_upload("a.bin", bytes);
  {
    grpc::ClientContext context;
    context.AddMetadata("meshloom-client", "me");
    v1::WriteUploadResponse response;
    const auto writer = stub_->WriteUpload(&context, &response);
    ASSERT_TRUE(writer->Write(chunk(name, 0, bytes.substr(0, 300))));
    const auto file = state() / "blobs/incoming" / name.substr(name.find('/') + 1);
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (file_text(file).substr(0, 300) != bytes.substr(0, 300) &&
           std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms);
    EXPECT_EQ(outcome(write({chunk(name, 300, "")})), expected(StatusCode::ABORTED, "UPLOAD_BUSY"));
    context.TryCancel();
    writer->Finish();
  }
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (committed(name) < 300 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(5ms);
  EXPECT_EQ(committed(name), 300);
  grpc::Status rest = grpc::Status::CANCELLED;
  while (!rest.ok() && std::chrono::steady_clock::now() < end)
    rest = write({chunk(name, 300, bytes.substr(300))});
  EXPECT_TRUE(finish(name).ok());
}

TEST_F(UploadServiceTest, AStreamThatFallsSilentIsCutOff) {
  serve(300ms);
  const std::string name = create_upload("a.bin", random_bytes(1000, 22));
  grpc::ClientContext context;
  context.AddMetadata("meshloom-client", "me");
  context.set_deadline(std::chrono::system_clock::now() + 20s);
  v1::WriteUploadResponse response;
  const auto writer = stub_->WriteUpload(&context, &response);
  ASSERT_TRUE(writer->Write(chunk(name, 0, "some")));
  // Drop by drop is no more than silence.
  std::int64_t offset = 4;
  while (writer->Write(chunk(name, offset++, "x"))) std::this_thread::sleep_for(50ms);
  EXPECT_EQ(writer->Finish().error_code(), StatusCode::CANCELLED);
  const auto end = std::chrono::steady_clock::now() + 10s;
  grpc::Status next = grpc::Status::CANCELLED;
  while (!next.ok() && std::chrono::steady_clock::now() < end)
    next = write({chunk(name, committed(name), "")});
  EXPECT_TRUE(next.ok()) << "the upload is free again";
}

TEST_F(UploadServiceTest, WrongCallsHaveTheirCodeAndReason) {
  const std::string bytes = random_bytes(100, 23);
  const std::string name = create_upload("a.bin", bytes);
  auto spoilt = chunk(name, 0, "abc");
  spoilt.set_crc32c(spoilt.crc32c() + 1);
  const std::string large(kLargestChunk + 1, 'x');
  EXPECT_EQ(outcome(write({chunk(name, 1, "x")})),
            expected(StatusCode::OUT_OF_RANGE, "WRONG_OFFSET"));
  EXPECT_EQ(outcome(write({spoilt})), expected(StatusCode::ABORTED, "CHUNK_CHECKSUM_MISMATCH"));
  EXPECT_EQ(outcome(write({chunk(name, 0, large)})),
            expected(StatusCode::INVALID_ARGUMENT, "CHUNK_TOO_LARGE"));
  EXPECT_EQ(outcome(write({})), expected(StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT"));
  EXPECT_EQ(outcome(write({chunk("", 0, "x")})),
            expected(StatusCode::INVALID_ARGUMENT, "NAME_INVALID"));
  EXPECT_EQ(outcome(write({chunk("uploads/upload-77", 0, "x")})),
            expected(StatusCode::NOT_FOUND, "UPLOAD_NOT_FOUND"));
  EXPECT_EQ(outcome(write({chunk(name, 0, "x"), chunk("uploads/other", 1, "x")})),
            expected(StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT"));
  EXPECT_EQ(committed(name), 1) << "what came before the error is kept";
  EXPECT_EQ(outcome(finish(name)), expected(StatusCode::FAILED_PRECONDITION, "UPLOAD_INCOMPLETE"));
  v1::Upload upload;
  EXPECT_EQ(outcome(get(name, &upload, "other")),
            expected(StatusCode::NOT_FOUND, "UPLOAD_NOT_FOUND"));
  EXPECT_EQ(outcome(get(name, &upload, "")), expected(StatusCode::NOT_FOUND, "UPLOAD_NOT_FOUND"));
  EXPECT_EQ(outcome(get(name, &upload, "address:x")),
            expected(StatusCode::INVALID_ARGUMENT, "CLIENT_INVALID"));
  v1::ListUploadsRequest list;
  list.set_page_size(-1);
  v1::ListUploadsResponse listed;
  EXPECT_EQ(outcome(call(*stub_, &v1::UploadService::Stub::ListUploads, list, &listed)),
            expected(StatusCode::INVALID_ARGUMENT, "PAGE_SIZE_INVALID"));
  list.clear_page_size();
  list.set_page_token("made up");
  EXPECT_EQ(outcome(call(*stub_, &v1::UploadService::Stub::ListUploads, list, &listed)),
            expected(StatusCode::INVALID_ARGUMENT, "PAGE_TOKEN_INVALID"));
}

TEST_F(UploadServiceTest, ModelsComeAndGo) {
  v1::CreateModelRequest create;
  create.set_name("fresh");
  create.set_preset("byte_gpt_tiny");
  v1::CreateModelResponse created;
  ASSERT_TRUE(call(*model_stub_, &v1::ModelService::Stub::CreateModel, create, &created).ok());
  EXPECT_EQ(created.model().name(), "models/fresh");
  EXPECT_EQ(outcome(call(*model_stub_, &v1::ModelService::Stub::CreateModel, create, &created)),
            expected(StatusCode::ALREADY_EXISTS, "MODEL_EXISTS"));
  v1::JobSpec spec;
  spec.set_name("job");
  spec.mutable_run()->mutable_model()->set_name("fresh");
  stores_->jobs.submit(spec, spec.run(), {});
  v1::GetModelRequest get;
  get.set_name("models/fresh");
  v1::GetModelResponse got;
  ASSERT_TRUE(call(*model_stub_, &v1::ModelService::Stub::GetModel, get, &got).ok());
  EXPECT_THAT(got.model().users(), ::testing::ElementsAre("jobs/job"));
  v1::DeleteModelRequest remove;
  remove.set_name("fresh");
  v1::DeleteModelResponse removed;
  EXPECT_EQ(outcome(call(*model_stub_, &v1::ModelService::Stub::DeleteModel, remove, &removed)),
            expected(StatusCode::FAILED_PRECONDITION, "MODEL_IN_USE"));
  stores_->jobs.cancel("job", {});
  EXPECT_TRUE(call(*model_stub_, &v1::ModelService::Stub::DeleteModel, remove, &removed).ok());
  EXPECT_EQ(outcome(call(*model_stub_, &v1::ModelService::Stub::GetModel, get, &got)),
            expected(StatusCode::NOT_FOUND, "MODEL_NOT_FOUND"));
  v1::ListModelsResponse listed;
  ASSERT_TRUE(
      call(*model_stub_, &v1::ModelService::Stub::ListModels, v1::ListModelsRequest(), &listed)
          .ok());
  EXPECT_EQ(listed.models_size(), 0);
}

}  // namespace
}  // namespace meshloom::control
