// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/run_client.h"

#include <gtest/gtest.h>

#include <chrono>

#include "daemon/base/crc32c.h"
#include "tests/e2e/process.h"
#include "v1/error.pb.h"

namespace meshloom::e2e {
namespace {

using namespace std::chrono_literals;

Outcome outcome_of_details(const v1::ErrorDetails& details) {
  Outcome outcome;
  outcome.code = static_cast<grpc::StatusCode>(details.code());
  outcome.reason = details.info().reason();
  outcome.message = details.message();
  if (!details.violations().empty()) outcome.field = details.violations(0).field();
  return outcome;
}

}  // namespace

RunClient::RunClient(const std::string& address) {
  const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  runs_ = v1::RunService::NewStub(channel);
  operations_ = v1::OperationService::NewStub(channel);
  uploads_ = v1::UploadService::NewStub(channel);
}

void RunClient::prepare(grpc::ClientContext& context) const {
  context.set_deadline(std::chrono::system_clock::now() + 70s);
  context.AddMetadata("meshloom-client", "e2e");
  if (!token.empty()) context.AddMetadata("meshloom-run-token", token);
}

Outcome RunClient::outcome_of(const grpc::Status& status) {
  v1::ErrorDetails details;
  details.set_code(status.error_code());
  details.set_message(status.error_message());
  v1::RpcStatus wire;
  wire.ParseFromString(status.error_details());
  for (const auto& item : wire.details()) {
    v1::BadRequest bad;
    if (item.type_url() == "type.googleapis.com/google.rpc.ErrorInfo")
      details.mutable_info()->ParseFromString(item.value());
    else if (bad.ParseFromString(item.value()))
      *details.mutable_violations() = bad.field_violations();
  }
  return outcome_of_details(details);
}

Outcome RunClient::submit(const v1::RunSpec& spec) {
  v1::CreateRunRequest request;
  *request.mutable_spec() = spec;
  grpc::ClientContext context;
  prepare(context);
  v1::CreateRunResponse response;
  const grpc::Status status = runs_->CreateRun(&context, request, &response);
  if (!status.ok()) return outcome_of(status);
  name = response.run().name();
  token = response.token();
  epoch = response.run().epoch();
  next_seq = response.run().next_seq();
  return {};
}

bool RunClient::create(const v1::RunSpec& spec) {
  const Outcome made = submit(spec);
  EXPECT_TRUE(made.ok()) << made.message;
  return made.ok() && wait_ready();
}

bool RunClient::wait_ready() {
  const bool ready = eventually(60s, [&] { return get().state() == v1::RUN_STATE_READY; });
  const v1::Run run = get();
  EXPECT_TRUE(ready) << run.ShortDebugString();
  epoch = run.epoch();
  next_seq = run.next_seq();
  return ready;
}

v1::Run RunClient::get() const {
  v1::GetRunRequest request;
  request.set_name(name);
  grpc::ClientContext context;
  prepare(context);
  v1::GetRunResponse response;
  const grpc::Status status = runs_->GetRun(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.run();
}

Outcome RunClient::close() {
  v1::CloseRunRequest request;
  request.set_name(name);
  grpc::ClientContext context;
  prepare(context);
  v1::CloseRunResponse response;
  return outcome_of(runs_->CloseRun(&context, request, &response));
}

Outcome RunClient::forward_backward(const v1::LossBatch& batch) {
  v1::ForwardBackwardRequest request;
  *request.mutable_batch() = batch;
  return run(&Runs::ForwardBackward, request);
}

Outcome RunClient::forward(const v1::LossBatch& batch) {
  v1::ForwardRequest request;
  *request.mutable_batch() = batch;
  return run(&Runs::Forward, request);
}

Outcome RunClient::optim_step(const v1::OptimStepParams& params) {
  v1::OptimStepRequest request;
  *request.mutable_params() = params;
  return run(&Runs::OptimStep, request);
}

Outcome RunClient::save_state(const std::string& state) {
  v1::SaveStateRequest request;
  request.set_name(state);
  return run(&Runs::SaveState, request);
}

Outcome RunClient::save_weights(const std::string& folder) {
  v1::SaveWeightsRequest request;
  request.set_name(folder);
  return run(&Runs::SaveWeights, request);
}

std::string RunClient::weights(const std::filesystem::path& state_dir) {
  const Outcome saved = save_weights("end");
  EXPECT_TRUE(saved.ok()) << saved.message;
  return read_file(state_dir / saved.operation.result().saved_weights().folder() /
                   "model.safetensors");
}

Outcome RunClient::sample(const v1::SampleRequest& given) {
  v1::SampleRequest request = given;
  if (request.run().empty()) request.set_run(name);
  if (request.epoch() == 0) request.set_epoch(epoch);
  grpc::ClientContext context;
  prepare(context);
  v1::SampleResponse response;
  const grpc::Status status = runs_->Sample(&context, request, &response);
  if (!status.ok()) return outcome_of(status);
  Outcome begun;
  begun.operation = response.operation();
  return waits ? wait(begun.operation.name()) : begun;
}

Outcome RunClient::wait(const std::string& operation) {
  v1::WaitOperationRequest request;
  request.set_name(operation);
  request.set_timeout_ms(60'000);
  grpc::ClientContext context;
  prepare(context);
  v1::WaitOperationResponse response;
  const grpc::Status status = operations_->WaitOperation(&context, request, &response);
  if (!status.ok()) return outcome_of(status);
  Outcome outcome = outcome_of_details(response.operation().error());
  outcome.operation = response.operation();
  EXPECT_GE(outcome.operation.state(), v1::OPERATION_STATE_SUCCEEDED) << operation << " still runs";
  return outcome;
}

Outcome RunClient::cancel(const std::string& operation) {
  v1::CancelOperationRequest request;
  request.set_name(operation);
  grpc::ClientContext context;
  prepare(context);
  v1::CancelOperationResponse response;
  return outcome_of(operations_->CancelOperation(&context, request, &response));
}

Outcome RunClient::look(const std::string& operation) {
  v1::GetOperationRequest request;
  request.set_name(operation);
  grpc::ClientContext context;
  prepare(context);
  v1::GetOperationResponse response;
  Outcome outcome = outcome_of(operations_->GetOperation(&context, request, &response));
  outcome.operation = response.operation();
  return outcome;
}

Outcome RunClient::heartbeat() {
  v1::HeartbeatRequest request;
  request.set_name(name);
  grpc::ClientContext context;
  prepare(context);
  v1::HeartbeatResponse response;
  return outcome_of(runs_->Heartbeat(&context, request, &response));
}

Outcome RunClient::upload(const std::string& bytes, std::string* upload) {
  v1::CreateUploadRequest create;
  create.set_kind(v1::UPLOAD_KIND_TRANSIENT);
  create.set_run(name);
  create.set_size_bytes(static_cast<std::int64_t>(bytes.size()));
  v1::CreateUploadResponse created;
  grpc::ClientContext creating, writing, finishing;
  for (grpc::ClientContext* context : {&creating, &writing, &finishing}) prepare(*context);
  grpc::Status status = uploads_->CreateUpload(&creating, create, &created);
  if (!status.ok()) return outcome_of(status);
  *upload = created.upload().name();
  v1::WriteUploadResponse written;
  const auto stream = uploads_->WriteUpload(&writing, &written);
  for (std::size_t at = 0; at < bytes.size(); at += 1 << 20) {
    v1::WriteUploadRequest chunk;
    chunk.set_upload(*upload);
    chunk.set_write_offset(static_cast<std::int64_t>(at));
    chunk.set_data(bytes.substr(at, 1 << 20));
    chunk.set_crc32c(base::crc32c(std::as_bytes(std::span(chunk.data()))));
    if (!stream->Write(chunk)) break;
  }
  stream->WritesDone();
  status = stream->Finish();
  if (!status.ok()) return outcome_of(status);
  v1::FinishUploadRequest finish;
  finish.set_name(*upload);
  v1::FinishUploadResponse finished;
  return outcome_of(uploads_->FinishUpload(&finishing, finish, &finished));
}

Outcome RunClient::upload_state(const std::string& upload) {
  v1::GetUploadRequest request;
  request.set_name(upload);
  grpc::ClientContext context;
  prepare(context);
  v1::GetUploadResponse response;
  return outcome_of(uploads_->GetUpload(&context, request, &response));
}

v1::Datum next_token_datum(const std::vector<int>& tokens) {
  v1::Datum datum;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    datum.add_tokens(tokens[i]);
    datum.add_targets(tokens[i + 1]);
  }
  return datum;
}

}  // namespace meshloom::e2e
