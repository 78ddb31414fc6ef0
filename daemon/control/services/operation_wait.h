// SPDX-License-Identifier: Apache-2.0
// A call that waits for an operation and occupies no thread meanwhile.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>

#include "daemon/control/host/steady_timer.h"
#include "daemon/control/net/caller.h"
#include "daemon/control/runs/run_manager.h"
#include "v1/operation_service.pb.h"

namespace meshloom::control {

/// Lives until gRPC is done with the call and its timeout has come or was cancelled.
class OperationWait final : public grpc::ServerUnaryReactor,
                            public std::enable_shared_from_this<OperationWait> {
 public:
  /// `timer` ends waits; grpc::Alarm would not do, since what it waits with follows the wall clock.
  static OperationWait* begin(RunManager& runs, SteadyTimer& timer, const Caller& caller,
                              const v1::WaitOperationRequest& request,
                              v1::WaitOperationResponse* response);

 private:
  OperationWait(RunManager& runs, SteadyTimer& timer, std::string name,
                v1::WaitOperationResponse* response)
      : runs_(runs), timer_(timer), name_(std::move(name)), response_(response) {}
  void wait(std::int64_t timeout_ms);
  /// The first call counts. Any thread.
  void answer(const grpc::Status& status);
  /// Answers with the operation as it is, which look() finds.
  template <typename Look>
  void answer_with(Look look);
  void OnCancel() override;
  void OnDone() override;

  RunManager& runs_;
  SteadyTimer& timer_;
  const std::string name_;
  v1::WaitOperationResponse* response_;
  bool of_holder_ = false;  ///< of the run; before the wait begins
  std::mutex mutex_;
  bool answered_ = false;
  bool done_ = false;                    ///< gRPC is, with the call
  std::int64_t waiter_ = 0;              ///< of the operations; 0: none
  std::int64_t timeout_ = 0;             ///< of the timer; 0: none
  std::shared_ptr<OperationWait> self_;  ///< until OnDone
};

}  // namespace meshloom::control
