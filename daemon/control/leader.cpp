// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/leader.h"

#include <unistd.h>

#include "daemon/control/host/descriptor_limit.h"
#include "daemon/control/host/host_info.h"
#include "daemon/control/host/leave_soon.h"
#include "daemon/control/host/stop_signal.h"
#include "daemon/control/jobs/resume_source.h"
#include "daemon/control/ranks/rank_loop.h"
#include "daemon/plan/job_memory.h"
#include "daemon/train/model_source.h"
#include "daemon/train/paths.h"
#include "daemon/train/run.h"
#include "daemon/train/sampling_params.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr int kMostCalls = 64;

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
      admission_(std::move(hosts)),
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
      calls_(std::chrono::milliseconds(options.config.resolve_timeout_ms()), kMostCalls),
      driver_(store_, executor_, state_, options.config.data_dir(),
              [this, world_size, data_dir = options.config.data_dir()](const v1::Job& job) {
                return calls_.run<v1::RunConfig>([=] {
                  return train::refit_run_config(job.spec().run(), job.resolved(), world_size,
                                                 data_dir);
                });
              }),
      loads_(std::chrono::hours(24), 1),
      card_{"", "", make_secret(), ""},
      rank_service_(executor_, watch_,
                    {world_size, card_.secret, [this] { on_all_joined(); },
                     [this](const std::string& cause) { request_stop(cause); }}),
      job_service_(
          store_,
          [this, world_size, data_dir = options.config.data_dir()](const v1::RunConfig& run) {
            return calls_.run<v1::RunConfig>([=, this] {
              state_.check_in_place();
              v1::RunConfig config = train::resolve_run_config(run, world_size, data_dir);
              resolve_resume(run, &config, store_, state_, data_dir);
              return config;
            });
          },
          [this](const v1::JobSpec& spec, const v1::RunConfig& resolved) {
            return calls_.run<std::vector<std::string>>(
                [=, this] { return admit(spec, resolved); });
          }),
      generate_service_(SampleSources(
          store_, scheduler_, sources_, state_,
          [this, data_dir = options.config.data_dir()](const std::string& name) {
            return calls_.run<std::filesystem::path>(
                [=] { return train::resolve_path(name, data_dir, "hf_folder"); });
          },
          [this, data_dir = options.config.data_dir()](const v1::RunConfig& resolved) {
            return calls_.run<train::PromptLimits>([=] {
              return train::prompt_limits(train::load_model_config(resolved.model(), data_dir),
                                          resolved);
            });
          },
          [this](const CacheNeed& need) {
            return admission_.hold_cache(need,
                                         calls_.run<std::int64_t>([this] { return job_bytes(); }));
          })),
      sources_([this, threads = self.threads()](const std::filesystem::path& folder) {
        return load_source(folder, threads);
      }),
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
  calls_.stop();
  server_->set_serving(false);
  server_->shutdown();
  if (rank_server_) rank_server_->shutdown();
  generate_service_.stop();
  const bool hanging = calls_.running() > 0 || loads_.running() > 0;
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
  calls_.stop();
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

std::vector<std::string> Leader::admit(const v1::JobSpec& spec,
                                       const v1::RunConfig& resolved) const {
  const std::string& data_dir = options_.config.data_dir();
  std::vector<std::string> warnings = train::plan_warnings(resolved, data_dir);
  const nn::ModelConfig model = train::load_model_config(resolved.model(), data_dir);
  if (auto note = admission_.check_job(resolved, model, spec.overcommit()))
    warnings.push_back(std::move(*note));
  return warnings;
}

SourceCache::Loaded Leader::load_source(const std::filesystem::path& folder, int threads) {
  SourceCache::Loaded loaded{
      admission_.hold_source(train::Sampler::weight_bytes(folder), job_bytes()), nullptr};
  // A stop does not wait for a large model, nor for a file system that hangs.
  loaded.sampler = loads_.run<std::unique_ptr<train::Sampler>>([folder, threads] {
    ExecutionContext::Options context;
    context.threads = Threads{threads};
    return train::Sampler::load(context, folder);
  });
  return loaded;
}

void Leader::end_generations() {
  scheduler_.stop();
  loads_.stop();
  sources_.stop();
}

std::int64_t Leader::job_bytes() const {
  const auto job = store_.active_job();
  if (!job) return 0;
  try {
    const nn::ModelConfig running =
        train::load_model_config(job->resolved().model(), options_.config.data_dir());
    return plan::estimate_job_memory(job->resolved(), running).total();
  } catch (const Error& error) {
    spdlog::warn("the memory of {} is not counted beside a generation: {}", job->name(),
                 error.what());
    return 0;
  }
}

void Leader::on_fatal() {
  abort_.raised = true;
  commands_.close();
  leave_soon("rank 0");
}

}  // namespace meshloom::control
