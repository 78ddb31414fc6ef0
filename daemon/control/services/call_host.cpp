// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/call_host.h"

#include <algorithm>
#include <system_error>

#include "daemon/control/host/background_thread.h"
#include "daemon/control/net/status.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

/// But one at least.
int three_quarters(int of) { return std::max(1, of * 3 / 4); }

[[noreturn]] void refuse_stopping() { throw Unavailable("the daemon is stopping", "STOPPING"); }

}  // namespace

/// Lives until its door is done with it and no thread has it any more.
class CallHost::Call final : public UnaryCall, public std::enable_shared_from_this<Call> {
 public:
  Call(CallHost& host, const char* method, Caller caller, Body body)
      : host_(host), method_(method), caller_(std::move(caller)), body_(std::move(body)) {}

  const std::string& client() const { return caller_.client(); }

  grpc::Status carry_out() {
    grpc::Status status = guarded(method_, [this] {
      body_([this] {
        if (host_.stopping_) refuse_stopping();
        if (gone_) throw Cancelled("the client has gone", "CANCELLED_BY_CLIENT");
      });
    });
    body_ = nullptr;
    return status;
  }
  void cancel() override {
    gone_ = true;
    if (host_.drop(*this)) end(grpc::Status::CANCELLED);
  }
  using UnaryCall::end;

 private:
  void start() override {
    const grpc::Status status = guarded(method_, [&] { host_.add(client(), shared_from_this()); });
    if (!status.ok()) end(status);
  }

  CallHost& host_;
  const char* const method_;
  const Caller caller_;
  Body body_;
  std::atomic<bool> gone_ = false;
};

CallHost::~CallHost() { stop(); }

std::shared_ptr<UnaryCall> CallHost::call(const char* method, const Caller& caller,
                                          const google::protobuf::Message& request, Body body) {
  return call(method, caller, [&request, body = std::move(body)](const GoOn& go_on) {
    check_request_size(request);
    body(go_on);
  });
}

std::shared_ptr<UnaryCall> CallHost::call(const char* method, const Caller& caller, Body body) {
  return std::make_shared<Call>(*this, method, caller, std::move(body));
}

void CallHost::add(const std::string& client, const CallPtr& call) {
  const std::lock_guard lock(mutex_);
  if (stopping_) refuse_stopping();
  const auto known = clients_.find(client);
  const int own = known == clients_.end()
                      ? 0
                      : known->second.running + static_cast<int>(known->second.waiting.size());
  const int most_of_one = three_quarters(options_.most_calls);
  if (calls_ >= options_.most_calls || own >= most_of_one)
    throw ResourceExhausted(
        fmt::format("{} {} may wait at once, {} of them for one address; try again later",
                    options_.most_calls, options_.what, most_of_one),
        "TOO_MANY_CALLS", {{"client", client}});
  if (idle_ <= calls_ - running_ && threads_.size() < static_cast<std::size_t>(options_.threads))
    start_thread();
  clients_[client].waiting.push_back(call);
  ++calls_;
  changed_.notify_one();
}

void CallHost::start_thread() {
  try {
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    if (threads_.empty())
      throw ResourceExhausted(fmt::format("no thread for a request: {}", error.what()),
                              "TOO_MANY_CALLS");
  }
}

std::map<std::string, CallHost::Client>::iterator CallHost::next_client() {
  const int most_of_one = three_quarters(options_.threads);
  auto next = clients_.end();
  for (auto item = clients_.begin(); item != clients_.end(); ++item) {
    if (item->second.waiting.empty() || item->second.running >= most_of_one) continue;
    if (next == clients_.end() || item->second.served < next->second.served) next = item;
  }
  return next;
}

void CallHost::work() {
  if (options_.gives_way) give_way_to_training();
  std::unique_lock lock(mutex_);
  while (true) {
    auto client = clients_.end();
    ++idle_;
    changed_.wait(lock, [&] { return stopping_ || (client = next_client()) != clients_.end(); });
    --idle_;
    if (stopping_) return;
    CallPtr call = std::move(client->second.waiting.front());
    client->second.waiting.pop_front();
    ++client->second.running;
    ++running_;
    client->second.served = ++begun_;
    lock.unlock();
    const grpc::Status status = call->carry_out();
    lock.lock();
    --client->second.running;
    --running_;
    --calls_;
    forget_if_idle(client);
    // One of this client's may have its turn now.
    changed_.notify_one();
    lock.unlock();
    // Its place is free by now: who has heard of the end may begin the next call.
    call->end(status);
    call.reset();
    lock.lock();
  }
}

bool CallHost::drop(const Call& call) {
  const std::lock_guard lock(mutex_);
  const auto client = clients_.find(call.client());
  if (client == clients_.end()) return false;
  auto& waiting = client->second.waiting;
  const auto found = std::find_if(waiting.begin(), waiting.end(),
                                  [&](const CallPtr& item) { return item.get() == &call; });
  if (found == waiting.end()) return false;
  waiting.erase(found);
  --calls_;
  forget_if_idle(client);
  return true;
}

void CallHost::forget_if_idle(std::map<std::string, Client>::iterator client) {
  if (client->second.running == 0 && client->second.waiting.empty()) clients_.erase(client);
}

int CallHost::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void CallHost::request_stop() {
  std::vector<CallPtr> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& [name, client] : clients_) {
      dropped.insert(dropped.end(), client.waiting.begin(), client.waiting.end());
      calls_ -= static_cast<int>(client.waiting.size());
      client.waiting.clear();
    }
    changed_.notify_all();
  }
  const grpc::Status status = guarded("a call that waits", [] { refuse_stopping(); });
  for (const CallPtr& call : dropped) call->end(status);
}

void CallHost::stop() {
  request_stop();
  for (auto& thread : threads_)
    if (thread.joinable()) thread.join();
}

}  // namespace meshloom::control
