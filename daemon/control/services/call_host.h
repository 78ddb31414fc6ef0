// SPDX-License-Identifier: Apache-2.0
// Unary calls that read files, search or delete: carried out beside the threads of their door.
#pragma once

#include <google/protobuf/message.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/control/net/caller.h"
#include "daemon/control/services/unary_call.h"

namespace meshloom::control {

/// gRPC's threads are few and answer everybody, so that calls which take long must not keep them.
/// A host carries calls of some methods out on threads of its own, which are started when they are
/// needed. Clients (Caller::client) take turns, and none has more than three quarters of the
/// threads, or of the places in the queue. All methods may be called from any thread.
class CallHost {
 public:
  struct Options {
    std::string what;  ///< of which so many may wait, in texts
    int threads = 2;
    int most_calls = 64;    ///< that wait or are carried out
    bool gives_way = true;  ///< to training: its threads have a lower priority
  };
  /// Throws Cancelled (CANCELLED_BY_CLIENT) once the client has gone, and Unavailable (STOPPING)
  /// after request_stop(): to be called again and again by what takes long.
  using GoOn = std::function<void()>;
  using Body = std::function<void(const GoOn& go_on)>;

  explicit CallHost(const Options& options) : options_(options) {}
  ~CallHost();
  CallHost(const CallHost&) = delete;
  CallHost& operator=(const CallHost&) = delete;

  /// What a handler returns. `body` fills in the response, or throws; it may use request and
  /// response of the call. The call ends with RESOURCE_EXHAUSTED (TOO_MANY_CALLS) where there is no
  /// place for it. `method` is for the log.
  std::shared_ptr<UnaryCall> call(const char* method, const Caller& caller, Body body);
  /// The same for a request that is no verb of a run: above kRequestBytes it is refused.
  std::shared_ptr<UnaryCall> call(const char* method, const Caller& caller,
                                  const google::protobuf::Message& request, Body body);

  /// That wait or are carried out.
  int calls() const;
  /// Calls that wait end with STOPPING, those that are carried out when they ask next. Does not
  /// wait.
  void request_stop();
  /// The same, and waits for those that are carried out.
  void stop();

 private:
  class Call;
  using CallPtr = std::shared_ptr<Call>;
  /// What one client has here.
  struct Client {
    std::deque<CallPtr> waiting;
    int running = 0;
    std::int64_t served = 0;  ///< when one of its calls was begun last, by a count
  };

  /// Throws ResourceExhausted, Unavailable.
  void add(const std::string& client, const CallPtr& call);
  void start_thread();
  void work();
  /// The next call and its client; none if all that wait are of clients with their share.
  std::map<std::string, Client>::iterator next_client();
  /// Whether it was waiting: then nobody carries it out.
  bool drop(const Call& call);
  void forget_if_idle(std::map<std::string, Client>::iterator client);

  const Options options_;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;  ///< for what follows
  std::condition_variable changed_;
  std::map<std::string, Client> clients_;  ///< with a call each
  int calls_ = 0;                          ///< that wait or are carried out
  int running_ = 0;                        ///< those that are carried out
  int idle_ = 0;                           ///< threads
  std::int64_t begun_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace meshloom::control
