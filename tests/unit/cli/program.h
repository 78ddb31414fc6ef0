// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/commands.h"

namespace meshloom::cli {

/// The client's commands, declared as main does.
struct Program {
  Program() { declare_commands(app, context); }

  CLI::App app{"test", "meshloom"};
  CommandContext context;
};

}  // namespace meshloom::cli
