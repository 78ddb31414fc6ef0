// SPDX-License-Identifier: Apache-2.0
// One client's view of an operation: its states, and the tokens of a sample as they are drawn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/control/host/hold.h"
#include "daemon/control/runs/run_manager.h"
#include "daemon/control/services/stream.h"
#include "v1/operation_service.pb.h"

namespace meshloom::control {

/// Keeps a position in what the operation has drawn, and nothing of it: a client that reads slowly
/// gets more at once.
class OperationWatch final : public Stream<v1::WatchOperationResponse> {
 public:
  OperationWatch(StreamHost& host, const Caller& caller, RunManager& runs,
                 const v1::WatchOperationRequest& request)
      : Stream(host, caller, "WatchOperation"), runs_(runs), request_(request) {}
  ~OperationWatch() override;

 private:
  class OnceWaker;

  bool produce() override;
  void let_go() override { lease_.release(); }
  void begin();
  /// These say whether they have written something.
  bool tell_state(const Operations::Seen& seen);
  bool tell_tokens();

  RunManager& runs_;
  const v1::WatchOperationRequest request_;
  std::shared_ptr<RunSession> session_;
  Hold lease_;
  std::int64_t waiter_ = 0;
  std::shared_ptr<OnceWaker> once_;  ///< from begin() on
  Operations::Progress progress_;
  std::vector<int> known_;  ///< tokens of each sequence that were told
  int turn_ = 0;            ///< the sequence that is told of next
  v1::OperationState told_ = v1::OPERATION_STATE_UNSPECIFIED;
};

}  // namespace meshloom::control
