// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/command_context.h"

#include <unistd.h>

#include "daemon/cli/output/terminal.h"

namespace meshloom::cli {

bool CommandContext::colour() const {
  return !json && (colours == "always" || (colours == "auto" && is_terminal(STDOUT_FILENO)));
}

}  // namespace meshloom::cli
