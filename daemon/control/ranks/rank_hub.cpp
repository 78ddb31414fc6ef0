// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/rank_hub.h"

#include <thread>

#include "daemon/control/host/leave_soon.h"
#include "daemon/control/net/secret.h"
#include "daemon/control/net/unix_listener.h"
#include "daemon/control/ranks/rank_channel.h"

namespace meshloom::control {

RankHub::RankHub(Options options, comm::AbortFlag& abort, comm::TrainingPulse& pulse,
                 Observer& observer)
    : options_(std::move(options)),
      abort_(abort),
      pulse_(pulse),
      observer_(observer),
      own_pulse_(pulse),
      executor_(options_.world_size, *this),
      watch_(options_.world_size, options_.limits, &executor_),
      card_{"",
            "",
            random_secret(),
            "",
            options_.probe,
            options_.host.empty() || options_.world_size == 1 ? LaunchKey{} : make_launch_key()},
      service_(executor_, watch_, {options_.world_size, card_.secret, observer_, &grants_}),
      files_(grants_, card_.secret) {
  executor_.attach(0, &commands_);
  watch_.joined(0, describe(options_.self));
  if (options_.world_size > 1) listen();
}

void RankHub::listen() {
  const bool one_host = options_.host.empty();
  const std::string bind = one_host ? kNowhere : fmt::format("{}:0", options_.listen_host);
  const std::string commands_name = one_host ? "meshloom-ranks-" + random_secret() : "";
  const std::string beats_name = one_host ? "meshloom-beats-" + random_secret() : "";
  // Strangers that connect to the ranks' port must not keep the ranks out.
  server_ = std::make_unique<GrpcServer>(
      GrpcServerOptions{.listen = resolve_listen_address(bind, "the ranks' address"),
                        .services = {&service_, &files_},
                        .most_connections = most_connections(options_.world_size),
                        .max_threads = 16 + 3 * options_.world_size,
                        .between_ranks = true,
                        .tls = rank_server_credentials(card_.key),
                        .abstract_name = commands_name});
  BeatServer::Observer& observed = *this;
  beats_ = std::make_unique<BeatServer>(
      BeatServer::Options{resolve_listen_address(bind, "the address for heartbeats"), card_.secret,
                          options_.world_size, beats_name, card_.key},
      observed);
  card_.address = one_host ? kAbstractScheme + commands_name
                           : fmt::format("{}:{}", options_.host, server_->port());
  card_.beats =
      one_host ? kAbstractScheme + beats_name : fmt::format("{}:{}", options_.host, beats_->port());
}

void RankHub::ranks_failed(const Error& cause) {
  // First, since a file system may hang.
  leave_soon("rank 0");
  observer_.ranks_lost(cause);
  abort_.raised = true;
  commands_.close();
}

void RankHub::start_watching() {
  if (beats_) {
    beats_->start();
  } else {
    observer_.all_ranks_joined();
    ticker_ = std::make_unique<Ticker>(kLookPeriod, [this] { look(); });
  }
}

void RankHub::look() {
  const auto now = AwakeClock::Clock::now();
  const v1::Heartbeat own = own_pulse_.sample(now);
  watch_.heard(0, &own, now);
  const RankWatch::Findings findings = watch_.look(now);
  observer_.ranks_looked_at(findings);
  if (findings.fatal) executor_.fail(*findings.fatal);
}

LoopEnd RankHub::run(RunFactory& factory, const SourceCache& sources) {
  RankWorker worker(0, factory, &sources, &executor_);
  return run_commands(commands_, worker, executor_, &pulse_);
}

bool RankHub::others_leave() const {
  while (!watch_.others_left() && !executor_.fatal())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return !executor_.fatal();
}

void RankHub::stop_watching() {
  ticker_.reset();
  beats_.reset();
}

void RankHub::stop() {
  if (server_) server_->shutdown();
}

}  // namespace meshloom::control
