// SPDX-License-Identifier: Apache-2.0
// TokenStore: the bearer tokens by which callers are known.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/access/token_file.h"

namespace meshloom::control {

/// Keeps the tokens of a file, which it looks at again when somebody shows one and a second has
/// passed, so that a change counts within 2 s. A file that cannot be taken is logged once, and the
/// tokens of before are kept. Any thread may call any function.
class TokenStore {
 public:
  /// Throws as read_token_file().
  explicit TokenStore(std::filesystem::path path);

  /// A token of an entry, told once.
  struct Issued {
    TokenEntry entry;
    std::string token;
  };
  /// Of the token, unless it is unknown or has expired. Takes as long whichever it is.
  std::optional<Identity> find(std::string_view token);
  /// By name.
  std::vector<TokenEntry> list();
  bool empty() { return list().empty(); }
  /// `lifetime`: nothing: for ever. Throws InvalidArgument for a name that is none, AlreadyExists,
  /// ResourceExhausted (TOO_MANY_TOKENS), and as base/files.h.
  Issued create(const std::string& name, Role role, std::optional<std::chrono::seconds> lifetime);
  /// Throws NotFound.
  void revoke(const std::string& name);
  Issued rotate(const std::string& name, std::optional<std::chrono::seconds> lifetime);
  /// Why the file is not taken now; empty: it is.
  std::string trouble();

 private:
  using Clock = std::chrono::steady_clock;
  /// With mutex_ held.
  void look_again();
  /// For changes: the file as it is, or what is wrong with it.
  void reload();
  void write(std::vector<TokenEntry> tokens);
  std::vector<TokenEntry>::iterator entry_of(const std::string& name);

  const std::filesystem::path path_;
  std::mutex mutex_;
  std::vector<TokenEntry> tokens_;
  std::string stamp_;  ///< of the file that tokens_ are of, or that was refused
  std::string trouble_;
  Clock::time_point looked_ = Clock::now();
};

}  // namespace meshloom::control
