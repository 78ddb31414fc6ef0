// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/caller_identifier.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "daemon/base/utf8.h"
#include "daemon/control/access/peer_account.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::string_view kBearer = "Bearer ";

bool is_identity_name(const std::string& name) {
  try {
    check_identity_name(name, "");
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

Proven nobody(std::string refusal) { return {Identity{}, std::move(refusal)}; }

std::string without_role(const std::string& who, const std::string& name) {
  return fmt::format(
      "{} has no role with this daemon; whoever runs it gives one by --role {}=viewer, submitter "
      "or admin, or makes a token",
      who, name);
}

}  // namespace

Proven CallerIdentifier::by_token(const Evidence& evidence, std::string_view token) {
  const std::string source =
      evidence.address + (evidence.account ? fmt::format(" {}", *evidence.account) : "");
  if (failed_.is_barred(source))
    return nobody("too many wrong tokens came from this address; try again in a second");
  if (options_.tokens != nullptr)
    if (std::optional<Identity> identity = options_.tokens->find(token)) return {*identity, ""};
  failed_.failed(source);
  return nobody("the token is not one of this daemon's, was revoked, or has expired");
}

Proven CallerIdentifier::by_certificate(const Evidence& evidence) const {
  const std::string name = lower_case(evidence.certificate_name);
  if (name.empty())
    return nobody(
        "the client's certificate has no subject alternative name, by which it would be "
        "known");
  if (!is_identity_name(name))
    return nobody(fmt::format(
        "the first subject alternative name of the client's certificate, \"{}\", names nobody "
        "here: expected [a-z0-9][a-z0-9._@-]{{0,62}}, and not admin",
        base::printable_text(name, 80, false)));
  const Role role = options_.rules.of_certificate(name);
  return {Identity{name, role}, role == Role::kNone
                                    ? without_role(fmt::format("the certificate of {}", name), name)
                                    : ""};
}

Proven CallerIdentifier::by_account(uid_t account) {
  if (account == ::geteuid() || account == 0) return {Identity::admin(), ""};
  Identity identity;
  {
    const std::lock_guard lock(mutex_);
    const auto found = accounts_.find(account);
    if (found != accounts_.end()) identity = found->second;
  }
  if (identity.role != Role::kNone) return {identity, ""};
  return {identity,
          without_role(fmt::format("the account with the number {}", account), identity.name)};
}

Identity CallerIdentifier::account_connected(uid_t account) {
  if (account == ::geteuid() || account == 0) return Identity::admin();
  Identity identity{fmt::format("uid-{}", account), Role::kNone};
  // Without a rule nobody has to be looked up.
  if (!options_.rules.empty()) {
    const std::string name = account_name(account);
    if (is_identity_name(name)) identity.name = name;
    identity.role = options_.rules.of_account(name, groups_of(account));
  }
  const std::lock_guard lock(mutex_);
  constexpr std::size_t kMostAccounts = 10'000;
  if (accounts_.size() >= kMostAccounts) accounts_.clear();
  accounts_[account] = identity;
  return identity;
}

Proven CallerIdentifier::identify(const Evidence& evidence) {
  if (evidence.authorization) {
    const std::string_view given = *evidence.authorization;
    if (!given.starts_with(kBearer))
      return nobody("the authorization that was sent is no bearer token");
    return by_token(evidence, given.substr(kBearer.size()));
  }
  if (options_.everybody_is_admin) return {Identity::admin(), ""};
  if (evidence.has_certificate) return by_certificate(evidence);
  if (evidence.account) return by_account(*evidence.account);
  return nobody(
      "this client has no role with this daemon: it shows no token (--access-token-file) and no "
      "certificate (--cert, --key), and its account, if it calls over loopback or a Unix socket, "
      "is "
      "given none by --role");
}

}  // namespace meshloom::control
