// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/permissions.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace permission_table {

using enum NameForm;
using enum Need;
constexpr Role kNone = Role::kNone, kViewer = Role::kViewer, kSubmitter = Role::kSubmitter,
               kAdmin = Role::kAdmin;

// What the sections of a run's config name, of which a request has its own path.
constexpr std::array kSubmitted{
    NamedObject{"spec.run.model.name", kModel, kUse},
    NamedObject{"spec.run.data.tokenizer", kMaybeModel, kUse},
    NamedObject{"spec.run.plan.name", kPlan, kUse},
    NamedObject{"spec.run.checkpoint.resume_from", kMaybeCheckpoint, kOwnerAlone}};
constexpr std::array kCreatedRun{NamedObject{"spec.state", kOfRun, kOwnerAlone},
                                 NamedObject{"spec.config.model.name", kModel, kUse},
                                 NamedObject{"spec.config.data.tokenizer", kMaybeModel, kUse},
                                 NamedObject{"spec.config.plan.name", kPlan, kUse}};
constexpr std::array kPlanned{NamedObject{"model.name", kModel, kUse},
                              NamedObject{"query.plan.name", kPlan, kUse}};
constexpr std::array kSearched{NamedObject{"model.name", kModel, kUse},
                               NamedObject{"query.query.plan.name", kPlan, kUse}};
constexpr std::array kSampled{NamedObject{"job", kJob, kOwnerAlone},
                              NamedObject{"checkpoint", kCheckpoint, kOwnerAlone},
                              NamedObject{"model", kModel, kUse}};
constexpr std::array kEvaluated{
    NamedObject{"job", kJob, kOwnerAlone}, NamedObject{"checkpoint", kCheckpoint, kOwnerAlone},
    NamedObject{"model", kModel, kUse}, NamedObject{"data.tokenizer", kMaybeModel, kUse},
    NamedObject{"plan.name", kPlan, kUse}};
constexpr std::array kReading{NamedObject{"reading.tokenizer", kMaybeModel, kUse}};
constexpr std::array kText{NamedObject{"source.model.name", kModel, kUse},
                           NamedObject{"source.tokenizer", kMaybeModel, kUse}};
constexpr std::array kMoved{NamedObject{"name", kJob, kOwn}, NamedObject{"before", kJob, kOwn},
                            NamedObject{"after", kJob, kOwn}};

constexpr std::array kJobLook{NamedObject{"name", kJob, kLook}};
constexpr std::array kJobOwn{NamedObject{"name", kJob, kOwn}};
constexpr std::array kCheckpointsOfJob{NamedObject{"job", kJob, kOwn}};
constexpr std::array kCheckpointTaken{NamedObject{"name", kCheckpoint, kOwnerAlone}};
constexpr std::array kCheckpointOwn{NamedObject{"name", kCheckpoint, kOwn}};
constexpr std::array kModelLook{NamedObject{"name", kModel, kLook}};
constexpr std::array kModelOwn{NamedObject{"name", kModel, kOwn}};
constexpr std::array kPlanLook{NamedObject{"name", kPlan, kLook}};
constexpr std::array kPlanOwn{NamedObject{"name", kPlan, kOwn}};
constexpr std::array kRunUse{NamedObject{"name", kRun, kUse}};
constexpr std::array kRunOwn{NamedObject{"name", kRun, kOwn}};
constexpr std::array kRunBeaten{NamedObject{"name", kRun, kOwnerAlone}};
constexpr std::array kStatesOfRun{NamedObject{"run", kRun, kUse}};
constexpr std::array kOperationsOfRun{NamedObject{"run", kRun, kOwn}};
constexpr std::array kPartOwn{NamedObject{"name", kOfRun, kOwn}};
constexpr std::array kRunDriven{NamedObject{"id.run", kRun, kOwnerAlone}};
constexpr std::array kWeightsLoaded{NamedObject{"id.run", kRun, kOwnerAlone},
                                    NamedObject{"state", kOfRun, kOwnerAlone}};
constexpr std::array kRunSampled{NamedObject{"run", kRun, kOwnerAlone},
                                 NamedObject{"weights", kOfRun, kOwnerAlone}};
constexpr std::array kOperationTaken{NamedObject{"name", kOperation, kOwnerAlone}};
constexpr std::array kUploadOfRun{NamedObject{"run", kRun, kOwnerAlone}};
constexpr std::array kUploadOwn{NamedObject{"name", kUpload, kOwn}};
constexpr std::array kUploadTaken{NamedObject{"name", kUpload, kOwnerAlone}};
constexpr std::array kImported{NamedObject{"upload", kUpload, kOwnerAlone}};
constexpr std::array kModelMade{NamedObject{"uploads.files.upload", kUpload, kOwnerAlone}};
constexpr std::array kSharedObject{NamedObject{"name", kAnyResource, kOwn}};

constexpr std::array kRules{
    MethodRule{"JobService", "SubmitJob", kSubmitter, true, true, kSubmitted},
    MethodRule{"JobService", "ReadConfig", kViewer, false, false, {}},
    MethodRule{"JobService", "GetJob", kViewer, false, false, kJobLook},
    MethodRule{"JobService", "ListJobs", kViewer, false, false, {}},
    MethodRule{"JobService", "WatchJob", kViewer, false, false, kJobLook},
    MethodRule{"JobService", "CancelJob", kSubmitter, true, false, kJobOwn},
    MethodRule{"JobService", "ReleaseJob", kSubmitter, true, false, kJobOwn},
    MethodRule{"JobService", "DeleteJob", kSubmitter, true, false, kJobOwn},
    MethodRule{"JobService", "PauseJob", kSubmitter, true, false, kJobOwn},
    MethodRule{"JobService", "ResumeJob", kSubmitter, true, false, kJobOwn},
    MethodRule{"JobService", "MoveJob", kSubmitter, true, false, kMoved},
    MethodRule{"JobService", "LabelJob", kSubmitter, true, false, kJobOwn},
    MethodRule{"JobService", "EditJob", kSubmitter, true, false, kJobOwn},
    MethodRule{"JobService", "StreamLogs", kViewer, false, false, kJobLook},
    MethodRule{"JobService", "StreamMetrics", kViewer, false, false, kJobLook},

    MethodRule{"RunService", "CreateRun", kSubmitter, true, true, kCreatedRun},
    MethodRule{"RunService", "GetRun", kViewer, false, false, kRunUse},
    MethodRule{"RunService", "ListRuns", kViewer, false, false, {}},
    MethodRule{"RunService", "ListStates", kViewer, false, false, kStatesOfRun},
    MethodRule{"RunService", "DeleteState", kSubmitter, true, false, kPartOwn},
    MethodRule{"RunService", "CloseRun", kSubmitter, true, false, kRunOwn},
    MethodRule{"RunService", "DeleteRun", kSubmitter, true, false, kRunOwn},
    MethodRule{"RunService", "Heartbeat", kSubmitter, false, false, kRunBeaten},
    MethodRule{"RunService", "ForwardBackward", kSubmitter, false, false, kRunDriven},
    MethodRule{"RunService", "Forward", kSubmitter, false, false, kRunDriven},
    MethodRule{"RunService", "OptimStep", kSubmitter, false, false, kRunDriven},
    MethodRule{"RunService", "SaveState", kSubmitter, true, true, kRunDriven},
    MethodRule{"RunService", "LoadState", kSubmitter, true, false, kWeightsLoaded},
    MethodRule{"RunService", "SaveWeights", kSubmitter, true, true, kRunDriven},
    MethodRule{"RunService", "DeleteWeights", kSubmitter, true, false, kPartOwn},
    MethodRule{"RunService", "GetParameters", kSubmitter, false, false, kRunDriven},
    MethodRule{"RunService", "SetParameters", kSubmitter, true, false, kRunDriven},
    MethodRule{"RunService", "Skip", kSubmitter, false, false, kRunDriven},
    MethodRule{"RunService", "Sample", kSubmitter, false, false, kRunSampled},

    MethodRule{"OperationService", "GetOperation", kSubmitter, false, false, kOperationTaken},
    MethodRule{"OperationService", "WaitOperation", kSubmitter, false, false, kOperationTaken},
    MethodRule{"OperationService", "ListOperations", kSubmitter, false, false, kOperationsOfRun},
    MethodRule{"OperationService", "WatchOperation", kSubmitter, false, false, kOperationTaken},
    MethodRule{"OperationService", "CancelOperation", kSubmitter, true, false, kOperationTaken},
    MethodRule{"OperationService", "ReadResult", kSubmitter, false, false, kOperationTaken},

    MethodRule{"GenerateService", "Generate", kSubmitter, false, false, kSampled},
    MethodRule{"EvaluateService", "Evaluate", kSubmitter, false, false, kEvaluated},

    MethodRule{"DataService", "InspectData", kSubmitter, false, false, kReading},
    MethodRule{"DataService", "TokenizeData", kSubmitter, true, true, kReading},
    MethodRule{"DataService", "ImportUpload", kSubmitter, true, true, kImported},
    MethodRule{"DataService", "EncodeText", kSubmitter, false, false, kText},
    MethodRule{"DataService", "DecodeTokens", kSubmitter, false, false, kText},

    MethodRule{"CheckpointService", "ListCheckpoints", kSubmitter, false, false, kCheckpointsOfJob},
    MethodRule{"CheckpointService", "ReadCheckpoint", kSubmitter, false, false, kCheckpointTaken},
    MethodRule{"CheckpointService", "ExportCheckpoint", kSubmitter, true, true, kCheckpointTaken},
    MethodRule{"CheckpointService", "DeleteCheckpoint", kSubmitter, true, false, kCheckpointOwn},

    MethodRule{"UploadService", "CreateUpload", kSubmitter, true, false, kUploadOfRun},
    // Its first message comes behind the beginning of the call: the store compares who sends it.
    MethodRule{"UploadService", "WriteUpload", kSubmitter, true, false, {}},
    MethodRule{"UploadService", "GetUpload", kSubmitter, false, false, kUploadOwn},
    MethodRule{"UploadService", "FinishUpload", kSubmitter, true, false, kUploadTaken},
    MethodRule{"UploadService", "AbortUpload", kSubmitter, true, false, kUploadOwn},
    MethodRule{"UploadService", "ListUploads", kSubmitter, false, false, {}},

    MethodRule{"ModelService", "CreateModel", kSubmitter, true, false, kModelMade},
    MethodRule{"ModelService", "GetModel", kViewer, false, false, kModelLook},
    MethodRule{"ModelService", "ListModels", kViewer, false, false, {}},
    MethodRule{"ModelService", "DeleteModel", kSubmitter, true, false, kModelOwn},

    MethodRule{"PlanService", "DescribePlan", kSubmitter, false, false, kPlanned},
    MethodRule{"PlanService", "EstimatePlan", kSubmitter, false, false, kPlanned},
    MethodRule{"PlanService", "SearchPlans", kSubmitter, false, false, kSearched},
    MethodRule{"PlanService", "CreatePlan", kSubmitter, true, false, kPlanned},
    MethodRule{"PlanService", "GetPlan", kViewer, false, false, kPlanLook},
    MethodRule{"PlanService", "ListPlans", kViewer, false, false, {}},
    MethodRule{"PlanService", "DeletePlan", kSubmitter, true, false, kPlanOwn},

    MethodRule{"WorkerService", "ListWorkers", kViewer, false, false, {}},
    MethodRule{"WorkerService", "Shutdown", kAdmin, true, false, {}},
    MethodRule{"WorkerService", "DumpFlight", kAdmin, false, false, {}},
    MethodRule{"WorkerService", "Drain", kAdmin, true, false, {}},
    MethodRule{"WorkerService", "Undrain", kAdmin, true, false, {}},
    MethodRule{"WorkerService", "GetCapabilities", kViewer, false, false, {}},

    MethodRule{"AccessService", "ShareObject", kSubmitter, true, false, kSharedObject},
    MethodRule{"AccessService", "GiveJob", kAdmin, true, false, kJobOwn},
    MethodRule{"AccessService", "GetUsage", kViewer, false, false, {}},
    MethodRule{"AccessService", "ReadAudit", kAdmin, false, false, {}},

    MethodRule{"TokenService", "WhoAmI", kNone, false, false, {}},
    MethodRule{"TokenService", "CreateToken", kAdmin, true, false, {}},
    MethodRule{"TokenService", "ListTokens", kAdmin, false, false, {}},
    MethodRule{"TokenService", "RevokeToken", kAdmin, true, false, {}},
    MethodRule{"TokenService", "RotateToken", kAdmin, true, false, {}},

    MethodRule{"EventService", "StreamEvents", kViewer, false, false, {}},
};

std::map<std::string, const MethodRule*> rules_by_request() {
  std::map<std::string, const MethodRule*> rules;
  for (const MethodRule& rule : kRules) rules[std::string(rule.method) + "Request"] = &rule;
  return rules;
}

/// A kind that the form can name, for the table's text: what is said of it holds for all of them.
ObjectKind kind_of(NameForm form) {
  switch (form) {
    case NameForm::kJob:
    case NameForm::kCheckpoint:
    case NameForm::kMaybeCheckpoint:
    case NameForm::kAnyResource: return ObjectKind::kJob;
    case NameForm::kRun:
    case NameForm::kOfRun:
    case NameForm::kOperation: return ObjectKind::kRun;
    case NameForm::kUpload: return ObjectKind::kUpload;
    case NameForm::kModel:
    case NameForm::kMaybeModel: return ObjectKind::kModel;
    case NameForm::kPlan: return ObjectKind::kPlan;
  }
  return ObjectKind::kJob;
}

std::string object_cell(const MethodRule& rule, Role role, Relation relation) {
  if (verdict_on_role(rule.least, role) != Verdict::kAllowed)
    return code_name(verdict_on_role(rule.least, role));
  std::string text;
  for (const NamedObject& object : rule.objects) {
    const std::string code =
        code_name(verdict_on_object(kind_of(object.form), object.need, role, relation));
    if (text.empty())
      text = code;
    else if (text != code && text.find(code) == std::string::npos)
      text += ", " + code;
  }
  return text.empty() ? "OK" : text;
}

}  // namespace permission_table

using permission_table::kRules;

const char* kind_name(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::kJob: return "job";
    case ObjectKind::kRun: return "run";
    case ObjectKind::kUpload: return "upload";
    case ObjectKind::kModel: return "model";
    case ObjectKind::kPlan: return "plan";
  }
  return "object";
}

std::span<const MethodRule> method_rules() { return kRules; }

const MethodRule& rule_of_request(const std::string& request_type) {
  static const std::map<std::string, const MethodRule*> rules =
      permission_table::rules_by_request();
  const auto found = rules.find(request_type);
  if (found == rules.end())
    throw InternalError(fmt::format("nothing says who may send a {}: nobody may", request_type),
                        "NO_PERMISSION_RULE", {{"request", request_type}});
  return *found->second;
}

Verdict verdict_on_role(Role least, Role role) {
  if (least == Role::kNone) return Verdict::kAllowed;
  if (role == Role::kNone) return Verdict::kUnauthenticated;
  return role < least ? Verdict::kDenied : Verdict::kAllowed;
}

Verdict verdict_on_object(ObjectKind kind, Need need, Role role, Relation relation) {
  if (relation == Relation::kOwn) return Verdict::kAllowed;
  // An admin knows what there is, so that it is no secret what only the owner does.
  if (role == Role::kAdmin) return need == Need::kOwnerAlone ? Verdict::kDenied : Verdict::kAllowed;
  const bool all_look =
      kind == ObjectKind::kJob || kind == ObjectKind::kModel || kind == ObjectKind::kPlan;
  const bool looks = relation == Relation::kShared || (role == Role::kViewer && all_look);
  if (!looks) return Verdict::kHidden;
  if (need == Need::kLook) return Verdict::kAllowed;
  if (need == Need::kUse && relation == Relation::kShared) return Verdict::kAllowed;
  return Verdict::kDenied;
}

const char* code_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAllowed: return "OK";
    case Verdict::kUnauthenticated: return "UNAUTHENTICATED";
    case Verdict::kDenied: return "PERMISSION_DENIED";
    case Verdict::kHidden: return "NOT_FOUND";
  }
  return "INTERNAL";
}

std::string permissions_text() {
  std::string text =
      "| method | own, viewer | own, submitter | shared, viewer | shared, submitter | another's, "
      "viewer | another's, submitter | another's, admin |\n| --- | --- | --- | --- | --- | --- | "
      "--- | --- |\n";
  for (const MethodRule& rule : kRules) {
    text += fmt::format("| {}.{} |", rule.service, rule.method);
    for (const Relation relation : {Relation::kOwn, Relation::kShared, Relation::kOther})
      for (const Role role : {Role::kViewer, Role::kSubmitter, Role::kAdmin})
        if (role != Role::kAdmin || relation == Relation::kOther)
          text += fmt::format(" {} |", permission_table::object_cell(rule, role, relation));
    text += "\n";
  }
  return text;
}

}  // namespace meshloom::control
