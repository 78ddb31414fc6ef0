// SPDX-License-Identifier: Apache-2.0
// UnaryCall: a call with one answer that comes later, by whatever door its client came.
#pragma once

#include <grpcpp/support/status.h>

#include <memory>
#include <utility>

namespace meshloom::control {

/// Where the end of one call is told.
class UnaryDoor {
 public:
  virtual ~UnaryDoor() = default;
  /// The response is filled in where the status is OK. Called once, by any thread, which may hold
  /// no lock of the call's host.
  virtual void end(const grpc::Status& status) = 0;
};

/// A handler makes it of a caller, a request and a response, which last until the call has ended;
/// a door begins it and keeps it meanwhile. Others may keep it longer, with its door.
class UnaryCall {
 public:
  virtual ~UnaryCall() = default;
  UnaryCall(const UnaryCall&) = delete;
  UnaryCall& operator=(const UnaryCall&) = delete;

  /// Called once. The end may be told before it returns.
  void begin(std::shared_ptr<UnaryDoor> door) {
    door_ = std::move(door);
    start();
  }
  /// The client has gone. Any thread.
  virtual void cancel() = 0;
  /// Nobody waits for the call any more: called once, after the end was told.
  virtual void let_go() {}

 protected:
  UnaryCall() = default;
  void end(const grpc::Status& status) { door_->end(status); }

 private:
  virtual void start() = 0;

  std::shared_ptr<UnaryDoor> door_;  ///< from begin() on
};

}  // namespace meshloom::control
