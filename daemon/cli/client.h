// SPDX-License-Identifier: Apache-2.0
// Client is the connection to a daemon: it has deadlines, tries again, and throws gRPC errors as
// CliError.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "daemon/cli/credentials.h"
#include "daemon/cli/exit_code.h"
#include "v1/access_service.grpc.pb.h"
#include "v1/checkpoint_service.grpc.pb.h"
#include "v1/data_service.grpc.pb.h"
#include "v1/evaluate_service.grpc.pb.h"
#include "v1/event_service.grpc.pb.h"
#include "v1/generate_service.grpc.pb.h"
#include "v1/job_service.grpc.pb.h"
#include "v1/model_service.grpc.pb.h"
#include "v1/operation_service.grpc.pb.h"
#include "v1/plan_service.grpc.pb.h"
#include "v1/run_service.grpc.pb.h"
#include "v1/token_service.grpc.pb.h"
#include "v1/upload_service.grpc.pb.h"
#include "v1/worker_service.grpc.pb.h"

namespace meshloom::cli {

struct CallOptions {
  std::chrono::seconds deadline{30};
};

/// A connection is made by the first call. Several threads may call at a time.
class Client {
 public:
  /// `name`: what this client is called, so that it finds its uploads again; empty: by its address.
  /// `run_token`: of the one run that all calls are about, if they are about one. `credentials`: as
  /// read_credentials() made them for the address.
  explicit Client(const std::string& address, std::string name = "", std::string run_token = "",
                  const Credentials& credentials = {});

  const std::string& address() const { return address_; }
  v1::TokenService::Stub& tokens() { return *tokens_; }
  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::GenerateService::Stub& generation() { return *generation_; }
  v1::EvaluateService::Stub& evaluation() { return *evaluation_; }
  v1::DataService::Stub& data() { return *data_; }
  v1::CheckpointService::Stub& checkpoints() { return *checkpoints_; }
  v1::WorkerService::Stub& workers() { return *workers_; }
  v1::UploadService::Stub& uploads() { return *uploads_; }
  v1::ModelService::Stub& models() { return *models_; }
  v1::PlanService::Stub& plans() { return *plans_; }
  v1::AccessService::Stub& access() { return *access_; }
  v1::RunService::Stub& runs() { return *runs_; }
  v1::OperationService::Stub& operations() { return *operations_; }
  v1::EventService::Stub& events() { return *events_; }

  /// Makes a unary call with a deadline. What may do a moment later is tried again, kAttempts times
  /// in all, with growing pauses: UNAVAILABLE, and what gRPC refuses before any handler since all
  /// of the daemon's threads have calls. Mutating requests carry a request_id or a number, so that
  /// a repeat is harmless.
  template <typename Stub, typename Request, typename Response>
  Response call(Stub& stub,
                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                const Request& request, const CallOptions& options = {}) {
    for (int attempt = 1;; ++attempt) {
      grpc::ClientContext context;
      introduce(context);
      context.set_deadline(std::chrono::system_clock::now() + options.deadline);
      Response response;
      const grpc::Status status = (stub.*method)(&context, request, &response);
      if (status.ok()) return response;
      if (!wait_to_repeat(status, attempt)) fail(status);
    }
  }

  /// Calls for all pages of a list as call() does, and returns them as one answer.
  template <typename Stub, typename Request, typename Response>
  Response list(Stub& stub,
                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                Request request = {}, const CallOptions& options = {}) {
    Response all;
    do {
      const Response page = call(stub, method, request, options);
      request.set_page_token(page.next_page_token());
      all.MergeFrom(page);
    } while (!request.page_token().empty());
    all.clear_next_page_token();
    return all;
  }

  /// Says who calls. call() does it by itself; calls that stream need it.
  void introduce(grpc::ClientContext& context) const {
    if (!name_.empty()) context.AddMetadata("meshloom-client", name_);
    if (!run_token_.empty()) context.AddMetadata("meshloom-run-token", run_token_);
    if (!authorization_.empty()) context.AddMetadata("authorization", authorization_);
  }

  /// Throws what the status means, for calls that stream.
  [[noreturn]] void fail(const grpc::Status& status) const;

  /// Returns early if a connection stands. gRPC connects again only while somebody waits for it: a
  /// plain sleep between two calls would let the second fail as the first did.
  void wait_for_connection(std::chrono::milliseconds timeout);

  /// kBusy: there is a connection, and no answer in kHealthTime.
  enum class Health { kUnreachable, kBusy, kNotServing, kServing };
  static constexpr std::chrono::seconds kHealthTime{2};
  /// Returns what the daemon's health service says; it serves if all ranks have joined and none is
  /// frozen or stuck.
  Health health();

 private:
  static constexpr int kAttempts = 4;
  /// Returns false at once if the call is not to be tried again.
  bool wait_to_repeat(const grpc::Status& status, int attempt);

  std::string address_;
  std::string name_;
  std::string run_token_;
  std::string authorization_;  ///< empty: no token is shown
  bool encrypts_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::TokenService::Stub> tokens_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::GenerateService::Stub> generation_;
  std::unique_ptr<v1::EvaluateService::Stub> evaluation_;
  std::unique_ptr<v1::DataService::Stub> data_;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoints_;
  std::unique_ptr<v1::WorkerService::Stub> workers_;
  std::unique_ptr<v1::UploadService::Stub> uploads_;
  std::unique_ptr<v1::ModelService::Stub> models_;
  std::unique_ptr<v1::PlanService::Stub> plans_;
  std::unique_ptr<v1::AccessService::Stub> access_;
  std::unique_ptr<v1::RunService::Stub> runs_;
  std::unique_ptr<v1::OperationService::Stub> operations_;
  std::unique_ptr<v1::EventService::Stub> events_;
};

/// Returns "host:port" for an address as people write it: "http://host:port/", "host" (of port
/// 7420), "[::1]", "7421" (a port of this host). Addresses of gRPC ("unix:...") stay as they are.
/// Throws CliError (kUsage) for https, and where no host is named.
std::string complete_address(const std::string& given);

/// Returns the details that travel with a status; code and message alone if there are none.
v1::ErrorDetails details_of(const grpc::Status& status);

/// Returns a random UUID (version 4).
std::string make_request_id();

}  // namespace meshloom::cli
