// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/token_store.h"

#include <openssl/crypto.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>

#include "daemon/base/file_stamp.h"
#include "daemon/base/sha256.h"
#include "daemon/control/access/roles.h"
#include "daemon/control/host/random_hex.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::string_view kPrefix = "mlt_";
constexpr std::size_t kIdDigits = 16;
constexpr std::chrono::milliseconds kLookPause{1000};

std::string hash_of(std::string_view salt, std::string_view secret) {
  base::Sha256 digest;
  digest.update(std::as_bytes(std::span(salt)));
  digest.update(std::as_bytes(std::span(secret)));
  return digest.hex();
}

std::int64_t now_seconds() { return static_cast<std::int64_t>(std::time(nullptr)); }

TokenStore::Issued issue(const std::string& name, Role role,
                         std::optional<std::chrono::seconds> lifetime) {
  const std::int64_t now = now_seconds();
  const std::string id = random_hex().substr(0, kIdDigits);
  const std::string secret = random_hex() + random_hex();
  const std::string salt = random_hex();
  return {
      {name, role, now, lifetime ? now + lifetime->count() : 0, id, salt, hash_of(salt, secret)},
      fmt::format("{}{}_{}", kPrefix, id, secret)};
}

/// Of the file and its mode, which may change alone.
std::string stamp_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";
  return fmt::format("{} {:o} {}", base::file_stamp(path).value_or(""), status.st_mode,
                     status.st_uid);
}

}  // namespace

TokenStore::TokenStore(std::filesystem::path path)
    : path_(std::move(path)), tokens_(read_token_file(path_)), stamp_(stamp_of(path_)) {}

void TokenStore::look_again() {
  if (Clock::now() - looked_ < kLookPause) return;
  looked_ = Clock::now();
  const std::string stamp = stamp_of(path_);
  if (stamp == stamp_) return;
  stamp_ = stamp;
  try {
    tokens_ = read_token_file(path_);
    trouble_.clear();
    spdlog::info("tokens: {} are in use now", tokens_.size());
  } catch (const Error& error) {
    trouble_ = error.what();
    spdlog::warn("{}; the tokens of before are kept", trouble_);
  }
}

void TokenStore::reload() {
  tokens_ = read_token_file(path_);
  trouble_.clear();
}

void TokenStore::write(std::vector<TokenEntry> tokens) {
  write_token_file(path_, tokens);
  tokens_ = std::move(tokens);
  stamp_ = stamp_of(path_);
}

std::vector<TokenEntry>::iterator TokenStore::entry_of(const std::string& name) {
  const auto found = std::find_if(tokens_.begin(), tokens_.end(),
                                  [&](const TokenEntry& entry) { return entry.name == name; });
  if (found == tokens_.end())
    throw NotFound(fmt::format("there is no token {}", name), "TOKEN_NOT_FOUND", {{"name", name}});
  return found;
}

std::optional<Identity> TokenStore::find(std::string_view token) {
  const std::size_t shortest = kPrefix.size() + kIdDigits + 1;
  const bool has_form = token.size() > shortest && token.starts_with(kPrefix);
  const std::string_view id = has_form ? token.substr(kPrefix.size(), kIdDigits) : "";
  const std::string_view secret = has_form ? token.substr(shortest) : token;
  const std::lock_guard lock(mutex_);
  look_again();
  const auto found = std::find_if(tokens_.begin(), tokens_.end(),
                                  [&](const TokenEntry& entry) { return entry.id == id; });
  // Of an unknown token as much is computed.
  static const TokenEntry nobody{
      "", Role::kNone, 0, 1, "", std::string(32, '0'), std::string(64, '0')};
  const TokenEntry& entry = found == tokens_.end() ? nobody : *found;
  const std::string hash = hash_of(entry.salt, secret);
  const bool same = CRYPTO_memcmp(hash.data(), entry.hash.data(), hash.size()) == 0;
  const bool valid = entry.expires == 0 || now_seconds() < entry.expires;
  if (!same || !valid || found == tokens_.end()) return std::nullopt;
  return Identity{entry.name, entry.role};
}

std::vector<TokenEntry> TokenStore::list() {
  const std::lock_guard lock(mutex_);
  look_again();
  std::vector<TokenEntry> sorted = tokens_;
  std::sort(sorted.begin(), sorted.end(),
            [](const TokenEntry& a, const TokenEntry& b) { return a.name < b.name; });
  return sorted;
}

TokenStore::Issued TokenStore::create(const std::string& name, Role role,
                                      std::optional<std::chrono::seconds> lifetime) {
  check_identity_name(name, "token");
  const std::lock_guard lock(mutex_);
  reload();
  if (std::any_of(tokens_.begin(), tokens_.end(),
                  [&](const TokenEntry& entry) { return entry.name == name; }))
    throw AlreadyExists(fmt::format("there is a token {} already; rotate or revoke it", name),
                        "TOKEN_EXISTS", {{"name", name}});
  if (tokens_.size() >= kMostAccessTokens)
    throw ResourceExhausted(
        fmt::format("there are {} tokens, at most {} are kept", tokens_.size(), kMostAccessTokens),
        "TOO_MANY_TOKENS");
  Issued issued = issue(name, role, lifetime);
  std::vector<TokenEntry> tokens = tokens_;
  tokens.push_back(issued.entry);
  write(std::move(tokens));
  return issued;
}

void TokenStore::revoke(const std::string& name) {
  const std::lock_guard lock(mutex_);
  reload();
  const auto at = entry_of(name) - tokens_.begin();
  std::vector<TokenEntry> tokens = tokens_;
  tokens.erase(tokens.begin() + at);
  write(std::move(tokens));
}

TokenStore::Issued TokenStore::rotate(const std::string& name,
                                      std::optional<std::chrono::seconds> lifetime) {
  const std::lock_guard lock(mutex_);
  reload();
  const auto at = entry_of(name) - tokens_.begin();
  std::vector<TokenEntry> tokens = tokens_;
  TokenEntry& entry = tokens[static_cast<std::size_t>(at)];
  Issued issued = issue(name, entry.role, lifetime);
  entry = issued.entry;
  write(std::move(tokens));
  return issued;
}

std::string TokenStore::trouble() {
  const std::lock_guard lock(mutex_);
  look_again();
  return trouble_;
}

}  // namespace meshloom::control
