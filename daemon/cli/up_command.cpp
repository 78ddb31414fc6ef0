// SPDX-License-Identifier: Apache-2.0
// up: a daemon on this host, started in the background.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/interrupt.h"
#include "daemon/cli/local_errors.h"
#include "daemon/cli/output/output.h"
#include "daemon/command_line/number_checks.h"
#include "daemon/launch/log_tail.h"
#include "daemon/launch/start_check.h"
#include "daemon/launch/start_daemon.h"
#include "daemon/launch/started_daemons.h"

namespace meshloom::cli {
namespace {

constexpr int kMostRanks = 1024;
constexpr int kShownLines = 10;
// Long enough for a start in good order to end, and short for whoever pressed Ctrl-C.
constexpr std::chrono::seconds kGraceAfterInterrupt{3};

/// Options of meshloomd that `up` takes under their own names.
struct DaemonOption {
  const char* name;
  const char* help;
  bool takes_value;
};
constexpr DaemonOption kDaemonOptions[] = {
    {"--data-dir",
     "Folder below which jobs find data and models; several times for several, which are searched "
     "in their order. Default: the working folder",
     true},
    {"--listen",
     "Address for clients, host:port; port 0 takes a free one. Default 127.0.0.1:7420, or a free "
     "port where that is taken",
     true},
    {"--threads", "Threads per rank. Default: usable cores / ranks", true},
    {"--config", "YAML file with settings of the daemon (proto: DaemonConfig)", true},
    {"--log-level", "trace, debug, info, warning or error. Default info", true},
    {"--max-stalled-attempts",
     "Hold a job when the daemon has ended in so many attempts in a row before a step was done. "
     "Default 3",
     true},
    {"--on-event",
     "Command of a shell that is started for each state that a job comes to (see meshloomd --help)",
     true},
    {"--mpi-interface", "Interface or subnet for all traffic between ranks", true},
    {"--no-resume", "Hold the jobs that an earlier daemon left unfinished", false},
    {"--tls-cert", "Certificate of the daemon (PEM); with --tls-key calls over TCP are encrypted",
     true},
    {"--tls-key", "Its key (PEM)", true},
    {"--tls-client-ca", "CA of clients' certificates (PEM)", true},
    {"--tokens", "File of the clients' tokens. Default STATE_DIR/access_tokens", true},
    {"--socket", "Unix socket for other accounts of this host", true},
    {"--role", "NAME=ROLE of an account, a @GROUP or a certificate (see meshloomd --help)", true},
    {"--insecure", "Allow --listen on an address that other machines reach (see meshloomd --help)",
     false},
};

struct UpOptions {
  int ranks = 1;
  double wait = 120;
  std::vector<std::vector<std::string>> values =
      std::vector<std::vector<std::string>>(std::size(kDaemonOptions));
  std::vector<std::size_t> flags = std::vector<std::size_t>(std::size(kDaemonOptions));
  std::vector<std::string> more;  ///< behind --
};

/// All that meshloomd is given on its command line.
std::vector<std::string> daemon_flags(const UpOptions& options, const CommandContext& context) {
  std::vector<std::string> flags;
  if (!context.asked.state_dir.empty()) flags = {"--state-dir", context.asked.state_dir};
  for (std::size_t i = 0; i < std::size(kDaemonOptions); ++i) {
    for (const std::string& value : options.values[i])
      flags.insert(flags.end(), {kDaemonOptions[i].name, value});
    if (options.flags[i] > 0) flags.emplace_back(kDaemonOptions[i].name);
  }
  if (!options.more.empty() && !options.more[0].starts_with("-"))
    throw CliError(kUsage, fmt::format("\"{0}\" is one argument too many; did you mean --data-dir "
                                       "{0}? Options of meshloomd stand behind --",
                                       options.more[0]));
  flags.insert(flags.end(), options.more.begin(), options.more.end());
  return flags;
}

/// Where nobody can listen on the default address, any other port will do; an address that the user
/// names must do.
void choose_address(const launch::StartCheck& check, std::vector<std::string>* flags) {
  if (check.address_problem.empty()) return;
  if (check.listen_given)
    throw CliError(kFailed,
                   check.address_problem + "; leave --listen out for a free port of this host");
  flags->insert(flags->end(), {"--listen", "127.0.0.1:0"});
}

/// Asks whether the daemon serves, by one connection.
class ServingProbe {
 public:
  bool operator()(const std::string& address) {
    if (!client_ || client_->address() != address) client_ = std::make_unique<Client>(address);
    return client_->health() == Client::Health::kServing;
  }
  Client& client() { return *client_; }

 private:
  std::unique_ptr<Client> client_;
};

/// Ends what was begun, and tells why there is no daemon.
[[noreturn]] void fail_start(const launch::LaunchRecord& record, launch::StartEnd end,
                             double waited) {
  const launch::LaunchedProcesses processes(record);
  if (!processes.end(kGraceAfterInterrupt))
    throw CliError(kFailed, fmt::format("the daemon was to be ended, and processes are left: {}",
                                        fmt::join(processes.members(), ", ")));
  launch::remove_record(record);
  if (end == launch::StartEnd::kInterrupted)
    throw CliError(kInterrupted, "interrupted: the daemon that was being started is ended");
  const std::string lines = launch::last_lines(record.log, kShownLines);
  const std::string what = end == launch::StartEnd::kEnded
                               ? "the daemon ended before it served"
                               : fmt::format(
                                     "the daemon did not serve within {} s and was ended "
                                     "(--wait gives it longer)",
                                     waited);
  throw CliError(kFailed, fmt::format("{}; the end of {}:\n{}", what, record.log.string(),
                                      lines.empty() ? "(nothing)\n" : lines));
}

/// The list by which clients in other folders find it; it serves without.
void put_on_list(const launch::LaunchRecord& record, const std::string& address) {
  try {
    launch::remember(record);
  } catch (const Error& error) {
    fmt::print(stderr,
               "meshloom: clients in other folders have to be told --address {}, since the list of "
               "started daemons cannot be written: {}\n",
               address, error.what());
  }
}

void print_started(const launch::LaunchRecord& record, const std::string& address, bool json,
                   const v1::ListWorkersResponse& workers) {
  const int threads = workers.workers_size() > 0 ? workers.workers(0).threads() : 0;
  if (json) {
    const nlohmann::ordered_json told = {
        {"address", address},         {"state_dir", record.state_dir.string()},
        {"log", record.log.string()}, {"ranks", record.ranks},
        {"threads", threads},         {"pid", record.launcher.pid}};
    fmt::print("{}\n", told.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("meshloomd {} serves at {}: {} with {}\n", workers.version(), address,
             plural(record.ranks, "rank"), plural(threads, "thread"));
  print_line("state", record.state_dir.string());
  print_line("log", record.log.string());
  fmt::print(
      "Next: meshloom job submit JOB.yaml --follow (meshloom job submit --example prints "
      "one); meshloom down ends the daemon.\n");
}

ExitCode up(const CommandContext& context, const UpOptions& options) {
  if (!context.asked.address.empty()) throw CliError(kUsage, "up takes --listen, not --address");
  launch::LaunchOptions launch;
  launch.ranks = options.ranks;
  launch.flags = daemon_flags(options, context);
  launch::find_programs(&launch);
  const launch::StartCheck check = launch::check_start(launch);
  launch.state_dir = check.state_dir;
  const launch::LaunchTurn turn(launch.state_dir);
  choose_address(check, &launch.flags);
  const InterruptScope interrupt([] {});
  const launch::LaunchRecord record = launch::start_daemon(launch, turn);
  ServingProbe probe;
  std::string address;
  const launch::StartEnd end = launch::wait_until_serving(
      record, {.patience = std::chrono::duration_cast<std::chrono::milliseconds>(
                   std::chrono::duration<double>(options.wait)),
               .slow =
                   [&] {
                     if (!context.json)
                       fmt::print(stderr, "waiting until {} {}; log: {}\n",
                                  plural(record.ranks, "rank"),
                                  record.ranks == 1 ? "serves" : "serve", record.log.string());
                   },
               .serves = [&](const std::string& at) { return probe(address = at); },
               .interrupted = [&] { return interrupt.interrupted(); }});
  if (end != launch::StartEnd::kServes) fail_start(record, end, options.wait);
  put_on_list(record, address);
  const auto workers = probe.client().call(
      probe.client().workers(), &v1::WorkerService::Stub::ListWorkers, v1::ListWorkersRequest());
  print_started(record, address, context.json, workers);
  const auto& other = context.environment.address;
  if (other && *other != address)
    fmt::print(stderr,
               "meshloom: MESHLOOM_ADDRESS is {}: other commands go there until it is unset\n",
               *other);
  return kOk;
}

}  // namespace

void add_up_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "up", "Start a daemon on this host in the background, and wait until it serves");
  auto options = std::make_shared<UpOptions>();
  command->add_option("-n,--ranks", options->ranks, "Ranks, each a process. Default 1")
      ->check(CLI::Range(1, kMostRanks));
  for (std::size_t i = 0; i < std::size(kDaemonOptions); ++i) {
    const DaemonOption& option = kDaemonOptions[i];
    if (option.takes_value)
      command->add_option(option.name, options->values[i], option.help)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
          ->allow_extra_args(false);
    else
      command->add_flag(option.name, options->flags[i], option.help);
  }
  command
      ->add_option("--wait", options->wait,
                   "End it and fail where it does not serve within so many seconds. Default 120")
      ->check(command_line::positive());
  command->add_option("options", options->more, "Options of meshloomd, behind --");
  command->footer(
      "Example: meshloom up -n 2 --data-dir data\n"
      "It starts mpirun with all that Open MPI 4 and 5 need, in a session of its own: it outlives "
      "the terminal, and no Ctrl-C reaches it. What it prints is in STATE_DIR/logs/daemon.log. The "
      "state dir is --state-dir, else MESHLOOM_STATE_DIR, else ./meshloom-state. Other commands of "
      "this account find the daemon by themselves.");
  command->callback([&context, options] {
    context.action = [&context, options](Client&) {
      return telling_errors([&] { return up(context, *options); });
    };
  });
}

}  // namespace meshloom::cli
