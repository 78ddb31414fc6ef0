// SPDX-License-Identifier: Apache-2.0
// A conversation is held at the terminal, turn by turn.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "daemon/cli/exit_code.h"
#include "v1/generate_service.pb.h"

namespace meshloom::cli {

/// Returns "system", if it is not empty, and what the user says.
v1::Conversation first_turn(const std::string& system, const std::string& text);

/// Reads what the user says from standard input, a line a turn, and calls answer(conversation),
/// which shows the answer and returns it; nothing where it was broken off: the turn is then taken
/// back. Where the input is a terminal "> " stands before each turn, on standard error: standard
/// output has the answers alone. Ends with the input. Blank lines say nothing.
ExitCode chat_by_turns(
    const std::string& system,
    const std::function<std::optional<std::string>(const v1::Conversation&)>& answer);

}  // namespace meshloom::cli
