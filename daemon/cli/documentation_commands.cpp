// SPDX-License-Identifier: Apache-2.0
// completion and manual: what the build installs. Needs no daemon.
#include <fmt/format.h>

#include <memory>

#include "daemon/cli/commands.h"
#include "daemon/command_line/documentation.h"

namespace meshloom::cli {
namespace {

/// The program's commands, and nothing parsed.
struct Fresh {
  explicit Fresh(const CLI::App& parsed) : app(parsed.get_description(), parsed.get_name()) {
    declare_commands(app, context);
  }
  CLI::App app;
  CommandContext context;
};

}  // namespace

void add_documentation_commands(CLI::App& app, CommandContext& context) {
  auto* completion = app.add_subcommand("completion", "Print a script that completes commands");
  auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(command_line::kShells),
                                                     std::end(command_line::kShells))));
  completion->footer(
      "Example: source <(meshloom completion bash)\n"
      "An installed meshloom has them where the shells look for them.");
  completion->callback([&app, &context, shell] {
    context.action = [&app, shell](Client&) {
      fmt::print("{}", command_line::completion(Fresh(app).app, *shell));
      return kOk;
    };
  });

  auto* manual = app.add_subcommand("manual", "Print the manual page, in roff");
  manual->footer("Example: meshloom manual | man -l -");
  manual->callback([&app, &context] {
    context.action = [&app](Client&) {
      fmt::print("{}", command_line::manual_page(Fresh(app).app, MESHLOOM_VERSION));
      return kOk;
    };
  });
}

}  // namespace meshloom::cli
