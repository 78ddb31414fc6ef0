// SPDX-License-Identifier: Apache-2.0
// TokenService: who calls, and the tokens by which callers are known.
#pragma once

#include "daemon/control/access/token_store.h"
#include "daemon/control/services/client_service.h"
#include "v1/token_service.grpc.pb.h"

namespace meshloom::control {

class TokenServiceImpl final : public v1::TokenService::Service, public ClientService {
 public:
  /// `tokens` outlives it.
  explicit TokenServiceImpl(TokenStore& tokens) : tokens_(tokens) {}

  // Any door may call these handlers, which throw what is wrong with a request.
  v1::WhoAmIResponse who_am_i(const Caller& caller);
  v1::CreateTokenResponse create_token(const v1::CreateTokenRequest& request);
  v1::ListTokensResponse list_tokens();
  void revoke_token(const v1::RevokeTokenRequest& request);
  v1::RotateTokenResponse rotate_token(const v1::RotateTokenRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::Status WhoAmI(grpc::ServerContext* context, const v1::WhoAmIRequest* request,
                      v1::WhoAmIResponse* response) override;
  grpc::Status CreateToken(grpc::ServerContext* context, const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response) override;
  grpc::Status ListTokens(grpc::ServerContext* context, const v1::ListTokensRequest* request,
                          v1::ListTokensResponse* response) override;
  grpc::Status RevokeToken(grpc::ServerContext* context, const v1::RevokeTokenRequest* request,
                           v1::RevokeTokenResponse* response) override;
  grpc::Status RotateToken(grpc::ServerContext* context, const v1::RotateTokenRequest* request,
                           v1::RotateTokenResponse* response) override;

 private:
  TokenStore& tokens_;
};

}  // namespace meshloom::control
