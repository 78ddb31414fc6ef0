// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/zero_requests.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "tests/support/numeric_fields.h"
#include "v1/checkpoint_service.grpc.pb.h"
#include "v1/data_service.grpc.pb.h"
#include "v1/evaluate_service.grpc.pb.h"
#include "v1/generate_service.grpc.pb.h"
#include "v1/job_service.grpc.pb.h"
#include "v1/model_service.grpc.pb.h"
#include "v1/plan_service.grpc.pb.h"
#include "v1/worker_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

using google::protobuf::Message;

/// Requests by the name of their type: one that is right, and how it is sent.
class Calls {
 public:
  Calls(const std::string& address, RunClient& client)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        client_(client) {}

  template <typename Service, typename Request, typename Response>
  void add(grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
           const Request& right = {}) {
    const auto stub = stub_of<Service>();
    keep(right, [=, this](const Request& request) { return client_.call(*stub, method, request); });
  }
  /// Of a method that streams what it answers.
  template <typename Service, typename Request, typename Response>
  void add(std::unique_ptr<grpc::ClientReader<Response>> (Service::Stub::*method)(
               grpc::ClientContext*, const Request&),
           const Request& right = {}) {
    const auto stub = stub_of<Service>();
    keep(right, [=, this](const Request& request) { return client_.call(*stub, method, request); });
  }
  /// Sent by `send`.
  template <typename Request, typename Send>
  void keep(const Request& right, const Send& send) {
    calls_[Request::descriptor()->name()] = {
        std::make_shared<Request>(right),
        [send](const Message& request) { return send(static_cast<const Request&>(request)); }};
  }

  void expect_refused(const std::string& type, const test::NumericField& field) const {
    const auto found = calls_.find(type);
    ASSERT_NE(found, calls_.end()) << "is new: say how it is sent, or that its 0 is taken";
    const std::unique_ptr<Message> request(found->second.right->New());
    request->CopyFrom(*found->second.right);
    field.set_zero(request.get());
    const Outcome outcome = found->second.send(*request);
    EXPECT_EQ(outcome.code, grpc::StatusCode::INVALID_ARGUMENT) << outcome.message;
    EXPECT_TRUE(outcome.field == field.name() || outcome.field.ends_with("." + field.leaf()))
        << outcome.field;
    EXPECT_NE(outcome.message.find(field.leaf()), std::string::npos) << outcome.message;
  }

 private:
  struct Call {
    std::shared_ptr<Message> right;
    std::function<Outcome(const Message&)> send;
  };

  template <typename Service>
  std::shared_ptr<typename Service::Stub> stub_of() const {
    return Service::NewStub(channel_);
  }

  std::shared_ptr<grpc::Channel> channel_;
  RunClient& client_;
  std::map<std::string, Call> calls_;
};

void add_lists(RunClient& client, Calls* calls) {
  calls->add<v1::CheckpointService>(&v1::CheckpointService::Stub::ListCheckpoints);
  calls->add<v1::JobService>(&v1::JobService::Stub::ListJobs);
  calls->add<v1::ModelService>(&v1::ModelService::Stub::ListModels);
  calls->add<v1::PlanService>(&v1::PlanService::Stub::ListPlans);
  calls->add<v1::RunService>(&v1::RunService::Stub::ListRuns);
  calls->add<v1::UploadService>(&v1::UploadService::Stub::ListUploads);
  v1::ListStatesRequest states;
  states.set_run(client.name);
  calls->add<v1::RunService>(&v1::RunService::Stub::ListStates, states);
  v1::ListOperationsRequest operations;
  operations.set_run(client.name);
  calls->add<v1::OperationService>(&v1::OperationService::Stub::ListOperations, operations);
}

void add_questions(RunClient& client, Calls* calls) {
  calls->add<v1::WorkerService>(&v1::WorkerService::Stub::DumpFlight);
  v1::InspectDataRequest inspect;
  inspect.set_path("text.txt");
  calls->add<v1::DataService>(&v1::DataService::Stub::InspectData, inspect);
  v1::EvaluateRequest evaluate;
  evaluate.set_job("beside");
  calls->add<v1::EvaluateService>(&v1::EvaluateService::Stub::Evaluate, evaluate);
  v1::GenerateRequest generate;
  generate.set_job("beside");
  generate.set_prompt("a");
  generate.mutable_params()->set_max_tokens(1);
  calls->add<v1::GenerateService>(&v1::GenerateService::Stub::Generate, generate);
  v1::SampleRequest sample;
  sample.add_prompts()->set_prompt("a");
  calls->keep(sample,
              [&client](const v1::SampleRequest& request) { return client.sample(request); });
  v1::CreateRunRequest create;
  create.mutable_spec()->set_name("none");
  create.mutable_spec()->mutable_config()->mutable_model()->set_preset("byte_gpt_tiny");
  calls->add<v1::RunService>(&v1::RunService::Stub::CreateRun, create);
}

/// A 0 that says something: no waiting, the likeliest token, among all tokens, the weights before
/// the first step, values of an optimizer, the first second of 1970.
bool is_taken(const std::string& name) {
  static const std::set<std::string> taken = {
      "WaitOperationRequest.timeout_ms",      "CreateRunRequest.spec.gap_timeout_seconds",
      "GenerateRequest.params.temperature",   "GenerateRequest.params.top_k",
      "SampleRequest.params.temperature",     "SampleRequest.params.top_k",
      "SampleRequest.weights_step",           "InspectDataRequest.reading.chat.time",
      "TokenizeDataRequest.reading.chat.time"};
  return taken.contains(name) || name.starts_with("OptimStepRequest.params.");
}

}  // namespace

void send_zeros(const std::string& address, RunClient& client) {
  Calls calls(address, client);
  add_lists(client, &calls);
  add_questions(client, &calls);
  const google::protobuf::Descriptor* of_services[] = {
      v1::ListCheckpointsRequest::descriptor(), v1::InspectDataRequest::descriptor(),
      v1::EvaluateRequest::descriptor(),        v1::GenerateRequest::descriptor(),
      v1::ListJobsRequest::descriptor(),        v1::ListModelsRequest::descriptor(),
      v1::WaitOperationRequest::descriptor(),   v1::ListPlansRequest::descriptor(),
      v1::ListRunsRequest::descriptor(),        v1::ListUploadsRequest::descriptor(),
      v1::DumpFlightRequest::descriptor()};
  const std::set<std::string> with_own_tests = {"RunConfig",    "ModelSource", "DataConfig",
                                                "Mesh",         "PlanQuery",   "PlanSearchQuery",
                                                "ParallelPlan", "LossBatch"};
  int tried = 0;
  for (const google::protobuf::Descriptor* one : of_services) {
    const google::protobuf::ServiceDescriptor& service = *one->file()->service(0);
    for (int i = 0; i < service.method_count(); ++i) {
      const google::protobuf::Descriptor& type = *service.method(i)->input_type();
      for (const test::NumericField& field : test::numeric_fields(type, with_own_tests)) {
        const std::string name = type.name() + "." + field.name();
        if (!field.has_presence() || is_taken(name)) continue;
        SCOPED_TRACE(name);
        calls.expect_refused(type.name(), field);
        ++tried;
      }
    }
  }
  EXPECT_GE(tried, 18);
}

}  // namespace meshloom::e2e
