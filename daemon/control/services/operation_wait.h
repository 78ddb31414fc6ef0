// SPDX-License-Identifier: Apache-2.0
// A call that waits for an operation and occupies no thread meanwhile.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/control/host/steady_timer.h"
#include "daemon/control/host/wakeable.h"
#include "daemon/control/net/caller.h"
#include "daemon/control/runs/run_manager.h"
#include "daemon/control/services/unary_call.h"
#include "v1/operation_service.pb.h"

namespace meshloom::control {

/// Lives until its door is done with it and its timeout has come or was cancelled.
class OperationWait final : public UnaryCall,
                            public Wakeable,
                            public std::enable_shared_from_this<OperationWait> {
 public:
  /// `timer` ends waits; grpc::Alarm would not do, since what it waits with follows the wall clock.
  OperationWait(RunManager& runs, SteadyTimer& timer, Caller caller,
                const v1::WaitOperationRequest& request, v1::WaitOperationResponse* response)
      : runs_(runs),
        timer_(timer),
        caller_(std::move(caller)),
        request_(request),
        name_(request.name()),
        response_(response) {}

  void cancel() override;
  void let_go() override;
  /// The operation has ended. Locks of the run may be held, so that only the operations are asked.
  void wake() override;

 private:
  void start() override;
  void wait(std::int64_t timeout_ms);
  /// The first call counts. Any thread.
  void answer(const grpc::Status& status);
  /// Answers with the operation as it is, which look() finds.
  template <typename Look>
  void answer_with(Look look);

  RunManager& runs_;
  SteadyTimer& timer_;
  const Caller caller_;
  const v1::WaitOperationRequest& request_;  ///< until the call has ended
  const std::string name_;
  v1::WaitOperationResponse* response_;
  bool of_holder_ = false;  ///< of the run; before the wait begins
  std::mutex mutex_;
  bool answered_ = false;
  bool done_ = false;         ///< the door is, with the call
  std::int64_t waiter_ = 0;   ///< of the operations; 0: none
  std::int64_t timeout_ = 0;  ///< of the timer; 0: none
};

}  // namespace meshloom::control
