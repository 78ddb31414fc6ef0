// SPDX-License-Identifier: Apache-2.0
// meshloom: the client of meshloomd.
#include <fmt/format.h>
#include <grpc/support/log.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "daemon/base/env.h"
#include "daemon/base/message_printer.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/unknown_field.h"
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

int run(int argc, char** argv) {
  CLI::App app("meshloom submits and follows training jobs of a meshloomd, and plans them.",
               "meshloom");
  CommandContext context;
  const base::Environment environment = base::read_environment();
  context.address = environment.address.value_or("127.0.0.1:7420");
  context.default_run_token = environment.run_token.value_or("");
  if (environment.no_colour) context.colours = "never";
  declare_commands(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    print_error(CliError(kUsage, command_line::usage_text(app, error, field_hint)), context.json);
    return kUsage;
  }
  try {
    Client client(context.address, context.client, context.run_token);
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
  } catch (const std::filesystem::filesystem_error& error) {
    fmt::print(stderr, "meshloom: {}: {}\n", error.path1().string(), error.code().message());
    return kFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "meshloom: {}\n", error.what());
    return kFailed;
  }
}
