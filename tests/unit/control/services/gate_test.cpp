// SPDX-License-Identifier: Apache-2.0
// What each method answers to whom, made from the table of permissions and asked of real services.
#include "daemon/control/services/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "daemon/control/stores/names.h"
#include "tests/unit/control/client_services.h"
#include "tests/unit/control/status_info.h"
#include "tests/unit/control/whole_daemon.h"

namespace meshloom::control {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

std::unique_ptr<Message> request_for(const MethodDescriptor& method) {
  return std::unique_ptr<Message>(google::protobuf::MessageFactory::generated_factory()
                                      ->GetPrototype(method.input_type())
                                      ->New());
}

/// Sets a text at a path with dots; in the first item of repeated fields.
void set_name_at(Message* message, std::string_view path, const std::string& text) {
  const auto dot = path.find('.');
  const auto* field = message->GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
  const auto* reflection = message->GetReflection();
  if (dot == std::string_view::npos)
    return field->is_repeated() ? reflection->AddString(message, field, text)
                                : reflection->SetString(message, field, text);
  set_name_at(field->is_repeated() ? reflection->AddMessage(message, field)
                                   : reflection->MutableMessage(message, field),
              path.substr(dot + 1), text);
}

grpc::StatusCode code_meant_by(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAllowed: return grpc::StatusCode::OK;
    case Verdict::kUnauthenticated: return grpc::StatusCode::UNAUTHENTICATED;
    case Verdict::kDenied: return grpc::StatusCode::PERMISSION_DENIED;
    case Verdict::kHidden: return grpc::StatusCode::NOT_FOUND;
  }
  return grpc::StatusCode::UNKNOWN;
}

class GateTest : public ::testing::Test {
 protected:
  GateTest() {
    make(kAlice, "alices");
    make(Identity::admin(), "admins");
  }
  /// A job, a run, an upload, a model and a plan of an owner.
  void make(const Identity& who, const std::string& name) {
    v1::SubmitJobRequest job;
    job.mutable_spec()->set_name(name);
    job.mutable_spec()->mutable_run()->mutable_training()->set_steps(1);
    v1::SubmitJobResponse submitted;
    expect_ok(daemon_.ask(who, "JobService", job, &submitted));
    v1::CreateRunRequest run;
    run.mutable_spec()->set_name(name);
    run.mutable_spec()->mutable_config()->mutable_model()->set_preset("byte_gpt_1m");
    v1::CreateRunResponse created;
    expect_ok(daemon_.ask(who, "RunService", run, &created));
    v1::CreateModelRequest model;
    model.set_name(name);
    model.set_preset("byte_gpt_1m");
    v1::CreateModelResponse held;
    expect_ok(daemon_.ask(who, "ModelService", model, &held));
    v1::CreatePlanRequest plan;
    plan.mutable_model()->set_preset("byte_gpt_1m");
    plan.mutable_query()->mutable_mesh()->set_dp(1);
    v1::CreatePlanResponse kept;
    expect_ok(daemon_.ask(who, "PlanService", plan, &kept));
    v1::CreateUploadRequest upload;
    upload.set_file_name("a.bin");
    upload.set_size_bytes(3);
    upload.set_sha256(std::string(64, 'a'));
    v1::CreateUploadResponse sent;
    expect_ok(daemon_.ask(who, "UploadService", upload, &sent));
    names_[name] = {{ObjectKind::kJob, "jobs/" + name},
                    {ObjectKind::kRun, "runs/" + name},
                    {ObjectKind::kModel, "models/" + name},
                    {ObjectKind::kPlan, kept.plan().name()},
                    {ObjectKind::kUpload, sent.upload().name()}};
  }
  static void expect_ok(const grpc::Status& status) {
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  /// An object of `whose`, as a field of this form names it. Of names that are not there: "absent".
  std::vector<std::pair<ObjectKind, std::string>> names_in(NameForm form,
                                                           const std::string& whose) const {
    const auto name = [&](ObjectKind kind) -> std::string {
      if (whose != "absent") return names_.at(whose).at(kind);
      if (kind == ObjectKind::kPlan) return "plans/0123456789abcdef";
      if (kind == ObjectKind::kUpload) return "uploads/upload-99";
      return std::string(kind_name(kind)) + "s/absent";
    };
    switch (form) {
      case NameForm::kJob: return {{ObjectKind::kJob, name(ObjectKind::kJob)}};
      case NameForm::kRun: return {{ObjectKind::kRun, name(ObjectKind::kRun)}};
      case NameForm::kUpload: return {{ObjectKind::kUpload, name(ObjectKind::kUpload)}};
      case NameForm::kModel:
      case NameForm::kMaybeModel: return {{ObjectKind::kModel, name(ObjectKind::kModel)}};
      case NameForm::kPlan: return {{ObjectKind::kPlan, name(ObjectKind::kPlan)}};
      case NameForm::kCheckpoint:
        return {{ObjectKind::kJob, "checkpoints/" + whose + "/step-1"},
                {ObjectKind::kRun, "runs/" + whose + "/weights/w"}};
      case NameForm::kMaybeCheckpoint:
        return {{ObjectKind::kJob, "checkpoints/" + whose + "/step-1"}};
      case NameForm::kOfRun:
        return {{ObjectKind::kRun, "runs/" + whose + "/states/s"},
                {ObjectKind::kRun, "runs/" + whose + "/weights/w"}};
      case NameForm::kOperation: return {{ObjectKind::kRun, "operations/" + whose + "/1/1"}};
      case NameForm::kAnyResource:
        return {{ObjectKind::kJob, name(ObjectKind::kJob)},
                {ObjectKind::kRun, name(ObjectKind::kRun)},
                {ObjectKind::kModel, name(ObjectKind::kModel)},
                {ObjectKind::kPlan, name(ObjectKind::kPlan)}};
    }
    return {};
  }
  RawAnswer ask(const Identity& who, const MethodDescriptor& method, const Message& request) const {
    return daemon_.call(who, "/" + method.service()->full_name() + "/" + method.name(), request);
  }

  WholeDaemon daemon_;
  std::map<std::string, std::map<ObjectKind, std::string>> names_;
};

TEST_F(GateTest, NobodyCallsAnything) {
  for (const MethodDescriptor* method : client_methods()) {
    if (method->name() == "WhoAmI") continue;
    const auto request = request_for(*method);
    const grpc::Status status = ask(kNobody, *method, *request).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method->full_name();
    EXPECT_EQ(info_of(status).reason(), "UNAUTHENTICATED") << method->full_name();
  }
}

TEST_F(GateTest, RolesBelowTheLeastAreDenied) {
  for (const MethodDescriptor* method : client_methods()) {
    const MethodRule& rule = rule_of_request(method->input_type()->name());
    for (const Identity& who : {kVera, kBob}) {
      if (who.role >= rule.least) continue;
      const grpc::Status status = ask(who, *method, *request_for(*method)).status;
      EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << method->full_name();
      EXPECT_EQ(info_of(status).reason(), "ROLE_TOO_LOW") << method->full_name();
    }
  }
  EXPECT_FALSE(daemon_.stop_asked());
}

/// Every field of every method that names an object, with another's: the code that the table says,
/// and where it hides the object the very words that are said of one that is not there.
TEST_F(GateTest, OthersObjectsAreAsTheTableSays) {
  int hidden = 0;
  for (const MethodDescriptor* method : client_methods()) {
    const MethodRule& rule = rule_of_request(method->input_type()->name());
    for (const NamedObject& object : rule.objects)
      for (const Identity& who : {kVera, kBob, Identity::admin()}) {
        if (who.role < rule.least) continue;
        const auto others = names_in(object.form, "alices"), none = names_in(object.form, "absent");
        for (std::size_t i = 0; i < others.size(); ++i) {
          const auto& [kind, name] = others[i];
          SCOPED_TRACE(method->full_name() + " " + std::string(object.field) + " " + name + " " +
                       role_name(who.role));
          const Verdict verdict = verdict_on_object(kind, object.need, who.role, Relation::kOther);
          const auto request = request_for(*method);
          set_name_at(request.get(), object.field, name);
          if (verdict == Verdict::kAllowed) {
            const Caller caller("192.0.2.7", "me", "", who);
            EXPECT_NO_THROW(daemon_.gate().check(rule, caller, *request));
            continue;
          }
          const grpc::Status status = ask(who, *method, *request).status;
          EXPECT_EQ(status.error_code(), code_meant_by(verdict)) << status.error_message();
          if (verdict != Verdict::kHidden) continue;
          ++hidden;
          const auto absent = request_for(*method);
          set_name_at(absent.get(), object.field, none[i].second);
          const grpc::Status gone = ask(who, *method, *absent).status;
          EXPECT_EQ(gone.error_code(), status.error_code());
          EXPECT_EQ(info_of(gone).reason(), info_of(status).reason());
          const auto without = [](std::string text) {
            return text.substr(0, text.find('"')) + text.substr(text.rfind('"'));
          };
          EXPECT_EQ(without(gone.error_message()), without(status.error_message()));
        }
      }
  }
  EXPECT_GT(hidden, 50);
  // Nothing of it has had an effect.
  EXPECT_EQ(daemon_.jobs().get("alices").state(), v1::JOB_STATE_QUEUED);
}

TEST_F(GateTest, OwnersAreLetIn) {
  for (const MethodDescriptor* method : client_methods()) {
    const MethodRule& rule = rule_of_request(method->input_type()->name());
    if (rule.least > Role::kSubmitter) continue;
    for (const NamedObject& object : rule.objects)
      for (const auto& [kind, name] : names_in(object.form, "alices")) {
        const auto request = request_for(*method);
        set_name_at(request.get(), object.field, name);
        const Caller caller("192.0.2.7", "me", "", kAlice);
        EXPECT_NO_THROW(daemon_.gate().check(rule, caller, *request))
            << method->full_name() << " " << object.field << " " << name;
      }
  }
}

/// The name of a run is no proof, nor is its owner's name: driving takes its token, too.
TEST_F(GateTest, AWrongTokenOfARunIsRefusedAsBefore) {
  v1::HeartbeatRequest beat;
  beat.set_name("alices");
  v1::HeartbeatResponse response;
  const grpc::Status status = daemon_.ask(kAlice, "RunService", beat, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(info_of(status).reason(), "TOKEN_INVALID");
}

TEST_F(GateTest, CallsAreInTheAuditLog) {
  v1::CancelJobRequest cancel;
  cancel.set_name("alices");
  v1::CancelJobResponse response;
  EXPECT_FALSE(daemon_.ask(kBob, "JobService", cancel, &response).ok());
  EXPECT_TRUE(daemon_.ask(kAlice, "JobService", cancel, &response).ok());
  v1::ReadAuditRequest audit;
  audit.set_object("jobs/alices");
  v1::ReadAuditResponse lines;
  EXPECT_TRUE(daemon_.ask(kRoot, "AccessService", audit, &lines).ok());
  std::string text;
  for (const std::string& line : lines.lines()) text += line + "\n";
  EXPECT_THAT(text, ::testing::HasSubstr("\"who\":\"bob\",\"role\":\"submitter\",\"from\":"
                                         "\"127.0.0.1\",\"method\":\"CancelJob\",\"object\":"
                                         "\"jobs/alices\",\"code\":\"NOT_FOUND\""));
  EXPECT_THAT(text, ::testing::HasSubstr("\"who\":\"alice\""));
}

}  // namespace
}  // namespace meshloom::control
