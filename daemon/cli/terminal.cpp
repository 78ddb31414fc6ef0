// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace meshloom::cli {

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

int terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace meshloom::cli
