// SPDX-License-Identifier: Apache-2.0
// Unary calls that read files, search or delete: carried out beside gRPC's threads.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

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

#include "daemon/control/net/grpc_caller.h"

namespace meshloom::control {

/// gRPC's threads are few and answer everybody, so that calls which take long must not keep them.
/// A host carries calls of some methods out on threads of its own, which are started when they are
/// needed. Clients (Caller::address) take turns, and none has more than three quarters of the
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
  using Body = std::function<void(const Caller& caller, const GoOn& go_on)>;

  explicit CallHost(const Options& options) : options_(options) {}
  ~CallHost();
  CallHost(const CallHost&) = delete;
  CallHost& operator=(const CallHost&) = delete;

  /// What the handler of a callback method returns. `body` fills in the response, or throws; it
  /// may use request and response of the call, which last until it has returned. The call ends
  /// with RESOURCE_EXHAUSTED (TOO_MANY_CALLS) where there is no place for it. `method` is for the
  /// log.
  grpc::ServerUnaryReactor* answer(const char* method, grpc::CallbackServerContext& context,
                                   Body body);
  /// The same for a request that is no verb of a run: above kRequestBytes it is refused.
  grpc::ServerUnaryReactor* answer(const char* method, grpc::CallbackServerContext& context,
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

/// What the handler of a callback method returns that is carried out where it is called, on one of
/// the few threads on which gRPC runs reactions: handler(const Caller&) looks at memory alone and
/// waits for nobody.
/// Such a call is answered whatever others do, and refused where its request is above
/// kRequestBytes.
template <typename Handler>
grpc::ServerUnaryReactor* answer_at_once(const char* method, grpc::CallbackServerContext& context,
                                         const google::protobuf::Message& request,
                                         Handler&& handler) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(guarded(method, context, request, handler));
  return reactor;
}

}  // namespace meshloom::control
