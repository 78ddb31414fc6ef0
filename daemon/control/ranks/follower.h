// SPDX-License-Identifier: Apache-2.0
// The end of the command stream on every rank but 0.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/comm/training_pulse.h"
#include "daemon/control/host/stop_requests.h"
#include "daemon/control/ranks/beat_client.h"
#include "daemon/control/ranks/command_queue.h"
#include "daemon/control/ranks/outbox.h"
#include "daemon/control/ranks/pulse_sampler.h"
#include "daemon/control/ranks/rank_watch.h"
#include "v1/rank_service.grpc.pb.h"

namespace meshloom::control {

/// Joins at construction. A thread of its own reads, so that an abort is heard while the training
/// thread is inside a collective; one fetches large commands beside that stream; one writes
/// results; and one sends and hears heartbeats and watches rank 0.
class Follower final : public StopRequests, public ResultSink, private BeatClient::Observer {
 public:
  struct Options {
    std::string address;  ///< of rank 0's RankService
    std::string beats;    ///< and of its BeatServer
    std::string secret;
    v1::RankHello hello;
    const comm::TrainingPulse* pulse = nullptr;  ///< what heartbeats tell of; may be null
    std::chrono::milliseconds rank_timeout{10'000};
    LaunchKey key{};  ///< LaunchCard::key
  };
  class Observer {
   public:
    virtual ~Observer() = default;
    /// Rank 0 aborts, is lost or is given up. Called once, by a thread of the follower's own.
    virtual void rank0_ended(const std::string& cause) = 0;
  };
  /// `observer` outlives it.
  Follower(Options options, Observer& observer);
  ~Follower() override;
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  CommandQueue& commands() { return commands_; }
  void complete(const v1::RankResult& result) override;
  void request_stop(const std::string& cause) override;
  /// This rank has failed alone, after `epoch` recoveries.
  void report_failure(std::uint64_t epoch, const std::string& cause);
  /// Ends the stream in good order; results that were reported have been sent.
  void leave();
  /// Waits for the abort, or for the end of the stream.
  void wait_for_end();

 private:
  void read_commands();
  /// False if the connection has broken.
  bool fetch(const CommandPtr& announcement);
  v1::Heartbeat beat() override;
  void rank0_heard() override { watch_.heard(0); }
  void look_at_rank0() override;
  void abort(const std::string& cause);

  Options options_;
  Observer& observer_;
  CommandQueue commands_;
  std::unique_ptr<v1::RankService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::RankMessage, v1::RankCommand>> stream_;
  RankWatch watch_;  ///< of rank 0
  std::unique_ptr<PulseSampler> sampler_;
  std::once_flag aborted_;
  std::unique_ptr<Outbox<v1::RankMessage>> outbox_;
  std::unique_ptr<grpc::ClientContext> fetching_;  ///< of the call of now, under fetch_mutex_
  std::mutex fetch_mutex_;
  bool fetch_no_more_ = false;
  std::unique_ptr<Outbox<CommandPtr>> fetches_;
  std::unique_ptr<BeatClient> beats_;
  std::thread reader_;
  bool left_ = false;
};

}  // namespace meshloom::control
