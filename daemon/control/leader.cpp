// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/leader.h"

#include <unistd.h>

#include "daemon/control/host/descriptor_limit.h"
#include "daemon/control/host/host_info.h"
#include "daemon/control/host/leave_soon.h"
#include "daemon/control/host/stop_signal.h"
#include "daemon/control/ranks/rank_loop.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

JobStore::Options store_options(const StateDir& state, const v1::DaemonConfig& config) {
  return {state.journal(), state.root() / "jobs", config.no_resume(),
          config.max_stalled_attempts()};
}

JobStore::Keep kept_jobs(const v1::RetentionConfig& config) {
  return {config.max_ended_jobs(), std::chrono::seconds(config.max_age_seconds())};
}

RankWatch::Limits watch_limits(const v1::DaemonConfig& config) {
  return {std::chrono::milliseconds(config.rank_timeout_ms()),
          std::chrono::milliseconds(config.join_timeout_ms())};
}

ListenAddress checked_listen(const v1::DaemonConfig& config) {
  ListenAddress listen = resolve_listen_address(config.listen(), "--listen");
  if (is_loopback(listen) || config.insecure()) return listen;
  throw InvalidArgument(
      fmt::format(
          "--listen {}: other machines could reach this address, and calls are neither encrypted "
          "nor "
          "authenticated; listen on 127.0.0.1, or add --insecure where the network is closed",
          config.listen()),
      "LISTEN_INSECURE");
}

}  // namespace

Leader::Leader(const DaemonOptions& options, const v1::RankHello& self, int world_size,
               bool several_hosts, std::vector<HostMemory> hosts, comm::AbortFlag& abort,
               comm::TrainingPulse& pulse)
    : options_(options),
      abort_(abort),
      pulse_(pulse),
      own_pulse_(pulse),
      listen_(checked_listen(options.config)),
      state_(options.config.state_dir()),
      store_(store_options(state_, options.config)),
      retention_(store_, kept_jobs(options.config.retention())),
      executor_(world_size, [this](const Error&) { on_fatal(); }),
      watch_(world_size, watch_limits(options.config),
             [this](std::int64_t seq) { return executor_.unanswered(seq); }),
      admission_(
          store_, state_,
          {world_size, self.threads(), options.config.data_dir(),
           std::chrono::milliseconds(options.config.resolve_timeout_ms()), std::move(hosts)}),
      driver_(store_, executor_, state_, options.config.data_dir(), admission_),
      card_{"", "", make_secret(), ""},
      rank_service_(executor_, watch_,
                    {world_size, card_.secret, [this] { on_all_joined(); },
                     [this](const std::string& cause) { request_stop(cause); }}),
      job_service_(store_, admission_),
      generate_service_(SampleSources(store_, scheduler_, sources_, state_, admission_)),
      sources_([this](const auto& folder) { return admission_.load_source(folder); }),
      scheduler_(executor_, options.config.generation_share(), [this] { return driver_.busy(); }),
      checkpoint_service_(store_, state_),
      worker_service_(executor_, rank_service_, watch_,
                      {self, options.version, state_.root().string(),
                       [this](const std::string& cause) { request_stop(cause); }}) {
  executor_.set_epoch(store_.epoch());
  executor_.attach(0, &commands_);
  watch_.joined(0, describe(self));
  // Strangers that connect to the ranks' port must not keep the ranks out.
  const int most_ranks = 32 + 2 * world_size;
  if (world_size > 1) {
    const char* bind = several_hosts ? "0.0.0.0:0" : "127.0.0.1:0";
    rank_server_ = std::make_unique<GrpcServer>(
        GrpcServerOptions{resolve_listen_address(bind, "the ranks' address"),
                          {&rank_service_},
                          most_ranks,
                          false,
                          16 + 2 * world_size,
                          true});
    const std::string host = several_hosts ? host_address(options.host) : "127.0.0.1";
    card_.address = fmt::format("{}:{}", host, rank_server_->port());
    beats_ = std::make_unique<BeatServer>(BeatServer::Options{
        resolve_listen_address(bind, "the address for heartbeats"), card_.secret, world_size,
        [this](int rank, const v1::Heartbeat& beat, BeatServer::Clock::time_point asked) {
          watch_.heard(rank, &beat, asked);
        }});
    card_.beats = fmt::format("{}:{}", host, beats_->port());
  }
  server_ = std::make_unique<GrpcServer>(
      GrpcServerOptions{listen_,
                        {&job_service_, &generate_service_, &checkpoint_service_, &worker_service_},
                        connection_capacity(most_ranks),
                        true});
}

Leader::~Leader() {
  if (stopper_.joinable()) stopper_.join();
}

DaemonEnd Leader::serve(bool launched_by_mpirun, RunFactory& factory) {
  const HostPort listen = parse_host_port(options_.config.listen(), "--listen");
  const std::string address = fmt::format("{}:{}", listen.host, server_->port());
  spdlog::info("meshloomd {} serves on {}, state in {}", options_.version, address,
               state_.root().string());
  state_.publish_address(address);
  if (!rank_server_) on_all_joined();
  const StopSignalListener signals(launched_by_mpirun,
                                   [this](const std::string& cause) { request_stop(cause); });
  std::unique_ptr<Ticker> ticker;
  if (beats_)
    beats_->start([this] { look_at_ranks(); });
  else
    ticker = std::make_unique<Ticker>(kLookPeriod, [this] { look_at_ranks(); });
  LoopEnd end;
  {
    RankWorker worker(0, factory, &sources_);
    end = run_commands(
        commands_, worker, [this](const v1::RankResult& result) { executor_.complete(result); },
        &pulse_);
  }
  driver_.request_stop();
  end_generations();
  driver_.join();
  {
    const std::lock_guard lock(stop_mutex_);
    stop_requested_ = true;  // no stopper is started from here on
  }
  if (stopper_.joinable()) stopper_.join();
  if (end == LoopEnd::kStopped && !all_ranks_leave()) end = LoopEnd::kClosed;
  ticker.reset();
  beats_.reset();
  admission_.stop_calls();
  server_->set_serving(false);
  server_->shutdown();
  if (rank_server_) rank_server_->shutdown();
  generate_service_.stop();
  const bool hanging = admission_.hanging();
  spdlog::info("meshloomd has stopped{}", end == LoopEnd::kStopped ? "" : " after a failure");
  return end == LoopEnd::kStopped ? DaemonEnd{0, true, hanging} : DaemonEnd{1, false, hanging};
}

void Leader::on_all_joined() {
  driver_.start();
  server_->set_serving(true);
  spdlog::info("all ranks have joined");
}

void Leader::request_stop(const std::string& cause) {
  const std::lock_guard lock(stop_mutex_);
  if (stop_requested_) return;
  stop_requested_ = true;
  spdlog::info("stopping: {}", cause);
  leave_after("a stop in good order", std::chrono::milliseconds(options_.config.stop_timeout_ms()));
  admission_.stop_calls();
  driver_.request_stop();
  end_generations();
  stopper_ = std::thread([this] { stop_in_good_order(); });
}

void Leader::stop_in_good_order() {
  driver_.join();
  executor_.stop();
}

void Leader::look_at_ranks() {
  const auto now = AwakeClock::Clock::now();
  const v1::Heartbeat own = own_pulse_.sample(now);
  watch_.heard(0, &own, now);
  const RankWatch::Findings findings = watch_.look(now);
  for (const std::string& news : findings.news) {
    spdlog::warn("{}", news);
    driver_.note(news);
  }
  if (findings.in_trouble != in_trouble_) {
    in_trouble_ = findings.in_trouble;
    server_->set_serving(!in_trouble_ && executor_.all_attached());
  }
  if (findings.fatal) executor_.fail(*findings.fatal);
}

bool Leader::all_ranks_leave() {
  while (!watch_.others_left() && !executor_.fatal())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return !executor_.fatal();
}

void Leader::end_generations() {
  scheduler_.stop();
  admission_.stop_loads();
  sources_.stop();
}

void Leader::on_fatal() {
  abort_.raised = true;
  commands_.close();
  leave_soon("rank 0");
}

}  // namespace meshloom::control
