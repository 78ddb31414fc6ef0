// SPDX-License-Identifier: Apache-2.0
// The end of the command stream on every rank but 0.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/control/command_queue.h"
#include "v1/rank_service.grpc.pb.h"

namespace meshloom::control {

/// Joins at construction. A thread of its own reads, so that an abort is heard while the training
/// thread is inside a collective.
class Follower {
 public:
  struct Options {
    std::string address;  ///< of rank 0's RankService
    std::string secret;
    v1::RankHello hello;
    /// Called with the cause when rank 0 aborts or is lost, from the reading thread.
    std::function<void(const std::string& cause)> on_abort;
  };
  explicit Follower(Options options);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  CommandQueue& commands() { return commands_; }
  void report(const v1::RankResult& result);
  void request_stop(const std::string& cause);
  /// This rank has failed alone, after `epoch` recoveries.
  void report_failure(std::uint64_t epoch, const std::string& cause);
  /// Ends the stream in good order; results that were reported have been sent.
  void leave();
  /// Waits for the abort, or for the end of the stream.
  void wait_for_end();

 private:
  void read_commands();
  void send(const v1::RankMessage& message);

  Options options_;
  CommandQueue commands_;
  std::unique_ptr<v1::RankService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::RankMessage, v1::RankCommand>> stream_;
  std::mutex write_mutex_;
  std::thread reader_;
  bool left_ = false;
};

}  // namespace meshloom::control
