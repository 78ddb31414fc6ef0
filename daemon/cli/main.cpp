// SPDX-License-Identifier: Apache-2.0
// meshloom: the client of meshloomd.
#include <fmt/format.h>
#include <grpc/support/log.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "daemon/base/env.h"
#include "daemon/base/message_printer.h"
#include "daemon/base/standard_streams.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/help/familiar_commands.h"
#include "daemon/cli/help/unknown_field.h"
#include "daemon/command_line/usage_error.h"
#include "kernels/base/error.h"

namespace {

using namespace meshloom;
using namespace meshloom::cli;

void print_error(const CliError& error, bool json) {
  if (!json) {
    fmt::print(stderr, "meshloom: {}\n", error.what());
    return;
  }
  nlohmann::ordered_json text;
  text["error"] = base::to_json(error.details());
  text["error"]["message"] = error.what();
  text["error"]["exit_code"] = static_cast<int>(error.code());
  fmt::print("{}\n", text.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

/// Where no daemon answers, what is known of the one that was looked for.
CliError with_note(const CliError& error, const DaemonAddress& daemon) {
  if (error.code() != kUnreachable || daemon.note.empty()) return error;
  return CliError(
      kUnreachable,
      daemon.note_says_all ? daemon.note : fmt::format("{}; {}", error.what(), daemon.note),
      error.details());
}

/// Most commands need a daemon, and tell then why none was found; some do without.
DaemonAddress look_for_daemon(const CommandContext& context) {
  try {
    return find_address(context.asked, context.environment);
  } catch (const std::exception& error) {
    return {kNoAddress, error.what(), true};
  }
}

int run(int argc, char** argv) {
  CLI::App app("meshloom submits and follows training jobs of a meshloomd, and plans them.",
               "meshloom");
  CommandContext context;
  context.environment = base::read_environment();
  context.default_run_token = context.environment.run_token.value_or("");
  if (context.environment.no_colour) context.colours = "never";
  declare_commands(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    print_error(CliError(kUsage, command_line::usage_text(app, error, field_hint, command_hint)),
                context.json);
    return kUsage;
  }
  const DaemonAddress daemon = look_for_daemon(context);
  try {
    const std::string address = complete_address(daemon.address);
    const Credentials credentials = read_credentials(
        find_credentials(context.credentials, context.environment, address), address);
    Client client(address, context.client, context.run_token, credentials);
    return context.action(client);
  } catch (const CliError& error) {
    print_error(with_note(error, daemon), context.json);
    return error.code();
  }
}

}  // namespace

int main(int argc, char** argv) {
  base::open_standard_streams();
  gpr_set_log_function([](gpr_log_func_args*) {});
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "meshloom: {}\n", error.what());
    return kUsage;
  } catch (const std::filesystem::filesystem_error& error) {
    fmt::print(stderr, "meshloom: {}: {}\n", error.path1().string(), error.code().message());
    return kFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "meshloom: {}\n", error.what());
    return kFailed;
  }
}
