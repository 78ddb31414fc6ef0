// SPDX-License-Identifier: Apache-2.0
// All that clients call, on real stores and by a real door, with ranks that do nothing: jobs and
// runs wait.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/access/token_store.h"
#include "daemon/control/jobs/local_admission.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/runs/drain.h"
#include "daemon/control/runs/ranks_queue.h"
#include "daemon/control/services/access_service.h"
#include "daemon/control/services/checkpoint_service.h"
#include "daemon/control/services/data_service.h"
#include "daemon/control/services/evaluate_service.h"
#include "daemon/control/services/event_service.h"
#include "daemon/control/services/generate_service.h"
#include "daemon/control/services/job_service.h"
#include "daemon/control/services/model_service.h"
#include "daemon/control/services/operation_service.h"
#include "daemon/control/services/plan_service.h"
#include "daemon/control/services/run_service.h"
#include "daemon/control/services/store_owners.h"
#include "daemon/control/services/token_service.h"
#include "daemon/control/services/upload_service.h"
#include "daemon/control/services/worker_service.h"
#include "daemon/control/stores/event_log.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/fake_admission.h"
#include "tests/unit/control/fake_run.h"
#include "tests/unit/control/given_identity.h"
#include "tests/unit/control/open_job_store.h"
#include "tests/unit/control/raw_call.h"

namespace meshloom::control {

class WholeDaemon final : private Executor::Observer, private RankServiceImpl::Observer {
 public:
  /// `journal`: of an earlier daemon; empty: the state dir is new.
  explicit WholeDaemon(const v1::LimitConfig& limits = {},
                       const std::filesystem::path& journal = {})
      : limits_(limits), state_(with_journal(folder_ / "state", journal)) {
    std::filesystem::create_directories(data_);
    add(jobs_service_);
    add(run_service_);
    add(operation_service_);
    add(generate_service_);
    add(evaluate_service_);
    add(data_service_);
    add(checkpoint_service_);
    add(upload_service_);
    add(model_service_);
    add(plan_service_);
    add(worker_service_);
    add(access_service_);
    add(token_service_);
    add(event_service_);
    server_ = std::make_unique<GrpcServer>(
        GrpcServerOptions{.listen = resolve_listen_address("127.0.0.1:0", "listen"),
                          .services = grpc_services_,
                          .most_connections = 64,
                          .health = true});
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                   grpc::InsecureChannelCredentials());
  }
  ~WholeDaemon() override {
    runs_.request_stop();
    evaluate_service_.request_stop();
    scheduler_.request_stop();
    sources_.request_stop();
    for (ClientService* service : services_) service->end_calls();
    server_->shutdown();
    data_service_.request_stop();
    data_service_.stop();
    jobs_service_.stop();
    run_service_.stop();
    operation_service_.stop();
    generate_service_.stop();
    evaluate_service_.stop();
    checkpoint_service_.stop();
    upload_service_.stop();
    model_service_.stop();
    plan_service_.stop();
    access_service_.stop();
    event_service_.stop();
    runs_.stop();
    executor_.stop();
  }

  RawAnswer call(const Identity& who, const std::string& method,
                 const google::protobuf::Message& request, const std::string& client = "") const {
    grpc::ClientContext context;
    give_identity(who, &context);
    if (!client.empty()) context.AddMetadata(kClientKey, client);
    return raw_call(channel_, method, request, &context);
  }
  /// Of a service by its name; the first answer is in `response`.
  template <typename Response, typename Request>
  grpc::Status ask(const Identity& who, const std::string& service, const Request& request,
                   Response* response) const {
    std::string method = Request::descriptor()->name();
    method.resize(method.size() - std::string("Request").size());
    const RawAnswer answer = call(who, "/meshloom.v1." + service + "/" + method, request);
    if (!answer.messages.empty()) response->ParseFromString(answer.messages.front());
    return answer.status;
  }

  const std::filesystem::path& data() const { return data_; }
  const Gate& gate() const { return gate_; }
  OpenJobStore& jobs() { return jobs_; }
  RunManager& runs() { return runs_; }
  UploadStore& uploads() { return uploads_; }
  AuditLog& audit() { return audit_; }
  const StateDir& state() const { return state_; }
  bool stop_asked() const { return stop_asked_; }

 private:
  struct NoTraining final : Training {
    bool busy() const override { return false; }
  };

  static std::filesystem::path with_journal(const std::filesystem::path& state,
                                            const std::filesystem::path& journal) {
    if (journal.empty()) return state;
    std::filesystem::create_directories(state);
    std::filesystem::copy_file(journal, state / "journal");
    return state;
  }

  template <typename Service>
  void add(Service& service) {
    service.set_gate(gate_);
    grpc_services_.push_back(&service);
    services_.push_back(&service);
  }

  void ranks_failed(const Error&) override {}
  void all_ranks_joined() override {}
  void request_stop(const std::string&) override { stop_asked_ = true; }

  Gate::Options gate_options() {
    return {.owners = &owners_, .audit = &audit_, .usage = &usage_, .identify = given_identity};
  }

  const Limits limits_;
  test::TempFolder folder_;
  const std::filesystem::path data_ = folder_ / "data";
  FakePlan plan_;
  StateDir state_;
  UploadStore uploads_{{state_.root() / "blobs", with_upload_defaults({}), limits_}};
  std::shared_ptr<const Uses> uses_ = std::make_shared<const Uses>(
      Uses::Configs{.jobs = [this](const ConfigTest& test) { return jobs_.user_by_config(test); }});
  ModelStore models_{{.folder = state_.root() / "models", .data_dir = data_, .uses = uses_},
                     uploads_};
  RunStore run_store_;
  PlanStore plans_{uses_};
  DrainStore drain_store_;
  OpenJobStore jobs_{
      state_.journal(),
      {.jobs_dir = state_.jobs(), .data_dir = data_, .uses = uses_, .limits = limits_},
      {&uploads_, &models_, &run_store_, &plans_, &drain_store_}};
  AuditLog audit_{state_.root() / "logs" / "audit.jsonl", AuditLog::kLeastBytes};
  Executor executor_{1, *this};
  FakeAdmission admission_{plan_, data_};
  LocalAdmission local_{jobs_, state_,
                        LocalResources{.world_size = 1,
                                       .data_dir = data_,
                                       .hosts = {{"here", 1, {std::int64_t{1} << 32, "a limit"}}},
                                       .models = &models_,
                                       .plans = &plans_}};
  RanksTurn turn_;
  FakeSourceLoader loader_{plan_};
  SourceCache sources_{loader_};
  NoTraining training_;
  SampleScheduler scheduler_{executor_, 1.0 / 3.0, training_};
  RanksQueue queue_{turn_, jobs_, runs_, drain_store_};
  RunManager runs_{{.executor = executor_,
                    .turn = turn_,
                    .store = run_store_,
                    .scheduler = scheduler_,
                    .resolver = admission_,
                    .folders = admission_,
                    .tokenization = admission_,
                    .budget = admission_,
                    .state = state_,
                    .data_dir = data_,
                    .uploads = uploads_.transients(),
                    .waits = queue_,
                    .clock = uploads_,
                    .uses = uses_,
                    .limits = limits_}};
  Drain drain_{drain_store_, turn_, jobs_, runs_};
  RankWatch watch_{1, {}, nullptr};
  RankServiceImpl ranks_{executor_, watch_, {.observer = *this}};
  Usage usage_{{.jobs = jobs_,
                .runs = runs_,
                .transients = uploads_.transients(),
                .state = state_,
                .data_dir = data_.string(),
                .limits = limits_}};
  StoreOwners owners_{
      {.jobs = jobs_, .runs = runs_, .uploads = uploads_, .models = &models_, .plans = &plans_}};
  Gate gate_{gate_options()};
  SampleSources sample_sources_{jobs_,      scheduler_, sources_,  state_,
                                admission_, admission_, admission_};
  JobServiceImpl jobs_service_{jobs_, admission_, state_, JobServiceImpl::default_watches(),
                               &queue_};
  RunServiceImpl run_service_{runs_};
  OperationServiceImpl operation_service_{runs_};
  GenerateServiceImpl generate_service_{sample_sources_};
  EvaluateServiceImpl evaluate_service_{EvaluationServices{.store = jobs_,
                                                           .state = state_,
                                                           .sources = sample_sources_,
                                                           .resolver = admission_,
                                                           .folders = admission_,
                                                           .tokenization = admission_,
                                                           .budget = admission_,
                                                           .executor = executor_,
                                                           .turn = turn_,
                                                           .queue = queue_,
                                                           .data_dir = data_}};
  DataServiceImpl data_service_{
      admission_, admission_, uploads_,
      DataServiceImpl::Options{.data_dir = data_, .state_dir = state_.root()}};
  CheckpointServiceImpl checkpoint_service_{jobs_, runs_, state_};
  UploadServiceImpl upload_service_{uploads_, run_service_, {}};
  ModelServiceImpl model_service_{models_, *uses_};
  PlanServiceImpl plan_service_{plans_, local_.folders(), local_.resources(), *uses_};
  std::atomic<bool> stop_asked_ = false;
  WorkerServiceImpl worker_service_{executor_,
                                    ranks_,
                                    watch_,
                                    drain_,
                                    {.self = {},
                                     .version = "test",
                                     .state_dir = state_.root().string(),
                                     .stops = *this,
                                     .flight = nullptr,
                                     .capabilities = {},
                                     .ledger = jobs_.ledger(),
                                     .lost = {},
                                     .queue = queue_,
                                     .access_notes = nullptr}};
  AccessServiceImpl access_service_{{.jobs = jobs_,
                                     .runs = runs_,
                                     .models = models_,
                                     .plans = plans_,
                                     .usage = usage_,
                                     .audit = audit_}};
  TokenStore tokens_{folder_ / "tokens"};
  TokenServiceImpl token_service_{tokens_};
  EventLog events_{folder_ / "events.jsonl"};
  EventServiceImpl event_service_{events_};
  std::vector<grpc::Service*> grpc_services_;
  std::vector<ClientService*> services_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace meshloom::control
