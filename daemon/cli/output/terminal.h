// SPDX-License-Identifier: Apache-2.0
// These functions tell of the terminal behind standard output or standard error, and guard it.
#pragma once

#include <string_view>

namespace meshloom::cli {

inline constexpr const char* kClearLine = "\r\033[K";

bool is_terminal(int fd);

/// Returns the columns of the terminal behind `fd` as it is at the call; 80 if there is none.
int terminal_columns(int fd);

/// Writes a text that a model has drawn to standard output: byte for byte into a file or a pipe. A
/// terminal gets control characters as \xNN, newlines and tabs aside, because an escape sequence
/// that a model draws would act on the reader's terminal. `text` ends between two characters.
void print_drawn_text(std::string_view text);

}  // namespace meshloom::cli
