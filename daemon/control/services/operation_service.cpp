// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/operation_service.h"

#include "daemon/control/host/hold.h"
#include "daemon/control/net/status.h"
#include "daemon/control/services/grpc_door.h"
#include "daemon/control/services/operation_wait.h"
#include "daemon/control/services/operation_watch.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/stores/names.h"

namespace meshloom::control {
namespace {

constexpr int kMostOperations = 500;

/// The serialised result of an operation in pieces.
class ResultStream final : public Stream<v1::ReadResultResponse> {
 public:
  ResultStream(StreamHost& host, const Caller& caller, RunManager& runs,
               const v1::ReadResultRequest& request)
      : Stream(host, caller, "ReadResult"), runs_(runs), request_(request) {}

 private:
  bool produce() override {
    if (!opened_) {
      opened_ = true;
      const auto session = runs_.session_of(request_.name());
      lease_ = session->hold_lease_of(caller().run_token());
      const auto state = runs_.operations().look(request_.name()).operation.state();
      if (state != v1::OPERATION_STATE_SUCCEEDED)
        throw FailedPrecondition(fmt::format("operation \"{}\" has no result: it is {}",
                                             request_.name(), v1::OperationState_Name(state)),
                                 "OPERATION_NOT_SUCCEEDED", {{"operation", request_.name()}});
      bytes_ = runs_.operations().serialised(request_.name());
      if (request_.offset() < 0 || static_cast<std::size_t>(request_.offset()) > bytes_->size())
        throw OutOfRange(fmt::format("offset {} is not inside the result of {} bytes",
                                     request_.offset(), bytes_->size()),
                         "OFFSET_INVALID", {{"field", "offset"}});
      offset_ = static_cast<std::size_t>(request_.offset());
    }
    // A few wait for each reader, however slow it is.
    constexpr std::size_t kPiece = 256 << 10;
    if (offset_ < bytes_->size()) {
      v1::ReadResultResponse piece;
      piece.set_data(bytes_->substr(offset_, kPiece));
      offset_ += piece.data().size();
      write(std::move(piece));
      return true;
    }
    if (!caller().run_token().empty()) runs_.operations().mark_delivered(request_.name());
    finish();
    return false;
  }

  void let_go() override {
    lease_.release();
    bytes_.reset();
  }

  RunManager& runs_;
  const v1::ReadResultRequest request_;
  bool opened_ = false;
  Hold lease_;
  Operations::Bytes bytes_;
  std::size_t offset_ = 0;
};

}  // namespace

OperationServiceImpl::OperationServiceImpl(RunManager& runs, const StreamHost::Options& reads,
                                           const StreamHost::Options& watches)
    : runs_(runs), reads_(reads), watches_(watches) {}

v1::GetOperationResponse OperationServiceImpl::get_operation(
    const Caller& caller, const v1::GetOperationRequest& request) {
  v1::GetOperationResponse response;
  const bool of_holder = runs_.session_of(request.name())->is_of_holder(caller.run_token());
  *response.mutable_operation() = runs_.operation(request.name(), of_holder);
  return response;
}

std::shared_ptr<UnaryCall> OperationServiceImpl::wait_operation(
    const Caller& caller, const v1::WaitOperationRequest& request,
    v1::WaitOperationResponse* response) {
  return std::make_shared<OperationWait>(runs_, timer_, caller, request, response);
}

std::shared_ptr<Stream<v1::WatchOperationResponse>> OperationServiceImpl::watch_operation(
    const Caller& caller, const v1::WatchOperationRequest& request) {
  return std::make_shared<OperationWatch>(watches_, caller, runs_, request);
}

v1::ListOperationsResponse OperationServiceImpl::list_operations(
    const Caller& caller, const v1::ListOperationsRequest& request) {
  v1::ListOperationsResponse response;
  const std::string run = parse_run_name(request.run());
  runs_.find(run)->is_of_holder(caller.run_token());
  const std::string scope = "operations of " + run;
  const auto position = parse_page_token(scope, request.page_token());
  auto [operations, next] =
      runs_.operations().list(run, position, page_size_of(request, kMostOperations));
  for (v1::Operation& operation : operations) *response.add_operations() = std::move(operation);
  if (next > 0) response.set_next_page_token(make_page_token(scope, next));
  return response;
}

v1::CancelOperationResponse OperationServiceImpl::cancel_operation(
    const Caller& caller, const v1::CancelOperationRequest& request) {
  v1::CancelOperationResponse response;
  const auto run = runs_.find(runs_.operations().run_of(request.name()));
  run->check_holder(caller.run_token());
  *response.mutable_operation() = runs_.operations().cancel(request.name());
  return response;
}

std::shared_ptr<Stream<v1::ReadResultResponse>> OperationServiceImpl::read_result(
    const Caller& caller, const v1::ReadResultRequest& request) {
  return std::make_shared<ResultStream>(reads_, caller, runs_, request);
}

// gRPC calls these adapters of the handlers.

grpc::Status OperationServiceImpl::GetOperation(grpc::ServerContext* context,
                                                const v1::GetOperationRequest* request,
                                                v1::GetOperationResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = get_operation(caller, *request); });
}

grpc::ServerUnaryReactor* OperationServiceImpl::WaitOperation(
    grpc::CallbackServerContext* context, const v1::WaitOperationRequest* request,
    v1::WaitOperationResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return wait_operation(caller, *request, response); });
}

grpc::ServerWriteReactor<v1::WatchOperationResponse>* OperationServiceImpl::WatchOperation(
    grpc::CallbackServerContext* context, const v1::WatchOperationRequest* request) {
  return serve_stream<v1::WatchOperationResponse>(
      gate(), *context, *request,
      [&](const Caller& caller) { return watch_operation(caller, *request); });
}

grpc::Status OperationServiceImpl::ListOperations(grpc::ServerContext* context,
                                                  const v1::ListOperationsRequest* request,
                                                  v1::ListOperationsResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = list_operations(caller, *request); });
}

grpc::Status OperationServiceImpl::CancelOperation(grpc::ServerContext* context,
                                                   const v1::CancelOperationRequest* request,
                                                   v1::CancelOperationResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = cancel_operation(caller, *request); });
}

grpc::ServerWriteReactor<v1::ReadResultResponse>* OperationServiceImpl::ReadResult(
    grpc::CallbackServerContext* context, const v1::ReadResultRequest* request) {
  return serve_stream<v1::ReadResultResponse>(
      gate(), *context, *request,
      [&](const Caller& caller) { return read_result(caller, *request); });
}

}  // namespace meshloom::control
