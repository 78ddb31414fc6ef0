// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/run_service.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/control/net/status.h"
#include "daemon/control/services/generate_request.h"
#include "daemon/control/services/job_view.h"
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

std::shared_ptr<UnaryCall> RunServiceImpl::create_run(const Caller& caller,
                                                      const v1::CreateRunRequest& request,
                                                      v1::CreateRunResponse* response) {
  return beginnings_.call(
      "CreateRun", caller, request, [caller, &request, response, this](const CallHost::GoOn&) {
        RunManager::Created created = runs_.create(
            request.spec(), request_key_of("CreateRun", request, caller), caller.name());
        *response->mutable_run() = std::move(created.run);
        response->set_token(created.token);
        for (std::string& warning : created.warnings) response->add_warnings(std::move(warning));
      });
}

v1::GetRunResponse RunServiceImpl::get_run(const Caller& caller, const v1::GetRunRequest& request) {
  v1::GetRunResponse response;
  const auto run = runs_.find(parse_run_name(request.name()));
  run->is_of_holder(caller.run_token());
  *response.mutable_run() = run->view();
  hide_shares(caller.identity(), response.mutable_run());
  return response;
}

v1::ListRunsResponse RunServiceImpl::list_runs(const Caller& caller,
                                               const v1::ListRunsRequest& request) {
  v1::ListRunsResponse response;
  const auto position = parse_page_token("runs", request.page_token());
  auto [runs, next] = runs_.list(position, page_size_of(request, kMostRuns),
                                 shown_to(caller.identity(), request.all(), false));
  for (v1::Run& run : runs) {
    hide_shares(caller.identity(), &run);
    *response.add_runs() = std::move(run);
  }
  if (next > 0) response.set_next_page_token(make_page_token("runs", next));
  return response;
}

v1::CloseRunResponse RunServiceImpl::close_run(const Caller& caller,
                                               const v1::CloseRunRequest& request) {
  v1::CloseRunResponse response;
  if (request.force()) {
    const std::string id = parse_run_name(request.name());
    runs_.close_by_force(id, caller.name(), caller.identity());
    *response.mutable_run() = runs_.find(id)->view();
    return response;
  }
  const auto run = own_run(caller, request.name());
  spdlog::info("run {}: its client closes it", run->id());
  run->close();
  *response.mutable_run() = run->view();
  return response;
}

std::shared_ptr<UnaryCall> RunServiceImpl::delete_run(const Caller& caller,
                                                      const v1::DeleteRunRequest& request) {
  return deletions_.call(
      "DeleteRun", caller, request, [caller, &request, this](const CallHost::GoOn&) {
        runs_.remove(parse_run_name(request.name()), caller.name(), caller.identity());
      });
}

v1::HeartbeatResponse RunServiceImpl::heartbeat(const Caller& caller,
                                                const v1::HeartbeatRequest& request) {
  return own_run(caller, request.name())->heartbeat();
}

v1::ListStatesResponse RunServiceImpl::list_states(const v1::ListStatesRequest& request) {
  v1::ListStatesResponse response;
  const auto run = runs_.find(parse_run_name(request.run()));
  const std::string scope = "states of " + run->id();
  const auto position = parse_page_token(scope, request.page_token());
  auto [states, next] = run->states().list(position, page_size_of(request, kMostStates));
  for (v1::SavedState& state : states) *response.add_states() = std::move(state);
  if (next > 0) response.set_next_page_token(make_page_token(scope, next));
  return response;
}

std::shared_ptr<UnaryCall> RunServiceImpl::delete_state(const Caller& caller,
                                                        const v1::DeleteStateRequest& request) {
  return deletions_.call("DeleteState", caller, request,
                         [caller, &request, this](const CallHost::GoOn&) {
                           const StateName name = parse_state_name(request.name());
                           own_run(caller, name.run)->states().remove(request.name());
                         });
}

std::shared_ptr<UnaryCall> RunServiceImpl::delete_weights(const Caller& caller,
                                                          const v1::DeleteWeightsRequest& request) {
  return deletions_.call(
      "DeleteWeights", caller, request, [caller, &request, this](const CallHost::GoOn&) {
        own_run(caller, parse_weights_name(request.name()).run)->weights().remove(request.name());
      });
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

std::shared_ptr<UnaryCall> RunServiceImpl::sample(const Caller& caller,
                                                  const v1::SampleRequest& request,
                                                  v1::SampleResponse* response) {
  return samples_.call("Sample", caller,
                       [caller, &request, response, this](const CallHost::GoOn& go_on) {
                         const auto run = own_run(caller, request.run());
                         *response->mutable_operation() =
                             run->sample(request.epoch(), order_of(request, *run, go_on));
                       });
}

void RunServiceImpl::end_calls() {
  for (CallHost* host : {&beginnings_, &samples_, &deletions_}) host->request_stop();
}

void RunServiceImpl::stop() {
  for (CallHost* host : {&beginnings_, &samples_, &deletions_}) host->stop();
}

}  // namespace meshloom::control
