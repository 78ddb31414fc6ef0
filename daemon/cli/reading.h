// SPDX-License-Identifier: Apache-2.0
// Streams of a daemon that are read on over its restarts.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "daemon/cli/client.h"

namespace meshloom::cli {

/// The reading of streams, which a deadline or another thread can end.
class Reading {
 public:
  using Clock = std::chrono::system_clock;
  /// Without a deadline it takes as long as it takes.
  explicit Reading(std::optional<Clock::time_point> deadline = {}) : deadline_(deadline) {}

  /// Ends the stream that is read, and those that follow. Any thread.
  void cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (context_) context_->TryCancel();
  }
  bool cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }
  bool is_over() const { return deadline_ && Clock::now() >= *deadline_; }

  /// Opens a stream by open(context), and hands on each response by seen(response) until that is
  /// false or the stream ends; its status, or OK where seen() has ended it.
  template <typename Response, typename Open, typename Seen>
  grpc::Status read_once(Client& client, const Open& open, const Seen& seen) {
    grpc::ClientContext context;
    client.introduce(context);
    if (deadline_) context.set_deadline(*deadline_);
    hold(&context);
    const auto stream = open(&context);
    bool goes_on = true;
    for (Response response; goes_on && stream->Read(&response);) goes_on = seen(response);
    if (!goes_on) context.TryCancel();
    const grpc::Status status = stream->Finish();
    hold(nullptr);
    return goes_on ? status : grpc::Status::OK;
  }

  /// The same, opened again as long as the daemon is away or stops. open() asks for what comes
  /// behind that which seen() was given.
  template <typename Response, typename Open, typename Seen>
  grpc::Status read(Client& client, const Open& open, const Seen& seen) {
    while (true) {
      const grpc::Status status = read_once<Response>(client, open, seen);
      const bool is_away = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                           status.error_code() == grpc::StatusCode::CANCELLED;
      if (!is_away || cancelled() || is_over()) return status;
      // A daemon that stops refuses at once, and its connection stands.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      client.wait_for_connection(std::chrono::milliseconds(400));
    }
  }

 private:
  void hold(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    context_ = context;
    if (context_ && cancelled_) context_->TryCancel();
  }

  const std::optional<Clock::time_point> deadline_;
  mutable std::mutex mutex_;
  grpc::ClientContext* context_ = nullptr;  ///< of the stream that is read; null: none is
  bool cancelled_ = false;
};

}  // namespace meshloom::cli
