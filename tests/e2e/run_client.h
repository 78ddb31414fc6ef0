// SPDX-License-Identifier: Apache-2.0
// RunClient: one client of one run that is driven step by step, over real gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "v1/operation_service.grpc.pb.h"
#include "v1/run_service.grpc.pb.h"
#include "v1/upload_service.grpc.pb.h"

namespace meshloom::e2e {

/// What became of a call or of the verb that it asked for.
struct Outcome {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string reason;   ///< of the error
  std::string field;    ///< that is wrong, if one is
  std::string message;  ///< of the error
  v1::Operation operation;

  bool ok() const { return code == grpc::StatusCode::OK; }
};

/// Numbers verbs itself: next_seq grows with each of them. Used by one thread.
class RunClient {
 public:
  using Runs = v1::RunService::Stub;

  explicit RunClient(const std::string& address);

  /// Makes a run and waits until it is ready. False, with a failure of the test, where it is not.
  bool create(const v1::RunSpec& spec);
  /// The same without waiting.
  Outcome submit(const v1::RunSpec& spec);
  bool wait_ready();
  v1::Run get() const;
  Outcome close();

  /// Takes the next number for a verb and waits for its end, unless the client is not to.
  template <typename Response, typename Request>
  Outcome run(grpc::Status (Runs::*method)(grpc::ClientContext*, const Request&, Response*),
              Request request) {
    request.mutable_id()->set_seq(next_seq++);
    return run_as<Response>(method, std::move(request));
  }
  /// With the number that the request has.
  template <typename Response, typename Request>
  Outcome run_as(grpc::Status (Runs::*method)(grpc::ClientContext*, const Request&, Response*),
                 Request request) {
    if (request.id().run().empty()) request.mutable_id()->set_run(name);
    if (request.id().epoch() == 0) request.mutable_id()->set_epoch(epoch);
    grpc::ClientContext context;
    prepare(context);
    Response response;
    const grpc::Status status = (runs_.get()->*method)(&context, request, &response);
    if (!status.ok()) return outcome_of(status);
    Outcome begun;
    begun.operation = response.operation();
    return waits ? wait(begun.operation.name()) : begun;
  }
  /// A call that is no verb.
  template <typename Stub, typename Response, typename Request>
  Outcome call(Stub& stub,
               grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
               const Request& request) const {
    grpc::ClientContext context;
    prepare(context);
    Response response;
    return outcome_of((stub.*method)(&context, request, &response));
  }
  template <typename Response, typename Request>
  Outcome call(grpc::Status (Runs::*method)(grpc::ClientContext*, const Request&, Response*),
               const Request& request) const {
    return call(*runs_, method, request);
  }
  /// A call whose answer is a stream, which is read to its end.
  template <typename Stub, typename Response, typename Request>
  Outcome call(Stub& stub,
               std::unique_ptr<grpc::ClientReader<Response>> (Stub::*method)(grpc::ClientContext*,
                                                                             const Request&),
               const Request& request) const {
    grpc::ClientContext context;
    prepare(context);
    const auto reader = (stub.*method)(&context, request);
    Response response;
    while (reader->Read(&response)) continue;
    return outcome_of(reader->Finish());
  }
  static Outcome outcome_of(const grpc::Status& status);
  /// With the client's name and token.
  void prepare(grpc::ClientContext& context) const;
  Outcome forward_backward(const v1::LossBatch& batch);
  Outcome forward(const v1::LossBatch& batch);
  Outcome optim_step(const v1::OptimStepParams& params = {});
  Outcome save_state(const std::string& state);
  Outcome save_weights(const std::string& folder);
  /// Saves the weights as "end"; the bytes of their file below the daemon's state dir.
  std::string weights(const std::filesystem::path& state_dir);
  Outcome sample(const v1::SampleRequest& request);
  Outcome wait(const std::string& operation);
  Outcome cancel(const std::string& operation);
  /// The operation as it is now.
  Outcome look(const std::string& operation);
  Outcome heartbeat();
  /// Sends bytes as a complete transient upload of the run; its name is put into `upload`.
  Outcome upload(const std::string& bytes, std::string* upload);
  Outcome upload_state(const std::string& upload);

  std::string name, token;
  std::int64_t epoch = 1, next_seq = 1;
  bool waits = true;  ///< for the end of verbs

 private:
  std::unique_ptr<v1::RunService::Stub> runs_;
  std::unique_ptr<v1::OperationService::Stub> operations_;
  std::unique_ptr<v1::UploadService::Stub> uploads_;
};

/// Tokens that are followed by the next one each, of a run's text.
v1::Datum next_token_datum(const std::vector<int>& tokens);

}  // namespace meshloom::e2e
