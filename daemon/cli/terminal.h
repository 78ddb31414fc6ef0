// SPDX-License-Identifier: Apache-2.0
// The terminal behind standard output or standard error.
#pragma once

namespace meshloom::cli {

inline constexpr const char* kClearLine = "\r\033[K";

bool is_terminal(int fd);

/// Columns of the terminal behind `fd` as it is now; 80 if there is none.
int terminal_columns(int fd);

}  // namespace meshloom::cli
