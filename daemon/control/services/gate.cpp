// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/gate.h"

#include <fmt/format.h>

#include <string_view>

#include "daemon/control/access/access_error.h"
#include "daemon/control/net/grpc_caller.h"
#include "daemon/control/net/status.h"
#include "daemon/control/services/names_of_others.h"
#include "daemon/control/services/usage.h"
#include "daemon/control/stores/names.h"
#include "v1/error.pb.h"

namespace meshloom::control {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// Calls `take` with each text at a path of fields with dots between them; those of all items of a
/// repeated field. Fields that are not set have none.
void visit_texts(const Message& message, std::string_view path,
                 const std::function<void(const std::string&)>& take) {
  const auto dot = path.find('.');
  const auto* reflection = message.GetReflection();
  const FieldDescriptor* field =
      message.GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
  if (field == nullptr)
    throw InternalError(fmt::format("{} has no field {}", message.GetTypeName(), path),
                        "NO_PERMISSION_RULE");
  if (dot == std::string_view::npos) {
    const auto take_one = [&](const std::string& text) {
      if (!text.empty()) take(text);
    };
    if (!field->is_repeated()) return take_one(reflection->GetString(message, field));
    for (int i = 0; i < reflection->FieldSize(message, field); ++i)
      take_one(reflection->GetRepeatedString(message, field, i));
    return;
  }
  const std::string_view rest = path.substr(dot + 1);
  if (field->is_repeated()) {
    for (int i = 0; i < reflection->FieldSize(message, field); ++i)
      visit_texts(reflection->GetRepeatedMessage(message, field, i), rest, take);
  } else if (reflection->HasField(message, field)) {
    visit_texts(reflection->GetMessage(message, field), rest, take);
  }
}

/// The part of a name behind `prefix`, up to the next slash.
std::string part_behind(const std::string& name, std::string_view prefix) {
  return name.substr(prefix.size(), name.find('/', prefix.size()) - prefix.size());
}

[[noreturn]] void refuse_name(const std::string& name, const char* expected) {
  throw InvalidArgument(
      fmt::format("\"{}\" is not valid, expected {}", name.substr(0, 80), expected), "NAME_INVALID",
      {{"name", name.substr(0, 80)}});
}

[[noreturn]] void not_found(const ObjectName& object) {
  const std::string kind = kind_name(object.kind);
  std::string reason = kind + "_NOT_FOUND";
  for (char& c : reason) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  throw NotFound(fmt::format("{} \"{}\" does not exist", kind, object.id), reason,
                 {{kind, object.id}});
}

/// The first object that a request names, for the audit log.
std::string first_object(const MethodRule& rule, const Message& request) {
  std::string name;
  for (const NamedObject& object : rule.objects)
    visit_texts(request, object.field, [&](const std::string& text) {
      if (!name.empty()) return;
      try {
        if (const auto parsed = parse_object(object.form, text)) name = resource_of(*parsed);
      } catch (const InvalidArgument&) {
        name = text;
      }
    });
  return name;
}

}  // namespace

RequestKey request_key_of(const std::string& method, const Message& request, const Caller& caller) {
  RequestKey key = make_request_key(method, request, caller.holder());
  key.by = caller.identity();
  return key;
}

std::optional<ObjectName> parse_object(NameForm form, const std::string& name) {
  if (name.empty()) return std::nullopt;
  constexpr std::string_view kCheckpoints = "checkpoints/", kRuns = "runs/", kJobs = "jobs/",
                             kOperations = "operations/", kModels = "models/", kPlans = "plans/";
  const auto job = [](const std::string& id) {
    return ObjectName{ObjectKind::kJob, parse_job_name(id)};
  };
  const auto run = [](const std::string& id) {
    return ObjectName{ObjectKind::kRun, parse_run_name(id)};
  };
  switch (form) {
    case NameForm::kJob: return job(name);
    case NameForm::kRun: return run(name);
    case NameForm::kUpload: return ObjectName{ObjectKind::kUpload, parse_upload_name(name)};
    case NameForm::kModel: return ObjectName{ObjectKind::kModel, parse_model_name(name)};
    case NameForm::kPlan: return ObjectName{ObjectKind::kPlan, parse_plan_name(name)};
    case NameForm::kMaybeModel:
      if (!name.starts_with(kModels)) return std::nullopt;
      return ObjectName{ObjectKind::kModel, parse_model_name(name)};
    case NameForm::kMaybeCheckpoint:
      if (!names_a_job(name)) return std::nullopt;
      return job(part_behind(name, kCheckpoints));
    case NameForm::kCheckpoint:
      if (name.starts_with(kCheckpoints)) return job(part_behind(name, kCheckpoints));
      if (name.starts_with(kRuns)) return run(part_behind(name, kRuns));
      refuse_name(name, "checkpoints/JOB/FOLDER or runs/RUN/weights/NAME");
    case NameForm::kOfRun:
      if (name.starts_with(kRuns)) return run(part_behind(name, kRuns));
      refuse_name(name, "runs/RUN/states/NAME or runs/RUN/weights/NAME");
    case NameForm::kOperation:
      if (name.starts_with(kOperations)) return run(part_behind(name, kOperations));
      refuse_name(name, "operations/RUN/EPOCH/SEQ");
    case NameForm::kAnyResource:
      if (name.starts_with(kJobs)) return job(name);
      if (name.starts_with(kRuns)) return run(name);
      if (name.starts_with(kModels)) return ObjectName{ObjectKind::kModel, parse_model_name(name)};
      if (name.starts_with(kPlans)) return ObjectName{ObjectKind::kPlan, parse_plan_name(name)};
      refuse_name(name, "jobs/NAME, runs/NAME, models/NAME or plans/SHA256");
  }
  return std::nullopt;
}

std::string resource_of(const ObjectName& object) {
  return fmt::format("{}s/{}", kind_name(object.kind), object.id);
}

Caller Gate::caller_of(const grpc::ServerContextBase& context) const {
  Caller caller = control::caller_of(context);
  return options_.identify ? caller.with_identity(options_.identify(context)) : caller;
}

void Gate::check(const MethodRule& rule, const Caller& caller, const Message& request) const {
  const Identity& who = caller.identity();
  switch (verdict_on_role(rule.least, who.role)) {
    case Verdict::kAllowed: break;
    case Verdict::kUnauthenticated:
      throw AccessError::unauthenticated(
          caller.refusal().empty()
              ? "nobody was proven to make this call: give a token, a certificate, or call from an "
                "account that has a role"
              : caller.refusal());
    default:
      throw AccessError::denied(fmt::format("{} is for {}s; \"{}\" is a {}", rule.method,
                                            role_name(rule.least), who.name, role_name(who.role)),
                                "ROLE_TOO_LOW",
                                {{"method", std::string(rule.method)},
                                 {"needed", role_name(rule.least)},
                                 {"role", role_name(who.role)}});
  }
  if (options_.owners == nullptr) {
    if (who.is_admin()) return;
    throw InternalError("it is not known here whose objects are: admins alone are let in",
                        "NO_OWNERS");
  }
  const auto is_repeat = [&] {
    if (request.GetDescriptor()->FindFieldByName("request_id") == nullptr) return false;
    const RequestKey key = request_key_of(std::string(rule.method), request, caller);
    return !key.id.empty() && options_.owners->is_repeat(key);
  };
  for (const NamedObject& object : rule.objects)
    visit_texts(request, object.field,
                [&](const std::string& name) { check_object(object, caller, name, is_repeat); });
  if (rule.writes && options_.usage != nullptr && !is_repeat())
    options_.usage->check_disk(who.owner());
}

void Gate::check_object(const NamedObject& object, const Caller& caller, const std::string& name,
                        const std::function<bool()>& is_repeat) const {
  const Identity& who = caller.identity();
  std::optional<ObjectName> named;
  try {
    named = parse_object(object.form, name);
  } catch (const InvalidArgument&) {
    // What an admin may not name is for the handler to say, field by field.
    if (who.is_admin()) return;
    throw;
  }
  if (!named) return;
  const auto ownership = options_.owners->find(named->kind, named->id);
  if (!ownership) {
    if (who.is_admin() || is_repeat()) return;
    not_found(*named);
  }
  switch (verdict_on_object(named->kind, object.need, who.role, ownership->to(who))) {
    case Verdict::kAllowed: return;
    case Verdict::kDenied:
      throw AccessError::denied(fmt::format("{} \"{}\" is another's: its owner alone may do this",
                                            kind_name(named->kind), named->id),
                                "NOT_OWNER", {{kind_name(named->kind), named->id}});
    default:
      // Of a name that another has taken since, a repeat is told what became of the caller's own.
      if (is_repeat()) return;
      not_found(*named);
  }
}

bool Gate::may_see(const Identity& who, const std::string& resource) const {
  if (who.is_admin()) return true;
  if (options_.owners == nullptr) return false;
  try {
    const auto named = parse_object(NameForm::kAnyResource, resource);
    const auto ownership = named ? options_.owners->find(named->kind, named->id) : std::nullopt;
    return ownership && (ownership->to(who) != Relation::kOther ||
                         (who.role == Role::kViewer && named->kind == ObjectKind::kJob));
  } catch (const InvalidArgument&) {
    return false;
  }
}

Visit::Visit(const Gate& gate, Caller caller, const Message& request, Message* response)
    : gate_(&gate),
      caller_(std::move(caller)),
      rule_(&rule_of_request(request.GetDescriptor()->name())),
      response_(response) {
  if (gate.audit() != nullptr) {
    object_ = first_object(*rule_, request);
    add_bytes(request.ByteSizeLong());
  }
  refusal_ = guarded(method(), [&] { gate.check(*rule_, caller_, request); });
}

void Visit::hide_names(Message* response) const {
  hide_others(response, [this](const std::string& resource) {
    return gate_->may_see(caller_.identity(), resource);
  });
}

grpc::Status Visit::without_others(const grpc::Status& status) const {
  constexpr const char* kUsedBy = "used_by";
  const auto may_see = [this](const std::string& resource) {
    return gate_->may_see(caller_.identity(), resource);
  };
  v1::RpcStatus details;
  v1::ErrorInfo info;
  if (!details.ParseFromString(status.error_details()) || details.details().empty() ||
      !info.ParseFromString(details.details(0).value()))
    return status;
  details.set_message(without_names_of_others(details.message(), may_see));
  for (auto& [key, value] : *info.mutable_metadata())
    value = without_names_of_others(value, may_see);
  if (const auto user = info.metadata().find(kUsedBy); user != info.metadata().end()) {
    const bool whole = user->second.find('/') != std::string::npos;
    if (!may_see(whole ? user->second : job_resource(user->second))) {
      info.mutable_metadata()->erase(kUsedBy);
      details.set_message("it is in use by something that is another's");
    }
  }
  details.mutable_details(0)->set_value(info.SerializeAsString());
  return {status.error_code(), details.message(), details.SerializeAsString()};
}

grpc::Status Visit::end(const grpc::Status& status) {
  if (AuditLog* log = gate_->audit()) {
    AuditLog::Call call;
    call.who = caller_.identity().name;
    call.role = role_name(caller_.identity().role);
    call.from = caller_.address();
    call.method = rule_->method;
    call.object = object_;
    call.code = code_text(status.error_code());
    v1::RpcStatus details;
    v1::ErrorInfo info;
    if (!status.ok() && details.ParseFromString(status.error_details()) &&
        !details.details().empty() && info.ParseFromString(details.details(0).value()))
      call.reason = info.reason();
    call.bytes = bytes_;
    call.duration = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - begin_);
    call.always = rule_->changes && status.ok();
    log->write(call);
  }
  if (!hides_names()) return status;
  if (!status.ok()) return without_others(status);
  if (response_ != nullptr) hide_names(response_);
  return status;
}

}  // namespace meshloom::control
