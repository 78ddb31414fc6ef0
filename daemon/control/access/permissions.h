// SPDX-License-Identifier: Apache-2.0
// The one table of who may do what: every method of every service that clients call, the least role
// that may call it, and what it does with each object that its request names. Checks, tests and the
// documentation come from it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "daemon/control/access/identity.h"
#include "daemon/control/access/ownership.h"

namespace meshloom::control {

/// What has an owner.
enum class ObjectKind { kJob, kRun, kUpload, kModel, kPlan };
const char* kind_name(ObjectKind kind);  ///< "job"

/// How a field of a request names an object. Checkpoints, states, weights and operations are those
/// of their job or run.
enum class NameForm {
  kJob,
  kRun,
  kUpload,
  kModel,
  kPlan,
  kCheckpoint,   ///< "checkpoints/JOB", "checkpoints/JOB/FOLDER", "runs/RUN/weights/NAME"
  kOfRun,        ///< "runs/RUN/states/NAME", "runs/RUN/weights/NAME"
  kOperation,    ///< "operations/RUN/EPOCH/SEQ"
  kAnyResource,  ///< "jobs/NAME", "runs/NAME", "models/NAME", "plans/SHA256"
  // Others than these are names or paths of something that nobody owns.
  kMaybeCheckpoint,  ///< "checkpoints/JOB..."
  kMaybeModel,       ///< "models/NAME"
};

/// What a call does with an object.
enum class Need {
  kLook,        ///< shows what viewers may see of it
  kUse,         ///< reads it, or what it is shared for
  kOwn,         ///< changes it or ends it
  kOwnerAlone,  ///< drives it or takes what it has computed: no admin does so in another's place
};

struct NamedObject {
  std::string_view field;  ///< of the request: "name", "id.run", "spec.run.model.name"
  NameForm form;
  Need need;
};

struct MethodRule {
  std::string_view service;  ///< "JobService"
  std::string_view method;   ///< "SubmitJob": no two services have one of the same name
  Role least;
  bool changes;  ///< something that lasts: the audit log has every such call
  bool writes;   ///< files that count against the owner's disk
  std::span<const NamedObject> objects;
};

/// By service, as in the protocol.
std::span<const MethodRule> method_rules();
/// The rule of the method that takes requests of this type ("SubmitJobRequest"). Throws
/// InternalError for a method without one: nobody may call it.
const MethodRule& rule_of_request(const std::string& request_type);

enum class Verdict {
  kAllowed,
  kUnauthenticated,  ///< UNAUTHENTICATED
  kDenied,           ///< PERMISSION_DENIED
  kHidden,           ///< NOT_FOUND, as if there was no such object
};
/// Whether the role suffices, whatever the request is about.
Verdict verdict_on_role(Role least, Role role);
/// Of a role that suffices, on an object of its request.
Verdict verdict_on_object(ObjectKind kind, Need need, Role role, Relation relation);
/// The gRPC code's name of what is not allowed; "OK".
const char* code_name(Verdict verdict);

/// The table as Markdown, a row for each method, which daemon/control/access/README.md has.
std::string permissions_text();

}  // namespace meshloom::control
