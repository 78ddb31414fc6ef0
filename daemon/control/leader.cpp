// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/leader.h"

#include <cstdlib>

#include "daemon/control/daemon_options.h"
#include "daemon/control/host/descriptor_limit.h"
#include "daemon/control/host/host_info.h"
#include "daemon/control/host/leave_soon.h"
#include "daemon/control/host/stop_signal.h"
#include "daemon/control/services/capabilities.h"
#include "daemon/control/services/flight_dump.h"
#include "daemon/control/stores/state_contents.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

StateDir::LockOptions lock_options(const v1::DaemonConfig& config) {
  StateDir::LockOptions options;
  options.taken = [state_dir = config.state_dir()](const std::string& who) {
    spdlog::critical(
        "state dir {}: another meshloomd ({}) has begun on it, since this one was stopped for so "
        "long: this one ends at once and writes nothing more",
        state_dir, who);
    std::_Exit(1);
  };
  return options;
}

JobStore::Options store_options(const StateDir& state, const v1::DaemonConfig& config,
                                std::shared_ptr<const Uses> uses) {
  return {.jobs_dir = state.jobs(),
          .data_dir = config.data_dir(),
          .follow_timeout = milliseconds(config.resolve_timeout_ms()),
          .uses = std::move(uses),
          .hold_unfinished = config.no_resume(),
          .most_stalled_attempts = config.max_stalled_attempts()};
}

ModelStore::Options model_options(const StateDir& state, const v1::DaemonConfig& config,
                                  std::shared_ptr<const Uses> uses) {
  return {.folder = state.root() / "models",
          .data_dir = config.data_dir(),
          .resolve_timeout = milliseconds(config.resolve_timeout_ms()),
          .uses = std::move(uses)};
}

void look_after(UploadStore& uploads) {
  try {
    uploads.upkeep();
  } catch (const std::exception& error) {
    spdlog::warn("uploads are not looked after: {}", error.what());
  }
}

JobStore::Keep kept_jobs(const v1::RetentionConfig& config) {
  return {.most_ended = config.max_ended_jobs(), .longest = seconds(config.max_age_seconds())};
}

RankHub::Options hub_options(const DaemonOptions& options, const Leader::World& world,
                             const StateDir& state) {
  RankAddress address{"127.0.0.1", "127.0.0.1"};
  if (world.hosts.memory.size() > 1)
    address = rank_address(options.host, options.config.mpi_interface(), interface_addresses());
  return {.self = world.self,
          .world_size = world.size,
          .host = address.told,
          .listen_host = address.listen,
          .limits = {milliseconds(options.config.rank_timeout_ms()),
                     milliseconds(options.config.join_timeout_ms())},
          .probe = write_probe(state.root())};
}

LocalResources resources_of(const v1::DaemonConfig& config, const Leader::World& world,
                            ModelStore& models, PlanStore& plans) {
  return {.world_size = world.size,
          .threads = world.self.threads(),
          .data_dir = config.data_dir(),
          .resolve_timeout = milliseconds(config.resolve_timeout_ms()),
          .hosts = world.hosts.memory,
          .devices = world.hosts.devices,
          .models = &models,
          .plans = &plans,
          .token_cache_bytes = config.token_cache_bytes()};
}

}  // namespace

Leader::Leader(const DaemonOptions& options, const World& world, comm::AbortFlag& abort,
               comm::TrainingPulse& pulse)
    : options_(options),
      flight_(world.flight),
      listen_(checked_listen(options.config)),
      state_(options.config.state_dir(), lock_options(options.config)),
      flight_file_(flight_file(state_.root(), world.self.rank())),
      uploads_({state_.root() / "blobs", options.config.uploads()}),
      uses_(std::make_shared<const Uses>(Uses::Configs{
          .jobs = [this](const ConfigTest& test) { return store_.user_by_config(test); },
          .runs = [this](const ConfigTest& test) { return run_store_.user_by_config(test); },
          .models = [this](const ConfigTest& test) { return models_.user_by_config(test); }})),
      models_(model_options(state_, options.config, uses_), uploads_),
      plans_(uses_),
      store_(store_options(state_, options.config, uses_)),
      ledger_(open_ledger(state_.journal(),
                          {&store_, &uploads_, &models_, &run_store_, &plans_, &drain_store_})),
      upkeep_(seconds(1), [this] { look_after(uploads_); }),
      retention_(store_, kept_jobs(options.config.retention())),
      ranks_(hub_options(options, world, state_), abort, pulse, *this),
      admission_(store_, state_, resources_of(options.config, world, models_, plans_)),
      driver_(store_, ranks_.executor(), turn_, state_, options.config.data_dir(),
              admission_.resolver(), admission_.folders(), admission_.tokenization(),
              world.hosts.devices),
      job_service_(store_, admission_.resolver(), state_, JobServiceImpl::default_watches(),
                   [this](v1::Job* job) { queue_.tell(job); }),
      generate_service_(sample_sources()),
      sources_(admission_.sources()),
      scheduler_(ranks_.executor(), options.config.generation_share(),
                 [this] { return driver_.busy(); }),
      queue_(turn_, store_, runs_, drain_store_),
      runs_({.executor = ranks_.executor(),
             .turn = turn_,
             .store = run_store_,
             .scheduler = scheduler_,
             .resolver = admission_.resolver(),
             .folders = admission_.folders(),
             .tokenization = admission_.tokenization(),
             .budget = admission_.budget(),
             .state = state_,
             .data_dir = options.config.data_dir(),
             .uploads = uploads_.transients(),
             .waits = queue_,
             .uptime = [this] { return uploads_.uptime(); },
             .uses = uses_}),
      drain_(drain_store_, turn_, store_, runs_),
      run_service_(runs_),
      operation_service_(runs_),
      checkpoint_service_(store_, runs_, state_),
      evaluate_service_({.store = store_,
                         .state = state_,
                         .sources = sample_sources(),
                         .resolver = admission_.resolver(),
                         .folders = admission_.folders(),
                         .tokenization = admission_.tokenization(),
                         .budget = admission_.budget(),
                         .executor = ranks_.executor(),
                         .turn = turn_,
                         .queue = queue_,
                         .data_dir = options.config.data_dir()}),
      data_service_(
          admission_.folders(), admission_.tokenization(), uploads_,
          {.data_dir = options.config.data_dir(),
           .state_dir = state_.root(),
           .threads = world.self.threads() * std::max(1, world.hosts.memory.front().ranks)}),
      worker_service_(ranks_.executor(), ranks_.service(), ranks_.watch(), drain_,
                      {world.self, options.version, state_.root().string(),
                       [this](const std::string& cause) { request_stop(cause); }, world.flight,
                       describe_capabilities(options.version, options.config, world.size,
                                             world.self.threads(), world.hosts.devices),
                       [this] { return ledger_->troubles(); }, LostFolder(state_.root()).list(),
                       [this] { return queue_.whole(); }}),
      upload_service_(uploads_,
                      {.silence = seconds(options.config.uploads().message_seconds()),
                       .own_run =
                           [this](const grpc::ServerContextBase& context, const std::string& run) {
                             return run_service_.own_open_run(context, run);
                           },
                       .hold_lease =
                           [this](const grpc::ServerContextBase& context, const std::string& run) {
                             return run_service_.hold_lease(context, run);
                           }}),
      model_service_(models_, *uses_),
      plan_service_(plans_, admission_.folders(), admission_.resources(), *uses_) {
  ranks_.executor().set_epoch(ledger_->newest_epoch());
  server_ = std::make_unique<GrpcServer>(
      GrpcServerOptions{listen_,
                        {&job_service_, &run_service_, &operation_service_, &generate_service_,
                         &checkpoint_service_, &evaluate_service_, &data_service_, &worker_service_,
                         &upload_service_, &model_service_, &plan_service_},
                        connection_capacity(RankHub::most_connections(world.size)),
                        true});
}

SampleSources Leader::sample_sources() {
  return {store_,
          scheduler_,
          sources_,
          state_,
          admission_.folders(),
          admission_.tokenization(),
          admission_.budget()};
}

Leader::~Leader() {
  ranks_.stop_watching();
  ranks_.shutdown();
  if (stopper_.joinable()) stopper_.join();
}

DaemonEnd Leader::serve(RunFactory& factory) {
  const HostPort listen = parse_host_port(options_.config.listen(), "--listen");
  const std::string address = fmt::format("{}:{}", listen.host, server_->port());
  spdlog::info("meshloomd {} serves on {}, state in {}", options_.version, address,
               state_.root().string());
  state_.publish_address(address);
  const StopSignalListener signals([this](const std::string& cause) { request_stop(cause); });
  ranks_.start();
  LoopEnd end = ranks_.run(factory, sources_);
  driver_.request_stop();
  runs_.request_stop();
  end_generations();
  driver_.join();
  runs_.join();
  {
    const std::lock_guard lock(stop_mutex_);
    stop_requested_ = true;  // no stopper is started from here on
  }
  if (stopper_.joinable()) stopper_.join();
  if (end == LoopEnd::kStopped && !ranks_.others_leave()) end = LoopEnd::kClosed;
  ranks_.stop_watching();
  admission_.stop_calls();
  models_.stop_calls();
  server_->set_serving(false);
  job_service_.request_stop();
  run_service_.request_stop();
  checkpoint_service_.request_stop();
  upload_service_.request_stop();
  model_service_.request_stop();
  server_->shutdown();
  ranks_.shutdown();
  generate_service_.stop();
  operation_service_.stop();
  checkpoint_service_.stop();
  evaluate_service_.stop();
  data_service_.stop();
  job_service_.stop();
  run_service_.stop();
  upload_service_.stop();
  model_service_.stop();
  plan_service_.stop();
  const bool hanging = admission_.hanging() || models_.hanging() || store_.hanging();
  spdlog::info("meshloomd has stopped{}", end == LoopEnd::kStopped ? "" : " after a failure");
  return end == LoopEnd::kStopped ? DaemonEnd{0, true, hanging} : DaemonEnd{1, false, hanging};
}

void Leader::all_ranks_joined() {
  for (const v1::RankHello& hello : ranks_.service().hellos())
    if (hello.other_disk())
      spdlog::info(
          "{} does not see the state folder {}: rank 0 serves it files and takes its shards",
          describe(hello), state_.root().string());
  driver_.start();
  runs_.start();
  server_->set_serving(true);
  spdlog::info("all ranks have joined");
}

void Leader::ranks_lost(const Error& cause) {
  write_flight_file(*flight_, flight_file_, cause.what());
}

void Leader::request_stop(const std::string& cause) {
  const std::lock_guard lock(stop_mutex_);
  if (stop_requested_) return;
  stop_requested_ = true;
  spdlog::info("stopping: {}", cause);
  leave_after("a stop in good order", milliseconds(options_.config.stop_timeout_ms()));
  admission_.stop_calls();
  driver_.request_stop();
  runs_.request_stop();
  end_generations();
  // The running job saves and lets go, then the ranks stop.
  stopper_ = std::thread([this] {
    driver_.join();
    runs_.join();
    ranks_.executor().stop();
  });
}

void Leader::end_generations() {
  scheduler_.stop();
  admission_.sources().stop();
  sources_.stop();
  checkpoint_service_.stop_exports();
  evaluate_service_.request_stop();
  data_service_.request_stop();
  plan_service_.request_stop();
}

void Leader::ranks_looked_at(const RankWatch::Findings& findings) {
  for (const std::string& news : findings.news) {
    spdlog::warn("{}", news);
    driver_.note(news);
  }
  if (findings.in_trouble == in_trouble_) return;
  in_trouble_ = findings.in_trouble;
  server_->set_serving(!in_trouble_ && ranks_.executor().all_attached());
}

}  // namespace meshloom::control
