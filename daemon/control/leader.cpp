// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/leader.h"

#include "daemon/control/daemon_options.h"
#include "daemon/control/host/descriptor_limit.h"
#include "daemon/control/host/host_info.h"
#include "daemon/control/host/leave_soon.h"
#include "daemon/control/host/stop_signal.h"
#include "daemon/control/jobs/sample_sources.h"
#include "daemon/control/services/access_service.h"
#include "daemon/control/services/capabilities.h"
#include "daemon/control/services/checkpoint_service.h"
#include "daemon/control/services/data_service.h"
#include "daemon/control/services/evaluate_service.h"
#include "daemon/control/services/event_service.h"
#include "daemon/control/services/flight_dump.h"
#include "daemon/control/services/generate_service.h"
#include "daemon/control/services/job_service.h"
#include "daemon/control/services/model_service.h"
#include "daemon/control/services/operation_service.h"
#include "daemon/control/services/plan_service.h"
#include "daemon/control/services/run_service.h"
#include "daemon/control/services/token_service.h"
#include "daemon/control/services/upload_service.h"
#include "daemon/control/services/worker_service.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Whether ranks may be on other hosts than rank 0's: there are some, or MPI's interface was named.
bool use_network(const DaemonOptions& options, const Leader::World& world) {
  const std::string& interface = options.config.mpi_interface();
  return world.hosts.memory.size() > 1 || (!interface.empty() && interface != "none");
}

RankHub::Options hub_options(const DaemonOptions& options, const Leader::World& world,
                             const StateDir& state) {
  RankAddress address;  // of one host: none
  if (use_network(options, world))
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
      stores_(options.config),
      access_(options.config, listen_),
      flight_file_(flight_file(stores_.state.root(), world.self.rank())),
      ranks_(hub_options(options, world, stores_.state), abort, pulse, *this),
      admission_(stores_.jobs, stores_.state,
                 resources_of(options.config, world, stores_.models, stores_.plans)),
      driver_(stores_.jobs, ranks_.executor(), turn_, stores_.state, options.config.data_dir(),
              admission_.resolver(), admission_.folders(), admission_.tokenization(),
              world.hosts.devices),
      sources_(admission_.sources()),
      scheduler_(ranks_.executor(), options.config.generation_share(), driver_),
      queue_(turn_, stores_.jobs, runs_, stores_.drain),
      runs_({.executor = ranks_.executor(),
             .turn = turn_,
             .store = stores_.runs,
             .scheduler = scheduler_,
             .resolver = admission_.resolver(),
             .folders = admission_.folders(),
             .tokenization = admission_.tokenization(),
             .budget = admission_.budget(),
             .state = stores_.state,
             .data_dir = options.config.data_dir(),
             .uploads = stores_.uploads.transients(),
             .waits = queue_,
             .clock = stores_.uploads,
             .uses = stores_.uses,
             .limits = Limits(options.config.limits())}),
      drain_(stores_.drain, turn_, stores_.jobs, runs_),
      hook_(stores_.events,
            {.command = options.config.on_event(), .spool = stores_.state.root() / "hooks.json"}),
      usage_({.jobs = stores_.jobs,
              .runs = runs_,
              .transients = stores_.uploads.transients(),
              .state = stores_.state,
              .data_dir = options.config.data_dir(),
              .limits = Limits(options.config.limits())}),
      owners_({.jobs = stores_.jobs,
               .runs = runs_,
               .uploads = stores_.uploads,
               .models = &stores_.models,
               .plans = &stores_.plans}),
      door_({.owners = &owners_, .audit = &stores_.audit, .usage = &usage_}) {
  ranks_.executor().set_epoch(stores_.ledger->newest_epoch());
  if (use_network(options, world))
    access_.add_note(fmt::format(
        "commands, files and heartbeats are encrypted between the ranks, and what MPI sends, with "
        "the port of mpirun, is in the clear: the network{} has to be closed",
        options.config.mpi_interface().empty() ? "" : " of " + options.config.mpi_interface()));
  add_services(world);
  door_.open(listen_, access_, connection_capacity(RankHub::most_connections(world.size)));
}

void Leader::add_services(const World& world) {
  const std::string& data_dir = options_.config.data_dir();
  const SampleSources sample_sources(stores_.jobs, scheduler_, sources_, stores_.state,
                                     admission_.folders(), admission_.tokenization(),
                                     admission_.budget());
  // What clients call: stopped last, when the door is closed.
  offer<TokenServiceImpl>(access_.tokens());
  offer<PlanServiceImpl>(stores_.plans, admission_.folders(), admission_.resources(),
                         *stores_.uses);
  offer<ModelServiceImpl>(stores_.models, *stores_.uses);
  const RunHolders& run_holders = offer<RunServiceImpl>(runs_);
  offer<UploadServiceImpl>(
      stores_.uploads, run_holders,
      UploadServiceImpl::Options{.silence = seconds(options_.config.uploads().message_seconds())});
  offer<JobServiceImpl>(stores_.jobs, admission_.resolver(), stores_.state,
                        JobServiceImpl::default_watches(), &queue_);
  offer<EventServiceImpl>(stores_.events);
  offer<DataServiceImpl>(
      admission_.folders(), admission_.tokenization(), stores_.uploads,
      DataServiceImpl::Options{.data_dir = data_dir,
                               .state_dir = stores_.state.root(),
                               .threads = admission_.resources().threads_of_host()});
  offer<EvaluateServiceImpl>(EvaluationServices{.store = stores_.jobs,
                                                .state = stores_.state,
                                                .sources = sample_sources,
                                                .resolver = admission_.resolver(),
                                                .folders = admission_.folders(),
                                                .tokenization = admission_.tokenization(),
                                                .budget = admission_.budget(),
                                                .executor = ranks_.executor(),
                                                .turn = turn_,
                                                .queue = queue_,
                                                .data_dir = data_dir});
  offer<CheckpointServiceImpl>(stores_.jobs, runs_, stores_.state);
  offer<WorkerServiceImpl>(
      ranks_.executor(), ranks_.service(), ranks_.watch(), drain_,
      WorkerServiceImpl::Options{
          .self = world.self,
          .version = options_.version,
          .state_dir = stores_.state.root().string(),
          .stops = *this,
          .flight = world.flight,
          .capabilities = describe_capabilities(options_.version, options_.config, world.size,
                                                world.self.threads(), world.hosts.devices),
          .ledger = *stores_.ledger,
          .lost = LostFolder(stores_.state.root()).list(),
          .queue = queue_,
          .access_notes = [this] { return access_.notes(); }});
  offer<OperationServiceImpl>(runs_);
  offer<AccessServiceImpl>(AccessServiceImpl::World{.jobs = stores_.jobs,
                                                    .runs = runs_,
                                                    .models = stores_.models,
                                                    .plans = stores_.plans,
                                                    .usage = usage_,
                                                    .audit = stores_.audit});
  offer<GenerateServiceImpl>(sample_sources);
  // Stopped behind what jobs come to on the way.
  services_.add(hook_);
  services_.add(ranks_);
  services_.add(door_);
  // What the ranks work for: it lets go of them before the door is closed.
  services_.add(admission_);
  services_.add(sources_);
  services_.add(scheduler_);
  services_.add(driver_);
  services_.add(runs_);
}

Leader::~Leader() {
  ranks_.stop_watching();
  services_.request_stop();
  services_.stop();
  if (stopper_.joinable()) stopper_.join();
}

void Leader::publish_address() {
  const std::string socket = access_.socket_address();
  std::string address = socket;
  if (!is_nowhere(listen_))
    address = fmt::format("{}:{}", parse_host_port(listen_.text, "--listen").host, door_.port());
  spdlog::info("meshloomd {} serves on {}{}, state in {}", options_.version, address,
               access_.tls() ? " over TLS" : "", stores_.state.root().string());
  // Who finds the state dir may use the socket, for which no certificate is needed.
  stores_.state.publish_address(access_.tls() && !socket.empty() ? socket : address);
}

DaemonEnd Leader::serve(RunFactory& factory) {
  publish_address();
  const StopSignalListener signals(*this);
  ranks_.start_watching();
  LoopEnd end = ranks_.run(factory, sources_);
  services_.request_stop();
  services_.stop_through(driver_);
  {
    const std::lock_guard lock(stop_mutex_);
    stop_requested_ = true;  // no stopper is started from here on
  }
  if (stopper_.joinable()) stopper_.join();
  if (end == LoopEnd::kStopped && !ranks_.others_leave()) end = LoopEnd::kClosed;
  ranks_.stop_watching();
  services_.stop();
  const bool hanging = admission_.hanging() || stores_.models.hanging() || stores_.jobs.hanging();
  spdlog::info("meshloomd has stopped{}", end == LoopEnd::kStopped ? "" : " after a failure");
  return end == LoopEnd::kStopped ? DaemonEnd{0, true, hanging} : DaemonEnd{1, false, hanging};
}

void Leader::all_ranks_joined() {
  for (const v1::RankHello& hello : ranks_.service().hellos())
    if (hello.other_disk())
      spdlog::info(
          "{} does not see the state folder {}: rank 0 serves it files and takes its shards",
          describe(hello), stores_.state.root().string());
  services_.start();
  door_.set_serving(true);
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
  services_.request_stop();
  // The running job saves and lets go, then the ranks stop.
  stopper_ = std::thread([this] {
    services_.stop_through(driver_);
    ranks_.executor().stop();
  });
}

void Leader::ranks_looked_at(const RankWatch::Findings& findings) {
  for (const std::string& news : findings.news) {
    spdlog::warn("{}", news);
    driver_.note(news);
  }
  if (findings.in_trouble == in_trouble_) return;
  in_trouble_ = findings.in_trouble;
  door_.set_serving(!in_trouble_ && ranks_.executor().all_attached());
}

}  // namespace meshloom::control
