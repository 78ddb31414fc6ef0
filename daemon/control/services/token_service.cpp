// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/token_service.h"

#include <chrono>
#include <ctime>
#include <optional>

#include "daemon/base/given_number.h"
#include "daemon/control/access/roles.h"
#include "daemon/control/services/grpc_door.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

v1::TokenInfo info_of(const TokenEntry& entry) {
  v1::TokenInfo info;
  info.set_name(entry.name);
  info.set_role(role_name(entry.role));
  info.set_created_time(entry.created);
  info.set_expiry_time(entry.expires);
  info.set_expired(entry.expires != 0 &&
                   static_cast<std::int64_t>(std::time(nullptr)) >= entry.expires);
  return info;
}

template <typename Request>
std::optional<std::chrono::seconds> lifetime_of(const Request& request) {
  base::check_given_positive("valid_seconds", request.has_valid_seconds(), request.valid_seconds(),
                             "until it is revoked");
  constexpr std::int64_t kLongest = std::int64_t{100} * 366 * 24 * 3600;
  check(request.valid_seconds() <= kLongest, "valid_seconds is {}, expected at most {}",
        request.valid_seconds(), kLongest);
  if (!request.has_valid_seconds()) return std::nullopt;
  return std::chrono::seconds(request.valid_seconds());
}

}  // namespace

v1::CreateTokenResponse TokenServiceImpl::create_token(const v1::CreateTokenRequest& request) {
  const Role role = parse_role(request.role(), "role");
  const TokenStore::Issued issued = tokens_.create(request.name(), role, lifetime_of(request));
  spdlog::info("token {} was made, of a {}", issued.entry.name, role_name(role));
  v1::CreateTokenResponse response;
  *response.mutable_info() = info_of(issued.entry);
  response.set_token(issued.token);
  return response;
}

v1::ListTokensResponse TokenServiceImpl::list_tokens() {
  v1::ListTokensResponse response;
  for (const TokenEntry& entry : tokens_.list()) *response.add_tokens() = info_of(entry);
  return response;
}

void TokenServiceImpl::revoke_token(const v1::RevokeTokenRequest& request) {
  tokens_.revoke(request.name());
  spdlog::info("token {} was revoked", request.name());
}

v1::RotateTokenResponse TokenServiceImpl::rotate_token(const v1::RotateTokenRequest& request) {
  const TokenStore::Issued issued = tokens_.rotate(request.name(), lifetime_of(request));
  spdlog::info("token {} was rotated", issued.entry.name);
  v1::RotateTokenResponse response;
  *response.mutable_info() = info_of(issued.entry);
  response.set_token(issued.token);
  return response;
}

v1::WhoAmIResponse TokenServiceImpl::who_am_i(const Caller& caller) {
  v1::WhoAmIResponse response;
  response.set_name(caller.identity().name);
  response.set_role(role_name(caller.identity().role));
  response.set_refusal(caller.refusal());
  return response;
}

grpc::Status TokenServiceImpl::WhoAmI(grpc::ServerContext* context,
                                      const v1::WhoAmIRequest* request,
                                      v1::WhoAmIResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = who_am_i(caller); });
}

grpc::Status TokenServiceImpl::CreateToken(grpc::ServerContext* context,
                                           const v1::CreateTokenRequest* request,
                                           v1::CreateTokenResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller&) { *response = create_token(*request); });
}

grpc::Status TokenServiceImpl::ListTokens(grpc::ServerContext* context,
                                          const v1::ListTokensRequest* request,
                                          v1::ListTokensResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller&) { *response = list_tokens(); });
}

grpc::Status TokenServiceImpl::RevokeToken(grpc::ServerContext* context,
                                           const v1::RevokeTokenRequest* request,
                                           v1::RevokeTokenResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller&) { revoke_token(*request); });
}

grpc::Status TokenServiceImpl::RotateToken(grpc::ServerContext* context,
                                           const v1::RotateTokenRequest* request,
                                           v1::RotateTokenResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller&) { *response = rotate_token(*request); });
}

}  // namespace meshloom::control
