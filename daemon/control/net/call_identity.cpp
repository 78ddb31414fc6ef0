// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/call_identity.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/grpcpp.h>

#include <charconv>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/access/roles.h"
#include "daemon/control/net/listen_address.h"

namespace meshloom::control {
namespace {

using grpc::experimental::InterceptionHookPoints;
using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

constexpr const char* kAccountProperty = "meshloom_account";
constexpr const char* kAuthorizationKey = "authorization";

/// Calls of one connection share its properties, and gRPC does not guard them.
std::mutex& properties_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string text_of(grpc::string_ref text) { return {text.data(), text.size()}; }

std::optional<std::string> first_property(const grpc::AuthContext& connection, const char* name) {
  const std::vector<grpc::string_ref> values = connection.FindPropertyValues(name);
  return values.empty() ? std::nullopt : std::optional(text_of(values.front()));
}

void add_connection(const grpc::AuthContext& connection, Evidence* evidence) {
  const std::lock_guard lock(properties_mutex());
  evidence->certificate_name = first_property(connection, GRPC_X509_SAN_PROPERTY_NAME).value_or("");
  evidence->has_certificate =
      first_property(connection, GRPC_X509_PEM_CERT_PROPERTY_NAME).has_value();
  const std::optional<std::string> account = first_property(connection, kAccountProperty);
  std::int64_t number = AccountMark::kNobody;
  if (account) std::from_chars(account->data(), account->data() + account->size(), number);
  if (number >= 0) evidence->account = static_cast<uid_t>(number);
}

class IdentifiedCall final : public grpc::experimental::Interceptor {
 public:
  IdentifiedCall(grpc::experimental::ServerRpcInfo& call, CallerIdentifier& identifier)
      : call_(call), identifier_(identifier) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA))
      identify(*batch->GetRecvInitialMetadata());
    batch->Proceed();
  }

 private:
  void identify(Metadata& metadata) {
    const grpc::ServerContextBase& context = *call_.server_context();
    Evidence evidence;
    evidence.address = client_of_peer(context.peer());
    const auto authorization = metadata.find(kAuthorizationKey);
    if (authorization != metadata.end()) evidence.authorization = text_of(authorization->second);
    if (const auto connection = context.auth_context()) add_connection(*connection, &evidence);
    proven_ = identifier_.identify(evidence);
    tell(metadata, kProvenNameKey, proven_.identity.name);
    tell(metadata, kProvenRoleKey, role_name(proven_.identity.role));
    tell(metadata, kProvenRefusalKey, proven_.refusal);
    metadata.erase(kAuthorizationKey);  // No handler has a use for it, or could tell it by mistake.
  }

  /// The texts live as long as this, which is as long as the call.
  static void tell(Metadata& metadata, const char* key, grpc::string_ref value) {
    metadata.erase(key);
    metadata.emplace(key, value);
  }

  grpc::experimental::ServerRpcInfo& call_;
  CallerIdentifier& identifier_;
  Proven proven_;
};

}  // namespace

grpc::Status AccountMark::Process(const InputMetadata&, grpc::AuthContext* connection,
                                  OutputMetadata*, OutputMetadata*) {
  const std::lock_guard lock(properties_mutex());
  if (connection->FindPropertyValues(kAccountProperty).empty())
    connection->AddProperty(kAccountProperty, std::to_string(account_.load()));
  return grpc::Status::OK;
}

grpc::experimental::Interceptor* IdentifyCallers::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* call) {
  return new IdentifiedCall(*call, identifier_);
}

}  // namespace meshloom::control
