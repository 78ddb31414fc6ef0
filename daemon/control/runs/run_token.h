// SPDX-License-Identifier: Apache-2.0
// Tokens of runs: what tells the client that made a run from others.
#pragma once

#include <string>

namespace meshloom::control {

/// The metadata key of calls.
inline constexpr const char* kRunTokenKey = "meshloom-run-token";

/// 128 random bits as 32 hexadecimal digits.
std::string make_token();
/// SHA-256, hexadecimal: what is kept of a token.
std::string token_digest(const std::string& token);
/// Takes the same time wherever two texts of one length differ.
bool equal_in_constant_time(const std::string& a, const std::string& b);

}  // namespace meshloom::control
