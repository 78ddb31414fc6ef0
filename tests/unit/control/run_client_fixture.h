// SPDX-License-Identifier: Apache-2.0
// A client of runs over real gRPC, and a daemon with fake runs on two ranks for it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/net/caller.h"
#include "daemon/control/runs/run_token.h"
#include "tests/support/eventually.h"
#include "tests/unit/control/fake_daemon.h"
#include "tests/unit/control/status_info.h"

namespace meshloom::control {

/// A client of one run.
class Client {
 public:
  explicit Client(const std::shared_ptr<grpc::Channel>& channel)
      : channel_(channel),
        runs_(v1::RunService::NewStub(channel)),
        operations_(v1::OperationService::NewStub(channel)) {}

  grpc::Status create(v1::RunSpec spec = {}, const std::string& request_id = "") {
    spec.mutable_config();
    v1::CreateRunRequest request;
    *request.mutable_spec() = spec;
    request.set_request_id(request_id);
    grpc::ClientContext context;
    context.AddMetadata("meshloom-client", client_);
    v1::CreateRunResponse response;
    const grpc::Status status = runs_->CreateRun(&context, request, &response);
    if (status.ok()) {
      run_ = response.run();
      token_ = response.token();
    }
    return status;
  }
  /// Returns another client, of the same run, that does not have its token.
  Client stranger() const {
    Client other(channel_);
    other.run_ = run_;
    other.client_ = "stranger";
    return other;
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  v1::Run get() {
    v1::GetRunRequest request;
    request.set_name(run_.name());
    grpc::ClientContext context;
    add_token(context);
    v1::GetRunResponse response;
    runs_->GetRun(&context, request, &response);
    return response.run();
  }
  /// Returns the run's state as ListRuns tells it, which renews no lease.
  v1::RunState state() {
    grpc::ClientContext context;
    v1::ListRunsResponse response;
    runs_->ListRuns(&context, v1::ListRunsRequest(), &response);
    for (const v1::Run& run : response.runs())
      if (run.name() == run_.name()) return run.state();
    return v1::RUN_STATE_UNSPECIFIED;
  }
  v1::Run wait_for(v1::RunState wanted) {
    test::eventually([&] { return state() == wanted; });
    return get();
  }
  grpc::Status heartbeat() {
    v1::HeartbeatRequest request;
    request.set_name(run_.name());
    grpc::ClientContext context;
    context.AddMetadata(kRunTokenKey, token_);
    v1::HeartbeatResponse response;
    return runs_->Heartbeat(&context, request, &response);
  }

  static v1::LossBatch batch_of(const std::vector<int>& tokens) {
    v1::LossBatch batch;
    batch.set_loss("cross_entropy");
    v1::Datum& datum = *batch.add_data();
    for (const int token : tokens) {
      datum.add_tokens(token);
      datum.add_targets(0);
    }
    return batch;
  }
  grpc::Status forward(std::int64_t seq, const std::vector<int>& tokens) {
    v1::ForwardRequest request;
    *request.mutable_batch() = batch_of(tokens);
    return call<v1::ForwardResponse>(&v1::RunService::Stub::Forward, request, seq, 1);
  }
  grpc::Status forward_backward(std::int64_t seq, const std::vector<int>& tokens,
                                std::int64_t epoch = 1) {
    v1::ForwardBackwardRequest request;
    *request.mutable_batch() = batch_of(tokens);
    return call<v1::ForwardBackwardResponse>(&v1::RunService::Stub::ForwardBackward, request, seq,
                                             epoch);
  }
  grpc::Status forward_backward_of(std::int64_t seq, const std::string& upload) {
    v1::ForwardBackwardRequest request;
    request.set_upload(upload);
    return call<v1::ForwardBackwardResponse>(&v1::RunService::Stub::ForwardBackward, request, seq,
                                             1);
  }
  grpc::Status optim_step(std::int64_t seq, double lr = 1, std::int64_t epoch = 1) {
    v1::OptimStepRequest request;
    request.mutable_params()->set_lr(lr);
    return call<v1::OptimStepResponse>(&v1::RunService::Stub::OptimStep, request, seq, epoch);
  }
  grpc::Status save_state(std::int64_t seq, const std::string& name, std::int64_t epoch = 1) {
    v1::SaveStateRequest request;
    request.set_name(name);
    return save_state(seq, request, epoch);
  }
  grpc::Status save_state(std::int64_t seq, const v1::SaveStateRequest& request,
                          std::int64_t epoch = 1) {
    return call<v1::SaveStateResponse>(&v1::RunService::Stub::SaveState, request, seq, epoch);
  }
  grpc::Status load_state(std::int64_t seq, const std::string& state) {
    v1::LoadStateRequest request;
    request.set_state(state);
    return call<v1::LoadStateResponse>(&v1::RunService::Stub::LoadState, request, seq, 1);
  }
  grpc::Status get_weight(std::int64_t seq, std::int64_t epoch = 1) {
    v1::GetParametersRequest request;
    request.add_names("w");
    return call<v1::GetParametersResponse>(&v1::RunService::Stub::GetParameters, request, seq,
                                           epoch);
  }
  grpc::Status set_weight(std::int64_t seq, double value) {
    v1::SetParametersRequest request;
    v1::ParameterValue& parameter = *request.add_parameters();
    parameter.set_name("w");
    parameter.set_data(std::to_string(value));
    return call<v1::SetParametersResponse>(&v1::RunService::Stub::SetParameters, request, seq, 1);
  }
  grpc::Status skip(std::int64_t seq) {
    return call<v1::SkipResponse>(&v1::RunService::Stub::Skip, v1::SkipRequest(), seq, 1);
  }
  grpc::Status close() {
    v1::CloseRunRequest request;
    request.set_name(run_.name());
    grpc::ClientContext context;
    context.AddMetadata(kRunTokenKey, token_);
    v1::CloseRunResponse response;
    return runs_->CloseRun(&context, request, &response);
  }
  /// Closes the run by force without a token, as the client called client_.
  grpc::Status close_by_force() {
    v1::CloseRunRequest request;
    request.set_name(run_.name());
    request.set_force(true);
    grpc::ClientContext context;
    context.AddMetadata("meshloom-client", client_);
    v1::CloseRunResponse response;
    return runs_->CloseRun(&context, request, &response);
  }
  grpc::Status delete_run() {
    v1::DeleteRunRequest request;
    request.set_name(run_.name());
    grpc::ClientContext context;
    context.AddMetadata("meshloom-client", client_);
    v1::DeleteRunResponse response;
    return runs_->DeleteRun(&context, request, &response);
  }
  v1::SampleRequest sample_request(int samples, int max_tokens) const {
    v1::SampleRequest request;
    request.set_run(run_.name());
    request.set_epoch(1);
    request.add_prompts()->set_prompt("ab");
    request.set_samples(samples);
    request.mutable_params()->set_max_tokens(max_tokens);
    return request;
  }
  grpc::Status sample(const v1::SampleRequest& request) {
    grpc::ClientContext context;
    context.AddMetadata(kRunTokenKey, token_);
    v1::SampleResponse response;
    const grpc::Status status = runs_->Sample(&context, request, &response);
    last_ = response.operation();
    return status;
  }
  grpc::Status sample(int samples, int max_tokens) {
    return sample(sample_request(samples, max_tokens));
  }
  grpc::Status save_weights(std::int64_t seq, const std::string& name, v1::WeightsStorage storage) {
    v1::SaveWeightsRequest request;
    request.set_name(name);
    request.set_storage(storage);
    return call<v1::SaveWeightsResponse>(&v1::RunService::Stub::SaveWeights, request, seq, 1);
  }
  std::string weights_name(const std::string& name) const {
    return run_.name() + "/weights/" + name;
  }
  grpc::Status delete_weights(const std::string& name) {
    v1::DeleteWeightsRequest request;
    request.set_name(weights_name(name));
    grpc::ClientContext context;
    context.AddMetadata(kRunTokenKey, token_);
    v1::DeleteWeightsResponse response;
    return runs_->DeleteWeights(&context, request, &response);
  }
  /// All that a watch tells; its status in status_.
  std::vector<v1::WatchOperationResponse> watch(const std::string& name,
                                                const std::vector<int>& known = {}) {
    v1::WatchOperationRequest request;
    request.set_name(name);
    request.mutable_known_tokens()->Add(known.begin(), known.end());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    add_token(context);
    const auto reader = operations_->WatchOperation(&context, request);
    std::vector<v1::WatchOperationResponse> told;
    for (v1::WatchOperationResponse response; reader->Read(&response);) told.push_back(response);
    status_ = reader->Finish();
    return told;
  }

  std::string name_of(std::int64_t seq, std::int64_t epoch = 1) const {
    return fmt::format("operations/{}/{}/{}", run_.name().substr(5), epoch, seq);
  }
  v1::Operation wait(const std::string& name, std::int64_t timeout_ms = 20'000) {
    v1::WaitOperationRequest request;
    request.set_name(name);
    request.set_timeout_ms(timeout_ms);
    grpc::ClientContext context;
    add_token(context);
    v1::WaitOperationResponse response;
    status_ = operations_->WaitOperation(&context, request, &response);
    return response.operation();
  }
  v1::Operation wait(std::int64_t seq) { return wait(name_of(seq)); }
  grpc::Status cancel(std::int64_t seq) { return cancel(name_of(seq)); }
  grpc::Status cancel(const std::string& name) {
    v1::CancelOperationRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    context.AddMetadata(kRunTokenKey, token_);
    v1::CancelOperationResponse response;
    return operations_->CancelOperation(&context, request, &response);
  }
  std::string read_result(const std::string& name, std::vector<std::size_t>* pieces) {
    v1::ReadResultRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    add_token(context);
    auto reader = operations_->ReadResult(&context, request);
    std::string bytes;
    for (v1::ReadResultResponse piece; reader->Read(&piece);) {
      bytes += piece.data();
      pieces->push_back(piece.data().size());
    }
    status_ = reader->Finish();
    return bytes;
  }

  v1::Run run_;
  std::string token_;  ///< sent with every call; empty: with none that does not need it
  std::string client_ = "tester";
  v1::Operation last_;
  grpc::Status status_;

 private:
  void add_token(grpc::ClientContext& context) const {
    if (!token_.empty()) context.AddMetadata(kRunTokenKey, token_);
  }
  template <typename Response, typename Method, typename Request>
  grpc::Status call(Method method, Request request, std::int64_t seq, std::int64_t epoch) {
    request.mutable_id()->set_run(run_.name());
    request.mutable_id()->set_epoch(epoch);
    request.mutable_id()->set_seq(seq);
    grpc::ClientContext context;
    context.AddMetadata(kRunTokenKey, token_);
    Response response;
    const grpc::Status status = (runs_.get()->*method)(&context, request, &response);
    last_ = response.operation();
    return status;
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::RunService::Stub> runs_;
  std::unique_ptr<v1::OperationService::Stub> operations_;
};

class RunServiceTest : public ::testing::Test {
 protected:
  void start() { daemon_ = std::make_unique<FakeDaemon>(folder_ / "state", plan_, 2, options_); }
  void restart() {
    daemon_.reset();
    start();
  }
  Client client() { return Client(daemon_->channel()); }
  Client with_run(v1::RunSpec spec = {}) {
    Client made = client();
    const grpc::Status status = made.create(std::move(spec));
    EXPECT_TRUE(status.ok()) << status.error_message();
    return made;
  }
  static double weight(const v1::Operation& operation) {
    return std::stod(operation.result().parameters().parameters(0).data());
  }

  test::TempFolder folder_;
  FakePlan plan_;
  FakeDaemonOptions options_;
  std::unique_ptr<FakeDaemon> daemon_;
};

}  // namespace meshloom::control
