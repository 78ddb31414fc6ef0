// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/access_service.h"

#include "daemon/base/field_error.h"
#include "daemon/base/utf8.h"
#include "daemon/control/access/sharing.h"
#include "daemon/control/net/status.h"
#include "daemon/control/services/grpc_door.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

/// The name of an identity, as a client gives it.
void check_owner_name(const char* field, const std::string& name) {
  if (name.size() > kLongestOwner)
    base::refuse_field(field, "has {} bytes, at most {} are taken", name.size(), kLongestOwner);
  if (base::printable_text(name, std::string::npos, false) != name)
    base::refuse_field(field, "\"{}\" has control characters, or bytes that are not UTF-8",
                       base::shown(name));
}

template <typename Message>
v1::ShareObjectResponse shares_of(const Message& message) {
  v1::ShareObjectResponse response;
  const Ownership ownership = ownership_of(message);
  response.set_shared(ownership.shared);
  for (const std::string& name : ownership.shared_with) response.add_shared_with(name);
  return response;
}

/// The lines of the log that pass, in messages of many lines.
class AuditStream final : public Stream<v1::ReadAuditResponse> {
 public:
  AuditStream(StreamHost& host, const Caller& caller, const AuditLog& log,
              const v1::ReadAuditRequest& request)
      : Stream(host, caller, "ReadAudit"), log_(log), request_(request) {}

 private:
  bool produce() override {
    constexpr int kLinesAtOnce = 500;
    v1::ReadAuditResponse lines;
    log_.read({request_.object(), request_.who(), request_.since()}, [&](const std::string& line) {
      lines.add_lines(line);
      if (lines.lines_size() == kLinesAtOnce) write(std::exchange(lines, {}));
      return !ended();
    });
    if (lines.lines_size() > 0) write(std::move(lines));
    finish();
    return false;
  }

  const AuditLog& log_;
  const v1::ReadAuditRequest request_;
};

}  // namespace

v1::ShareObjectResponse AccessServiceImpl::share_object(const Caller& caller,
                                                        const v1::ShareObjectRequest& request) {
  const auto object = parse_object(NameForm::kAnyResource, request.name());
  if (!object) base::refuse_field("name", "is empty: it says what is shared");
  check_owner_name("with", request.with());
  if (!request.role().empty() && request.role() != "viewer")
    base::refuse_field("role", "\"{}\" cannot be given of one object, expected viewer",
                       base::shown(request.role()));
  const bool of_all = object->kind == ObjectKind::kModel || object->kind == ObjectKind::kPlan;
  if (request.with().empty() && !of_all)
    base::refuse_field("with", "is empty: a {} is shared with somebody", kind_name(object->kind));
  const RequestKey key = request_key_of("ShareObject", request, caller);
  const bool back = request.take_back();
  v1::ShareObjectResponse response;
  if (object->kind == ObjectKind::kJob)
    response = shares_of(world_.jobs.share(object->id, request.with(), back, key));
  else if (object->kind == ObjectKind::kModel)
    response = shares_of(world_.models.share(object->id, request.with(), back, key));
  else if (object->kind == ObjectKind::kPlan)
    response = shares_of(world_.plans.share(object->id, request.with(), back, key));
  else {
    const auto run = world_.runs.find(object->id);
    run->share(request.with(), back);
    response = shares_of(run->view());
  }
  response.set_name(resource_of(*object));
  return response;
}

v1::GiveJobResponse AccessServiceImpl::give_job(const Caller& caller,
                                                const v1::GiveJobRequest& request) {
  const std::string id = parse_job_name(request.name());
  check_owner_name("owner", request.owner());
  const RequestKey key = request_key_of("GiveJob", request, caller);
  v1::GiveJobResponse response;
  response.set_owner(world_.jobs.give(id, request.owner(), key).owner());
  spdlog::info("job {}: an admin gives it to {}", id,
               request.owner().empty() ? "the admins" : request.owner());
  return response;
}

v1::GetUsageResponse AccessServiceImpl::get_usage(const Caller& caller) {
  return world_.usage.tell(caller.identity());
}

std::shared_ptr<Stream<v1::ReadAuditResponse>> AccessServiceImpl::read_audit(
    const Caller& caller, const v1::ReadAuditRequest& request) {
  return std::make_shared<AuditStream>(reads_, caller, world_.audit, request);
}

// gRPC calls these adapters of the handlers.

grpc::Status AccessServiceImpl::ShareObject(grpc::ServerContext* context,
                                            const v1::ShareObjectRequest* request,
                                            v1::ShareObjectResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = share_object(caller, *request); });
}

grpc::Status AccessServiceImpl::GiveJob(grpc::ServerContext* context,
                                        const v1::GiveJobRequest* request,
                                        v1::GiveJobResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = give_job(caller, *request); });
}

grpc::Status AccessServiceImpl::GetUsage(grpc::ServerContext* context,
                                         const v1::GetUsageRequest* request,
                                         v1::GetUsageResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = get_usage(caller); });
}

grpc::ServerWriteReactor<v1::ReadAuditResponse>* AccessServiceImpl::ReadAudit(
    grpc::CallbackServerContext* context, const v1::ReadAuditRequest* request) {
  return serve_stream<v1::ReadAuditResponse>(gate(), *context, *request, [&](const Caller& caller) {
    return read_audit(caller, *request);
  });
}

}  // namespace meshloom::control
