// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/grpc_door.h"

namespace meshloom::control {
namespace {

/// Lives until gRPC is done with the call, or longer if others hold the call.
class GrpcCall final : public grpc::ServerUnaryReactor, public UnaryDoor {
 public:
  GrpcCall(std::shared_ptr<UnaryCall> call, Visit visit)
      : call_(std::move(call)), visit_(std::move(visit)) {}

  void end(const grpc::Status& status) override { Finish(visit_.end(status)); }

 private:
  void OnCancel() override { call_->cancel(); }
  void OnDone() override {
    const auto last = std::move(call_);
    last->let_go();
  }

  std::shared_ptr<UnaryCall> call_;  ///< which has this; until gRPC is done with the call
  Visit visit_;
};

}  // namespace

grpc::ServerUnaryReactor* serve_call(std::shared_ptr<UnaryCall> call, Visit visit) {
  UnaryCall& begun = *call;
  const auto door = std::make_shared<GrpcCall>(std::move(call), std::move(visit));
  begun.begin(door);
  return door.get();
}

}  // namespace meshloom::control
