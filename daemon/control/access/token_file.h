// SPDX-License-Identifier: Apache-2.0
// The file in which a daemon keeps its tokens, as hashes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/control/access/identity.h"

namespace meshloom::control {

/// A token as it is kept. The token itself is "mlt_", `id`, "_" and a secret.
struct TokenEntry {
  std::string name;
  Role role = Role::kNone;
  std::int64_t created = 0;  ///< seconds of Unix
  std::int64_t expires = 0;  ///< 0: never
  std::string id;            ///< 16 hexadecimal digits, by which the entry is found
  std::string salt;          ///< 32
  std::string hash;          ///< SHA-256 of salt and secret, 64
};

inline constexpr std::size_t kMostAccessTokens = 1000;

/// The tokens of a file, which is no larger than 1 MiB, of this process's account or root, and
/// which nobody else may read. Empty where there is no file. Throws FailedPrecondition (TOKENS_...)
/// saying what is wrong with the file, and how to mend it.
std::vector<TokenEntry> read_token_file(const std::filesystem::path& path);

/// Replaces the file (mode 0600), whole or not at all. Throws as base/files.h.
void write_token_file(const std::filesystem::path& path, const std::vector<TokenEntry>& tokens);

}  // namespace meshloom::control
