// SPDX-License-Identifier: Apache-2.0
// WaitTeller asks from time to time what a job waits for, while a stream of its events is read.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/cli/client.h"
#include "v1/wait.pb.h"

namespace meshloom::cli {

/// After 3 s, then every 20 s, calls `tell` on a thread of its own if the job waits for the ranks.
/// It is not called any more once end() has returned.
class WaitTeller {
 public:
  WaitTeller(Client& client, std::string job, std::function<void(const v1::RanksWait&)> tell);
  ~WaitTeller() { end(); }
  WaitTeller(const WaitTeller&) = delete;
  WaitTeller& operator=(const WaitTeller&) = delete;

  /// Does not wait for an answer of the daemon.
  void end();

 private:
  void run();
  void ask();
  /// Lets end() cancel the call of `context` from here on. Returns false if it has been called.
  bool begin_asking(grpc::ClientContext& context);
  void end_asking();

  Client& client_;
  const std::string job_;
  const std::function<void(const v1::RanksWait&)> tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  grpc::ClientContext* asking_ = nullptr;  ///< null: nothing is asked now
  std::thread thread_;
};

}  // namespace meshloom::cli
