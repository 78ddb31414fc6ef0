// SPDX-License-Identifier: Apache-2.0
// Hostile clients: storms of unary calls, and strangers that send bytes without end; and others, by
// which they are measured.
#pragma once

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/loopback.h"
#include "v1/job_service.grpc.pb.h"

namespace meshloom::e2e {

/// A connection of its own.
inline std::shared_ptr<grpc::Channel> own_channel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

/// One connection from this address of the loopback, which the daemon takes for another client than
/// those of 127.0.0.1.
inline std::shared_ptr<grpc::Channel> channel_from(const char* from, int port) {
  const int fd = test::connect_to_loopback(port, from).release();
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return grpc::CreateInsecureChannelFromFd("127.0.0.1", fd);
}

/// The same call many times at once, fifty on a connection. What is still under way ends with it.
template <typename Service, typename Request, typename Response>
class Storm {
 public:
  using Ended = std::function<void(grpc::Status)>;
  using Begin = std::function<void(typename Service::Stub&, grpc::ClientContext*, const Request*,
                                   Response*, Ended)>;

  Storm(const std::string& address, int count, const Request& request, const Begin& begin)
      : request_(request) {
    for (int i = 0; i < count; ++i) {
      if (i % 50 == 0) stubs_.push_back(Service::NewStub(own_channel(address)));
      Call& call = *calls_.emplace_back(std::make_unique<Call>());
      begin(*stubs_.back(), &call.context, &request_, &call.response, [this](grpc::Status status) {
        const std::lock_guard lock(mutex_);
        ++ended_;
        refused_ += status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
        changed_.notify_all();
      });
    }
  }
  ~Storm() { stop(); }
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;

  void stop() {
    for (const auto& call : calls_) call->context.TryCancel();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ == static_cast<int>(calls_.size()); });
  }
  int ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  /// With RESOURCE_EXHAUSTED.
  int refused() const {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

 private:
  struct Call {
    grpc::ClientContext context;
    Response response;
  };
  const Request request_;
  std::vector<std::unique_ptr<typename Service::Stub>> stubs_;
  std::vector<std::unique_ptr<Call>> calls_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  int refused_ = 0;
};

/// The longest of `count` calls of `call`, which says whether it was answered; a minute for one
/// that was not.
template <typename Call>
std::chrono::milliseconds longest_answer(int count, const Call& call) {
  std::chrono::milliseconds longest{0};
  for (int i = 0; i < count; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const bool answered = call();
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    longest = std::max(longest, answered ? time : std::chrono::milliseconds(60'000));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return longest;
}

/// Whether the daemon tells of this job within 5 s.
inline bool is_answered(v1::JobService::Stub& jobs, const std::string& name) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  v1::GetJobRequest request;
  request.set_name(name);
  v1::GetJobResponse response;
  return jobs.GetJob(&context, request, &response).ok();
}

/// Threads that connect to 127.0.0.1 and send zeros, again and again, as long as it exists.
class Strangers {
 public:
  Strangers(std::vector<int> ports, int threads) : ports_(std::move(ports)) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back(
          [this, i] { run(ports_[static_cast<std::size_t>(i) % ports_.size()]); });
  }
  ~Strangers() {
    ending_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  void run(int port) {
    const std::string zeros(1 << 16, '\0');
    while (!ending_) {
      const base::UniqueFd fd = test::connect_to_loopback(port);
      ssize_t sent = fd ? 0 : -1;
      while (!ending_ && sent >= 0) {
        sent = ::send(fd.get(), zeros.data(), zeros.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) bytes_ += sent;
        if (sent < 0 && errno == EAGAIN) sent = 0;
        if (sent == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  const std::vector<int> ports_;
  std::atomic<bool> ending_ = false;
  std::atomic<std::int64_t> bytes_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace meshloom::e2e
