// SPDX-License-Identifier: Apache-2.0
// meshloom: the client of meshloomd.
#include <fmt/format.h>
#include <grpc/support/log.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "daemon/base/env.h"
#include "daemon/base/message_printer.h"
#include "daemon/cli/commands.h"
#include "kernels/base/error.h"

namespace {

using namespace meshloom;
using namespace meshloom::cli;

constexpr const char* kFooter =
    "Examples:\n"
    "  meshloom status\n"
    "  meshloom job submit configs/jobs/quickstart.yaml --follow\n"
    "  meshloom job list --json\n"
    "  meshloom generate --job job-1 --prompt \"In the beginning\"\n"
    "  meshloom plan search --model llama3_8b --ranks 64 --cluster h100\n"
    "  meshloom shutdown\n"
    "Exit codes: 0 ok, 1 the job or request failed, 2 usage or config, 3 no daemon reached, 4 "
    "cancelled, 130 "
    "Ctrl-C.\n"
    "Environment: MESHLOOM_ADDRESS, host:port of the daemon; --address wins over it.";

/// Options of the whole program are understood after a command as well.
void let_options_fall_through(CLI::App& app) {
  for (auto* command : app.get_subcommands({})) {
    command->fallthrough();
    let_options_fall_through(*command);
  }
}

void declare(CLI::App& app, CommandContext& context) {
  app.set_version_flag("--version", std::string("meshloom ") + MESHLOOM_VERSION);
  app.add_option("--address,--server", context.address,
                 "host:port of the daemon; default 127.0.0.1:7420");
  app.add_flag("--json", context.json, "Answer in JSON; streams as one value a line");
  add_status_commands(app, context);
  add_job_commands(app, context);
  add_checkpoint_commands(app, context);
  add_generate_command(app, context);
  add_plan_commands(app, context);
  app.require_subcommand(1);
  app.footer(kFooter);
  let_options_fall_through(app);
}

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

int run(int argc, char** argv) {
  CLI::App app("meshloom submits and follows training jobs of a meshloomd, and plans them.",
               "meshloom");
  CommandContext context;
  context.address = base::read_environment().address.value_or("127.0.0.1:7420");
  declare(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  try {
    Client client(context.address);
    return context.action(client);
  } catch (const CliError& error) {
    print_error(error, context.json);
    return error.code();
  }
}

}  // namespace

int main(int argc, char** argv) {
  gpr_set_log_function([](gpr_log_func_args*) {});
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "meshloom: {}\n", error.what());
    return kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "meshloom: {}\n", error.what());
    return kFailed;
  }
}
