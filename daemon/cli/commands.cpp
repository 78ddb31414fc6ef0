// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/commands.h"

#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/data/data_commands.h"
#include "daemon/cli/help/fields_command.h"
#include "daemon/cli/jobs/job_commands.h"
#include "daemon/cli/models/model_commands.h"
#include "daemon/cli/plans/plan_commands.h"
#include "daemon/cli/runs/run_commands.h"
#include "daemon/cli/sampling/generate_command.h"
#include "daemon/cli/transfers/upload_commands.h"

namespace meshloom::cli {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  meshloom up -n 2 --data-dir data\n"
    "  meshloom status\n"
    "  meshloom job submit configs/jobs/byte_gpt_1m.yaml --follow\n"
    "  meshloom job list --json\n"
    "  meshloom fields optimizer\n"
    "  meshloom run list\n"
    "  meshloom generate --job job-1 --prompt \"In the beginning\"\n"
    "  meshloom evaluate --job job-1\n"
    "  meshloom model create my-model path/to/hf_folder\n"
    "  meshloom data train-tokenizer --vocab 4096 --out data/my_bpe corpus.txt\n"
    "  meshloom data tokenize --tokenizer gpt2 --out corpus.bin corpus\n"
    "  meshloom plan search --model llama3_8b --ranks 64 --cluster h100\n"
    "  meshloom token create alice --role submitter --out alice.token\n"
    "  meshloom down\n"
    "Exit codes: 0 ok, 1 the job or request failed, 2 usage or config, 3 no daemon reached, 4 "
    "cancelled, 130 "
    "Ctrl-C.\n"
    "Environment: MESHLOOM_ADDRESS, host:port of the daemon; --address and --state-dir win over "
    "it. MESHLOOM_STATE_DIR, its state folder. "
    "MESHLOOM_RUN_TOKEN, the token of the run that a command drives. "
    "MESHLOOM_TOKEN_FILE, MESHLOOM_CA, MESHLOOM_CERT, MESHLOOM_KEY: as the options, for an address "
    "of TCP. "
    "NO_COLOR: no colours unless --color asks for them.";

/// Options of the whole program are understood after a command as well.
void let_options_fall_through(CLI::App& app) {
  for (auto* command : app.get_subcommands({})) {
    command->fallthrough();
    let_options_fall_through(*command);
  }
}

}  // namespace

void declare_commands(CLI::App& app, CommandContext& context) {
  app.set_version_flag("--version", std::string("meshloom ") + MESHLOOM_VERSION);
  app.add_option("--address,--server", context.asked.address,
                 "host:port of the daemon. Default: that of MESHLOOM_ADDRESS, of the daemon that "
                 "meshloom up has started, or 127.0.0.1:7420");
  app.add_option("--state-dir", context.asked.state_dir,
                 "State folder of the daemon, by which it is found on this host; of up and down "
                 "also MESHLOOM_STATE_DIR, else ./meshloom-state");
  app.add_option(
      "--client", context.client,
      "What this client is called: its uploads are found again under that name. Default: "
      "by its address");
  app.add_option("--access-token-file", context.credentials.token,
                 "File with the token that says who this client is. Default: MESHLOOM_TOKEN_FILE, "
                 "else ~/.config/meshloom/HOST:PORT/token");
  app.add_option("--ca", context.credentials.ca,
                 "CA of the daemon's certificate (PEM): calls are encrypted then. Default: "
                 "MESHLOOM_CA, else ca.pem in that folder");
  app.add_option("--cert", context.credentials.cert,
                 "Certificate that says who this client is (PEM). Default: MESHLOOM_CERT, else "
                 "cert.pem in that folder");
  app.add_option("--key", context.credentials.key,
                 "Its key (PEM). Default: MESHLOOM_KEY, else key.pem in that folder");
  app.add_flag("--json", context.json, "Answer in JSON; streams as one value a line");
  app.add_option("--color", context.colours, "auto (on a terminal), always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  add_up_command(app, context);
  add_down_command(app, context);
  add_status_commands(app, context);
  add_token_commands(app, context);
  add_access_commands(app, context);
  add_job_commands(app, context);
  add_events_command(app, context);
  add_run_commands(app, context);
  add_operation_commands(app, context);
  add_checkpoint_commands(app, context);
  add_generate_command(app, context);
  add_evaluate_command(app, context);
  add_upload_commands(app, context);
  add_model_commands(app, context);
  add_data_commands(app, context);
  add_plan_commands(app, context);
  add_fields_command(app, context);
  add_documentation_commands(app, context);
  app.require_subcommand(1);
  app.footer(kFooter);
  let_options_fall_through(app);
}

}  // namespace meshloom::cli
