// SPDX-License-Identifier: Apache-2.0
// A stream of responses to one client that occupies no thread while it waits.
#pragma once

#include <grpcpp/support/status.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "daemon/control/host/wakeable.h"
#include "daemon/control/net/caller.h"
#include "daemon/control/net/status.h"
#include "daemon/control/services/stream_host.h"

namespace meshloom::control {

/// The way to the client of one stream, by whatever door it came.
template <typename Response>
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  /// Begins to send `response`, which stays as it is until the sink has called Stream::sent(). One
  /// response is sent at a time. It does not wait.
  virtual void send(const Response& response) = 0;
  /// The end of the stream, told once, while nothing is sent. It does not wait.
  virtual void end(const grpc::Status& status) = 0;
  /// Ends the call of a client that takes nothing; false if it has ended. Any thread.
  virtual bool cut_off() = 0;
};

/// Derived classes say what is written by produce(). Made by std::make_shared in a handler; a door
/// opens it and keeps it until its call has ended. A stream may live longer if others hold it.
template <typename Response>
class Stream : public StreamHost::Guest, public std::enable_shared_from_this<Stream<Response>> {
 public:
  /// `method` is for the log.
  Stream(StreamHost& host, Caller caller, const char* method)
      : host_(host), caller_(std::move(caller)), method_(method) {}

  /// Takes a slot and lets produce() begin; without a slot the stream ends with the reason. Called
  /// once, by the door.
  void open(std::shared_ptr<StreamSink<Response>> sink) {
    sink_ = std::move(sink);
    waker_ = std::make_shared<Waker>(host_, caller_.client(), this->weak_from_this());
    const grpc::Status status =
        guarded(method_, [&] { slot_ = host_.slots().take(caller_.client()); });
    host_.add(this->weak_from_this());
    if (status.ok())
      wake();
    else
      finish(status);
  }
  /// The sink is done with what was sent; unless `ok` nobody takes anything any more. Any thread.
  void sent(bool ok) {
    std::unique_lock lock(mutex_);
    writing_ = false;
    outbox_.pop_front();
    if (!ok) drop_rest();
    go_on(lock);
  }
  /// The client has gone. Any thread.
  void cancel() {
    std::unique_lock lock(mutex_);
    drop_rest();
    go_on(lock);
  }

  /// There may be something to produce. Any thread that holds the stream may call it.
  void wake() {
    std::unique_lock lock(mutex_);
    wanted_ = true;
    go_on(lock);
  }

 protected:
  const Caller& caller() const { return caller_; }

  /// Called by the host's threads, by one at a time, as long as there is room, after each wake()
  /// and again while it returns true. May block. Writes with write(), ends the stream with finish()
  /// or by what it throws.
  virtual bool produce() = 0;

  /// Gives back what others may wait for, such as pins and leases. Called before the end is told,
  /// once produce() is not called any more; if the client has gone meanwhile, only the destructor
  /// gives back.
  virtual void let_go() {}

  /// Wakes the stream from any thread; it lives as long as the stream. Whoever uses it holds
  /// nothing of the stream, so that none ends on a thread that is not its own.
  std::shared_ptr<Wakeable> waker() const { return waker_; }

  /// Nobody gets what is written any more: the stream has ended, or its client has gone.
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return status_.has_value();
  }

  /// Nothing happens once the stream has ended.
  void write(Response response) {
    std::unique_lock lock(mutex_);
    if (status_) return;
    outbox_.push_back(std::move(response));
    go_on(lock);
  }
  /// After what was written before, and once produce() has returned. The first status counts.
  void finish(const grpc::Status& status = grpc::Status::OK) {
    std::unique_lock lock(mutex_);
    if (!status_) status_ = status;
    go_on(lock);
  }

 private:
  class Waker final : public Wakeable {
   public:
    Waker(StreamHost& host, std::string client, std::weak_ptr<Stream> stream)
        : host_(host), client_(std::move(client)), stream_(std::move(stream)) {}
    void wake() override {
      host_.post(client_, [stream = stream_] {
        if (const auto self = stream.lock()) self->wake();
      });
    }

   private:
    StreamHost& host_;
    const std::string client_;
    const std::weak_ptr<Stream> stream_;
  };

  static constexpr std::size_t kRoom = 2;  ///< produce() is asked for more below so many responses

  bool cut_off_if_stuck(StreamHost::Clock::time_point limit) final {
    {
      const std::lock_guard lock(mutex_);
      if ((!writing_ && !finished_) || since_ >= limit) return false;
      since_ = StreamHost::Clock::now();
    }
    return sink_->cut_off();
  }

  /// The client has gone: what it has not got is of no use.
  void drop_rest() {
    outbox_.erase(outbox_.begin() + (writing_ ? 1 : 0), outbox_.end());
    status_ = grpc::Status::CANCELLED;
    gone_ = true;
  }

  /// Begins what can begin. The sink is called without the lock; `writing_` and `finished_` keep
  /// others from beginning the same. A client that reads the end of a stream may make the next call
  /// at once, so what the stream held is free before it is told; one that is gone waits for
  /// nothing, and its slot stays taken while its work runs.
  void go_on(std::unique_lock<std::mutex>& lock) {
    const bool write_next = !writing_ && !outbox_.empty();
    const bool end =
        !writing_ && outbox_.empty() && status_ && !finished_ && (gone_ || !producing_);
    const bool make_more = wanted_ && !producing_ && !status_ && outbox_.size() < kRoom;
    if (write_next) writing_ = true;
    if (end) finished_ = true;
    if (write_next || end) since_ = StreamHost::Clock::now();
    if (make_more) {
      producing_ = true;
      wanted_ = false;
    }
    const bool idle = end && !producing_;
    std::optional<Slots::Slot> given_back;
    if (idle) given_back.swap(slot_);
    const Response* next = write_next ? &outbox_.front() : nullptr;
    const grpc::Status status = end ? *status_ : grpc::Status::OK;
    lock.unlock();
    if (make_more)
      host_.post(caller_.client(), [self = this->shared_from_this()] { self->run_produce(); });
    if (next) sink_->send(*next);
    if (idle) let_go();
    given_back.reset();
    if (end) sink_->end(status);
  }

  void run_produce() {
    bool more = false;
    const grpc::Status status = guarded(method_, [&] { more = produce(); });
    std::unique_lock lock(mutex_);
    producing_ = false;
    wanted_ = wanted_ || more;
    if (!status.ok() && !status_) status_ = status;
    go_on(lock);
  }

  StreamHost& host_;
  const Caller caller_;
  const char* const method_;
  std::shared_ptr<StreamSink<Response>> sink_;  ///< once it is open, as what follows
  std::shared_ptr<Waker> waker_;
  mutable std::mutex mutex_;         ///< for what follows
  std::optional<Slots::Slot> slot_;  ///< from open() until the end is told
  std::deque<Response> outbox_;
  bool writing_ = false;                 ///< the first of the outbox
  StreamHost::Clock::time_point since_;  ///< of the write under way, or of the end
  std::optional<grpc::Status> status_;   ///< of the end, once the outbox is empty
  bool gone_ = false;                    ///< the client
  bool finished_ = false;
  bool wanted_ = false;
  bool producing_ = false;
};

}  // namespace meshloom::control
