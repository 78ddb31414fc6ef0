// SPDX-License-Identifier: Apache-2.0
// token, whoami: who clients are to a daemon.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/timestamp.h"
#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/new_token_file.h"
#include "daemon/cli/output/output.h"
#include "daemon/command_line/number_checks.h"

namespace meshloom::cli {
namespace {

struct TokenOptions {
  std::string name;
  std::string role;
  double valid_days = 0;  ///< 0: until it is revoked
  std::string out;        ///< empty: standard output
};

std::string date_of(std::int64_t seconds) {
  return base::to_rfc3339(std::chrono::system_clock::time_point(std::chrono::seconds(seconds)));
}

template <typename Request>
void set_lifetime(double days, Request* request) {
  constexpr double kDay = 24 * 3600;
  if (days > 0) request->set_valid_seconds(std::max<std::int64_t>(1, std::llround(days * kDay)));
}

/// The token goes to a file that is made before the daemon is asked, so that it cannot get lost.
template <typename Response>
ExitCode tell_token(const Response& response, NewTokenFile* file, bool json) {
  if (file) file->write(response.token());
  if (json) {
    Response told = response;
    if (file) told.clear_token();
    print_json(told);
    return kOk;
  }
  if (!file) fmt::print("{}\n", response.token());
  fmt::print(stderr, "token of {}, a {}, {}{}\n", response.info().name(), response.info().role(),
             response.info().expiry_time() == 0 ? "until it is revoked"
                                                : "until " + date_of(response.info().expiry_time()),
             file ? "" : "; it is not shown again");
  return kOk;
}

std::unique_ptr<NewTokenFile> file_for(const std::string& path) {
  return path.empty() ? nullptr : std::make_unique<NewTokenFile>(path, "--out");
}

ExitCode create(Client& client, bool json, const TokenOptions& options) {
  const std::unique_ptr<NewTokenFile> file = file_for(options.out);
  v1::CreateTokenRequest request;
  request.set_name(options.name);
  request.set_role(options.role);
  set_lifetime(options.valid_days, &request);
  return tell_token(client.call(client.tokens(), &v1::TokenService::Stub::CreateToken, request),
                    file.get(), json);
}

ExitCode rotate(Client& client, bool json, const TokenOptions& options) {
  const std::unique_ptr<NewTokenFile> file = file_for(options.out);
  v1::RotateTokenRequest request;
  request.set_name(options.name);
  set_lifetime(options.valid_days, &request);
  return tell_token(client.call(client.tokens(), &v1::TokenService::Stub::RotateToken, request),
                    file.get(), json);
}

ExitCode revoke(Client& client, bool json, const std::string& name) {
  v1::RevokeTokenRequest request;
  request.set_name(name);
  const auto response = client.call(client.tokens(), &v1::TokenService::Stub::RevokeToken, request);
  if (json)
    print_json(response);
  else
    fmt::print("the token of {} is no longer taken\n", name);
  return kOk;
}

ExitCode list(Client& client, bool json) {
  const auto response =
      client.call(client.tokens(), &v1::TokenService::Stub::ListTokens, v1::ListTokensRequest());
  if (json) {
    print_json(response);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{"name", "role", "made", "until"}};
  for (const v1::TokenInfo& token : response.tokens())
    rows.push_back({token.name(), token.role(), date_of(token.created_time()),
                    token.expiry_time() == 0
                        ? "it is revoked"
                        : date_of(token.expiry_time()) + (token.expired() ? " (expired)" : "")});
  print_table(rows);
  return kOk;
}

ExitCode who_am_i(Client& client, bool json) {
  const auto response =
      client.call(client.tokens(), &v1::TokenService::Stub::WhoAmI, v1::WhoAmIRequest());
  if (json) {
    print_json(response);
    return kOk;
  }
  if (response.role() == "nobody")
    fmt::print("{}\n", response.refusal());
  else
    fmt::print("{}, {}\n", response.name(), response.role());
  return response.role() == "nobody" ? kFailed : kOk;
}

/// Leaves `body` as what the command does.
template <typename Body>
void on_call(CLI::App* command, CommandContext& context, Body body) {
  command->callback([&context, body] {
    context.action = [&context, body](Client& client) { return body(client, context.json); };
  });
}

void add_new_token_options(CLI::App* command, const std::shared_ptr<TokenOptions>& options) {
  command
      ->add_option("--valid-days", options->valid_days,
                   "It is taken for so long. Default: until it is revoked")
      ->check(command_line::positive());
  command->add_option("--out", options->out,
                      "A new file for the token, which nobody else may read. Default: it is "
                      "printed, once");
}

}  // namespace

void add_token_commands(CLI::App& app, CommandContext& context) {
  auto* token = app.add_subcommand(
      "token", "Tokens by which clients on other machines are known, for admins");
  token->require_subcommand(1);

  auto* create_command = token->add_subcommand("create", "Make a token");
  const auto made = std::make_shared<TokenOptions>();
  create_command->add_option("name", made->name, "Whose: [a-z0-9][a-z0-9._@-]{0,62}")->required();
  create_command->add_option("--role", made->role, "viewer, submitter or admin")
      ->required()
      ->check(CLI::IsMember({"viewer", "submitter", "admin"}));
  add_new_token_options(create_command, made);
  create_command->footer(
      "Example: meshloom token create ci --role submitter --valid-days 90 --out ci.token");
  on_call(create_command, context,
          [made](Client& client, bool json) { return create(client, json, *made); });

  auto* list_command = token->add_subcommand("list", "Show all tokens, but not the secrets");
  on_call(list_command, context, [](Client& client, bool json) { return list(client, json); });

  auto* revoke_command = token->add_subcommand("revoke", "Take a token no longer");
  const auto revoked = std::make_shared<std::string>();
  revoke_command->add_option("name", *revoked, "Whose")->required();
  on_call(revoke_command, context,
          [revoked](Client& client, bool json) { return revoke(client, json, *revoked); });

  auto* rotate_command =
      token->add_subcommand("rotate", "Make a new token in the place of one, of the same role");
  const auto rotated = std::make_shared<TokenOptions>();
  rotate_command->add_option("name", rotated->name, "Whose")->required();
  add_new_token_options(rotate_command, rotated);
  on_call(rotate_command, context,
          [rotated](Client& client, bool json) { return rotate(client, json, *rotated); });

  auto* who_command =
      app.add_subcommand("whoami", "Who this client is to the daemon, and what its role is");
  on_call(who_command, context, [](Client& client, bool json) { return who_am_i(client, json); });
}

}  // namespace meshloom::cli
