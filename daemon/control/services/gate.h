// SPDX-License-Identifier: Apache-2.0
// Gate: whether a call may be made, asked once for each call by the door that it comes by, before a
// handler looks at its request; and the line that the audit log gets of it.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "daemon/control/access/audit_log.h"
#include "daemon/control/access/permissions.h"
#include "daemon/control/net/caller.h"
#include "daemon/control/stores/request_key.h"

namespace meshloom::control {

class Usage;

/// Whose objects are. Any thread may call any method.
class ObjectOwners {
 public:
  virtual ~ObjectOwners() = default;
  /// `id`: without "jobs/" and the like; of a plan the digits that a client has given. Nothing if
  /// there is none.
  virtual std::optional<Ownership> find(ObjectKind kind, const std::string& id) const = 0;
  /// The very same request was answered before.
  virtual bool is_repeat(const RequestKey& key) const = 0;
};

/// The key of a request of this caller: ids belong to its holder. Throws as make_request_key.
RequestKey request_key_of(const std::string& method, const google::protobuf::Message& request,
                          const Caller& caller);

/// An object as a request names it.
struct ObjectName {
  ObjectKind kind;
  std::string id;
};
/// Nothing for what names no object, such as an empty field. Throws InvalidArgument (NAME_INVALID).
std::optional<ObjectName> parse_object(NameForm form, const std::string& name);
/// "jobs/NAME".
std::string resource_of(const ObjectName& object);

/// All methods may be called from any thread.
class Gate {
 public:
  struct Options {
    const ObjectOwners* owners = nullptr;  ///< null: admins alone are let in
    AuditLog* audit = nullptr;             ///< null: nothing is logged
    const Usage* usage = nullptr;          ///< null: the disk is not limited
    /// Of tests: who is to be taken for proven instead of the caller's own identity.
    std::function<Identity(const grpc::ServerContextBase& context)> identify = nullptr;
  };
  Gate() = default;
  explicit Gate(Options options) : options_(std::move(options)) {}

  /// Throws AccessError, NotFound for an object that the caller is not to know of, and what is
  /// wrong with the name of an object.
  void check(const MethodRule& rule, const Caller& caller,
             const google::protobuf::Message& request) const;
  /// Whether the caller may know that there is such an object ("jobs/NAME"), in texts.
  bool may_see(const Identity& who, const std::string& resource) const;
  Caller caller_of(const grpc::ServerContextBase& context) const;
  AuditLog* audit() const { return options_.audit; }

 private:
  void check_object(const NamedObject& object, const Caller& caller, const std::string& name,
                    const std::function<bool()>& is_repeat) const;

  const Options options_;
};

/// One call on its way through a gate, from its beginning to its end. Whoever has it guards it.
class Visit {
 public:
  /// `response`: what the client gets where the call ends well; null: of a stream.
  Visit(const Gate& gate, Caller caller, const google::protobuf::Message& request,
        google::protobuf::Message* response = nullptr);

  /// OK: the caller is let in.
  const grpc::Status& refusal() const { return refusal_; }
  const Caller& caller() const { return caller_; }
  const MethodRule& rule() const { return *rule_; }
  const char* method() const { return rule_->method.data(); }
  void add_bytes(std::size_t bytes) { bytes_ += static_cast<std::int64_t>(bytes); }
  /// Called once, with what became of the call; the audit log has it then. Returns what the client
  /// is told: the same without names of objects that are not for its eyes, as the response is from
  /// then on.
  grpc::Status end(const grpc::Status& status);

  /// Whether the caller may not see the names of all objects in answers.
  bool hides_names() const { return caller_.identity().role == Role::kSubmitter; }
  void hide_names(google::protobuf::Message* response) const;

 private:
  grpc::Status without_others(const grpc::Status& status) const;

  const Gate* gate_;
  Caller caller_;
  const MethodRule* rule_;
  google::protobuf::Message* response_;
  std::string object_;
  std::int64_t bytes_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  grpc::Status refusal_;
};

}  // namespace meshloom::control
