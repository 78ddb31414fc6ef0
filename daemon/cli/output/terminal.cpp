// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/output/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "daemon/base/utf8.h"

namespace meshloom::cli {

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

int terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void print_drawn_text(std::string_view text) {
  std::string shown;
  if (is_terminal(STDOUT_FILENO)) {
    for (std::size_t tab; (tab = text.find('\t')) != std::string_view::npos;
         text.remove_prefix(tab + 1))
      shown += base::printable_text(text.substr(0, tab)) + '\t';
    shown += base::printable_text(text);
    text = shown;
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace meshloom::cli
