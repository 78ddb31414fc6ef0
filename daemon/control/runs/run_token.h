// SPDX-License-Identifier: Apache-2.0
// Tokens of runs: the secret that tells the client that made a run from others.
#pragma once

#include <string>

namespace meshloom::control {

/// SHA-256, hexadecimal: what is kept of a token.
std::string token_digest(const std::string& token);

}  // namespace meshloom::control
