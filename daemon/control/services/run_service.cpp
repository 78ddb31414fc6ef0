// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/run_service.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/control/net/grpc_caller.h"
#include "daemon/control/net/status.h"
#include "daemon/control/services/generate_request.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_key.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/config/sampling_params.h"
#include "daemon/train/files/hf_byte_tokenizer.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr int kMostRuns = 500;
constexpr int kMostStates = 500;

}  // namespace

std::shared_ptr<RunSession> RunServiceImpl::own_run(const Caller& caller,
                                                    const std::string& name) const {
  auto run = runs_.find(parse_run_name(name));
  run->check_holder(caller.run_token());
  return run;
}

std::string RunServiceImpl::own_open_run(const Caller& caller, const std::string& name) const {
  const auto run = own_run(caller, name);
  run->check_not_ended();
  return run_resource(run->id());
}

Hold RunServiceImpl::hold_lease(const Caller& caller, const std::string& name) const {
  const auto run = runs_.find(parse_run_name(name));
  return run->hold_lease_of(caller.run_token());
}

template <typename Request, typename Response>
grpc::Status RunServiceImpl::submit(const char* method, const grpc::ServerContext& context,
                                    const Request& request, Response* response) const {
  return guarded(method, context, [&](const Caller& caller) {
    *response->mutable_operation() = own_run(caller, request.id().run())->submit(request);
  });
}

grpc::ServerUnaryReactor* RunServiceImpl::CreateRun(grpc::CallbackServerContext* context,
                                                    const v1::CreateRunRequest* request,
                                                    v1::CreateRunResponse* response) {
  return beginnings_.answer(
      "CreateRun", *context, *request, [=, this](const Caller& caller, const auto&) {
        RunManager::Created created = runs_.create(
            request->spec(), make_request_key("CreateRun", *request, caller.name()), caller.name());
        *response->mutable_run() = std::move(created.run);
        response->set_token(created.token);
        for (std::string& warning : created.warnings) response->add_warnings(std::move(warning));
      });
}

grpc::Status RunServiceImpl::GetRun(grpc::ServerContext* context, const v1::GetRunRequest* request,
                                    v1::GetRunResponse* response) {
  return guarded("GetRun", *context, *request, [&](const Caller& caller) {
    const auto run = runs_.find(parse_run_name(request->name()));
    run->is_of_holder(caller.run_token());
    *response->mutable_run() = run->view();
  });
}

grpc::Status RunServiceImpl::ListRuns(grpc::ServerContext*, const v1::ListRunsRequest* request,
                                      v1::ListRunsResponse* response) {
  return guarded("ListRuns", *request, [&] {
    const auto position = parse_page_token("runs", request->page_token());
    auto [runs, next] = runs_.list(position, page_size_of(*request, kMostRuns));
    for (v1::Run& run : runs) *response->add_runs() = std::move(run);
    if (next > 0) response->set_next_page_token(make_page_token("runs", next));
  });
}

grpc::Status RunServiceImpl::CloseRun(grpc::ServerContext* context,
                                      const v1::CloseRunRequest* request,
                                      v1::CloseRunResponse* response) {
  return guarded("CloseRun", *context, *request, [&](const Caller& caller) {
    if (request->force()) {
      const std::string id = parse_run_name(request->name());
      runs_.close_by_force(id, caller.name());
      *response->mutable_run() = runs_.find(id)->view();
      return;
    }
    const auto run = own_run(caller, request->name());
    spdlog::info("run {}: its client closes it", run->id());
    run->close();
    *response->mutable_run() = run->view();
  });
}

grpc::ServerUnaryReactor* RunServiceImpl::DeleteRun(grpc::CallbackServerContext* context,
                                                    const v1::DeleteRunRequest* request,
                                                    v1::DeleteRunResponse*) {
  return deletions_.answer("DeleteRun", *context, *request,
                           [=, this](const Caller& caller, const auto&) {
                             runs_.remove(parse_run_name(request->name()), caller.name());
                           });
}

grpc::ServerUnaryReactor* RunServiceImpl::Heartbeat(grpc::CallbackServerContext* context,
                                                    const v1::HeartbeatRequest* request,
                                                    v1::HeartbeatResponse* response) {
  return answer_at_once("Heartbeat", *context, *request, [&](const Caller& caller) {
    *response = own_run(caller, request->name())->heartbeat();
  });
}

grpc::Status RunServiceImpl::ListStates(grpc::ServerContext*, const v1::ListStatesRequest* request,
                                        v1::ListStatesResponse* response) {
  return guarded("ListStates", *request, [&] {
    const auto run = runs_.find(parse_run_name(request->run()));
    const std::string scope = "states of " + run->id();
    const auto position = parse_page_token(scope, request->page_token());
    auto [states, next] = run->states().list(position, page_size_of(*request, kMostStates));
    for (v1::SavedState& state : states) *response->add_states() = std::move(state);
    if (next > 0) response->set_next_page_token(make_page_token(scope, next));
  });
}

grpc::ServerUnaryReactor* RunServiceImpl::DeleteState(grpc::CallbackServerContext* context,
                                                      const v1::DeleteStateRequest* request,
                                                      v1::DeleteStateResponse*) {
  return deletions_.answer("DeleteState", *context, *request,
                           [=, this](const Caller& caller, const auto&) {
                             const StateName name = parse_state_name(request->name());
                             own_run(caller, name.run)->states().remove(request->name());
                           });
}

grpc::Status RunServiceImpl::ForwardBackward(grpc::ServerContext* context,
                                             const v1::ForwardBackwardRequest* request,
                                             v1::ForwardBackwardResponse* response) {
  return submit("ForwardBackward", *context, *request, response);
}

grpc::Status RunServiceImpl::Forward(grpc::ServerContext* context,
                                     const v1::ForwardRequest* request,
                                     v1::ForwardResponse* response) {
  return submit("Forward", *context, *request, response);
}

grpc::Status RunServiceImpl::OptimStep(grpc::ServerContext* context,
                                       const v1::OptimStepRequest* request,
                                       v1::OptimStepResponse* response) {
  return submit("OptimStep", *context, *request, response);
}

grpc::Status RunServiceImpl::SaveState(grpc::ServerContext* context,
                                       const v1::SaveStateRequest* request,
                                       v1::SaveStateResponse* response) {
  return submit("SaveState", *context, *request, response);
}

grpc::Status RunServiceImpl::LoadState(grpc::ServerContext* context,
                                       const v1::LoadStateRequest* request,
                                       v1::LoadStateResponse* response) {
  return submit("LoadState", *context, *request, response);
}

grpc::Status RunServiceImpl::SaveWeights(grpc::ServerContext* context,
                                         const v1::SaveWeightsRequest* request,
                                         v1::SaveWeightsResponse* response) {
  return submit("SaveWeights", *context, *request, response);
}

grpc::ServerUnaryReactor* RunServiceImpl::DeleteWeights(grpc::CallbackServerContext* context,
                                                        const v1::DeleteWeightsRequest* request,
                                                        v1::DeleteWeightsResponse*) {
  return deletions_.answer(
      "DeleteWeights", *context, *request, [=, this](const Caller& caller, const auto&) {
        own_run(caller, parse_weights_name(request->name()).run)->weights().remove(request->name());
      });
}

grpc::Status RunServiceImpl::GetParameters(grpc::ServerContext* context,
                                           const v1::GetParametersRequest* request,
                                           v1::GetParametersResponse* response) {
  return submit("GetParameters", *context, *request, response);
}

grpc::Status RunServiceImpl::SetParameters(grpc::ServerContext* context,
                                           const v1::SetParametersRequest* request,
                                           v1::SetParametersResponse* response) {
  return submit("SetParameters", *context, *request, response);
}

grpc::Status RunServiceImpl::Skip(grpc::ServerContext* context, const v1::SkipRequest* request,
                                  v1::SkipResponse* response) {
  return submit("Skip", *context, *request, response);
}

SampleOrder RunServiceImpl::order_of(const v1::SampleRequest& request, const RunSession& run,
                                     const text::StopCheck& stop) const {
  v1::GenerateRequest asked;
  *asked.mutable_prompts() = request.prompts();
  if (request.has_samples()) asked.set_samples(request.samples());
  *asked.mutable_params() = request.params();
  if (asked.prompts().empty()) base::refuse_field("prompts", "is empty: give one or more");
  const v1::SamplingParams params = checked_params(asked);
  const train::PromptLimits limits = runs_.prompt_limits(run);
  train::check_sample_stop(request.stop(), limits, "stop");
  SampleOrder order;
  order.starts = sequence_starts(asked, params, limits, stop);
  for (train::SampleStart& start : order.starts) {
    start.log_probs = true;
    train::set_ends(request.stop(), limits, &start);
  }
  order.stop_strings.assign(request.stop().strings().begin(), request.stop().strings().end());
  order.samples = request.has_samples() ? request.samples() : 1;
  order.text = limits.is_bytes();
  order.tokenizer = limits.tokenizer;
  if (request.has_weights_step()) order.weights_step = request.weights_step();
  if (!request.weights().empty()) {
    const WeightsName name = parse_weights_name(request.weights());
    if (name.run != run.id())
      base::refuse_field("weights", "{} are of another run than \"{}\"", request.weights(),
                         run.id());
    order.origin.snapshot = name.weights;
  }
  order.prompt_log_probs = request.prompt_logprobs();
  order.exact_log_probs = request.exact_logprobs();
  return order;
}

grpc::ServerUnaryReactor* RunServiceImpl::Sample(grpc::CallbackServerContext* context,
                                                 const v1::SampleRequest* request,
                                                 v1::SampleResponse* response) {
  return samples_.answer("Sample", *context, [=, this](const Caller& caller, const auto& go_on) {
    const auto run = own_run(caller, request->run());
    *response->mutable_operation() = run->sample(request->epoch(), order_of(*request, *run, go_on));
  });
}

void RunServiceImpl::end_calls() {
  for (CallHost* host : {&beginnings_, &samples_, &deletions_}) host->request_stop();
}

void RunServiceImpl::stop() {
  for (CallHost* host : {&beginnings_, &samples_, &deletions_}) host->stop();
}

}  // namespace meshloom::control
