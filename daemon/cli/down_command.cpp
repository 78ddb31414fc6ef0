// SPDX-License-Identifier: Apache-2.0
// down: ends the daemon that `up` has started.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "daemon/base/host_identity.h"
#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/interrupt.h"
#include "daemon/cli/local_errors.h"
#include "daemon/cli/output/output.h"
#include "daemon/command_line/number_checks.h"
#include "daemon/launch/launched_processes.h"
#include "daemon/launch/log_tail.h"
#include "daemon/launch/started_daemons.h"
#include "daemon/launch/state_lock.h"

namespace meshloom::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct DownOptions {
  double wait = 660;  // the daemon itself gives a stop up that takes 600 s
  bool force = false;
};

/// Returns the daemon of the state dir that is named. Where none is named, it is that of the
/// working folder, or else the only one that this account has started.
launch::FoundDaemon find_launched(const CommandContext& context) {
  const std::filesystem::path state_dir = state_dir_of(context.asked, context.environment);
  if (launch::belongs_to_another(state_dir))
    throw CliError(kFailed,
                   fmt::format("state dir {} belongs to another account", state_dir.string()));
  const auto found = launch::find_on(state_dir);
  if (found && found->record) return *found;
  if (found && found->runs)
    throw CliError(kFailed,
                   fmt::format("the daemon on state dir {} was not started by meshloom up; "
                               "meshloom shutdown ends it",
                               state_dir.string()));
  const auto others = launch::running();
  const bool is_named = is_state_dir_named(context.asked, context.environment);
  if (!is_named && others.size() == 1) return others.front();
  std::string elsewhere;
  for (const launch::FoundDaemon& daemon : others)
    elsewhere += fmt::format("\n  meshloom down --state-dir {}", daemon.state_dir.string());
  throw CliError(
      kFailed,
      fmt::format("no daemon that meshloom up has started runs on state dir {}{}",
                  state_dir.string(), elsewhere.empty() ? "" : "; others run:" + elsewhere));
}

/// Throws if a daemon has the folder of one that does not run where this process sees it.
void check_folder_is_free(const launch::FoundDaemon& daemon) {
  const std::string& host = daemon.record->launcher.host;
  const bool is_here = host == base::host_name();
  const launch::StateLock lock = launch::try_state_lock(daemon.state_dir);
  if (lock == launch::StateLock::kFree || (is_here && lock == launch::StateLock::kUnknown)) return;
  throw CliError(
      kFailed,
      is_here ? fmt::format("state dir {} is in use by a meshloomd of another host or container: "
                            "end it there",
                            daemon.state_dir.string())
              : fmt::format("the daemon on state dir {} was started on host {}: end it there",
                            daemon.state_dir.string(), host));
}

/// What keeps it, as far as it can be told; empty: nothing is known.
std::string kept_by(Client& client, const launch::LaunchedProcesses& processes) {
  if (client.health() == Client::Health::kUnreachable)
    return fmt::format("waiting for {} and mpirun to end",
                       plural(processes.record().ranks, "rank"));
  try {
    const auto workers = client.call(client.workers(), &v1::WorkerService::Stub::ListWorkers,
                                     v1::ListWorkersRequest(), {std::chrono::seconds(5)});
    if (workers.has_ranks().empty()) return "waiting for the daemon to stop serving";
    return fmt::format("waiting for {} to be saved at its next step boundary", workers.has_ranks());
  } catch (const CliError&) {
    return "";  // It has ended meanwhile.
  }
}

/// Asks the daemon to stop in good order. Returns false if it is not reached, or is not the one
/// that was launched: another may have the port by now. Throws CliError if it is reached and does
/// not answer in time, or refuses: its job would not be saved if mpirun were asked instead.
bool ask_in_good_order(Client& client, const launch::LaunchedProcesses& processes) {
  const CallOptions patience{std::chrono::seconds(60)};
  try {
    const auto workers = client.call(client.workers(), &v1::WorkerService::Stub::ListWorkers,
                                     v1::ListWorkersRequest(), patience);
    if (workers.workers_size() == 0 || !processes.owns(workers.workers(0).pid())) return false;
    v1::ShutdownRequest request;
    request.set_reason("meshloom down");
    client.call(client.workers(), &v1::WorkerService::Stub::Shutdown, request, patience);
    return true;
  } catch (const CliError& error) {
    if (error.code() == kCancelled) return true;  // A daemon that stops ends its calls so.
    if (client.health() == Client::Health::kUnreachable) return false;
    throw CliError(kFailed, fmt::format("the daemon was not asked to stop: {}; meshloom down "
                                        "--force kills it, and its job goes on from its last "
                                        "checkpoint",
                                        error.what()));
  }
}

/// Tells each reason once, the first after a moment.
void wait_for_end(Client& client, const launch::LaunchedProcesses& processes,
                  const DownOptions& options, bool json) {
  const InterruptScope interrupt([] {});
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(options.wait));
  auto look = begin + std::chrono::milliseconds(500);
  std::string told;
  while (!processes.ended()) {
    if (interrupt.interrupted())
      throw CliError(kInterrupted,
                     "interrupted: the daemon ends all the same; meshloom down waits for it again");
    if (Clock::now() >= end)
      throw CliError(kFailed,
                     fmt::format("the daemon has not ended after {} s{}; meshloom down --force "
                                 "kills it, and its job goes on from its last checkpoint",
                                 options.wait, told.empty() ? "" : ": " + told));
    if (!json && Clock::now() >= look) {
      look = Clock::now() + std::chrono::seconds(1);
      const std::string now = kept_by(client, processes);
      if (!now.empty() && now != told) fmt::print(stderr, "{}\n", told = now);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// Removes the record and what a daemon that was killed leaves behind, unless another daemon has
/// begun on the folder meanwhile.
void clean_up(const launch::LaunchRecord& record) {
  if (!launch::remove_record(record)) return;
  std::error_code ignored;
  std::filesystem::remove(record.state_dir / "address", ignored);
  launch::forget(record);
}

ExitCode down(const CommandContext& context, const DownOptions& options) {
  if (!context.asked.address.empty())
    throw CliError(kUsage, "down takes --state-dir, not --address");
  const launch::FoundDaemon daemon = find_launched(context);
  const launch::LaunchedProcesses processes(*daemon.record);
  const std::string folder = daemon.state_dir.string();
  const bool ran = !processes.ended();
  if (!ran) {
    check_folder_is_free(daemon);
  } else if (options.force) {
    if (!processes.kill_all(std::chrono::seconds(10)))
      throw CliError(kFailed, fmt::format("processes {} could not be killed",
                                          fmt::join(processes.members(), ", ")));
  } else {
    const bool serves = !daemon.address.empty();
    Client client(serves ? daemon.address : kNoAddress);
    // Else mpirun is asked, which kills its ranks after some seconds (Open MPI 4) or half a second
    // (Open MPI 5).
    if (!serves || !ask_in_good_order(client, processes)) processes.ask_to_end();
    wait_for_end(client, processes, options, context.json);
  }
  clean_up(*daemon.record);
  const char* what = !ran ? "had ended before" : options.force ? "was killed" : "has stopped";
  if (context.json) {
    const nlohmann::ordered_json told = {
        {"state_dir", folder}, {"ran", ran}, {"killed", ran && options.force}};
    fmt::print("{}\n", told.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("the daemon on state dir {} {}\n", folder, what);
    if (!ran) fmt::print("{}", launch::last_lines(daemon.record->log, 3));
  }
  return kOk;
}

}  // namespace

void add_down_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "down",
      "End the daemon that `meshloom up` has started, and wait for it; the running job is saved "
      "and goes on at the next start");
  auto options = std::make_shared<DownOptions>();
  command
      ->add_option("--wait", options->wait,
                   "Give up waiting after so many seconds; the daemon ends all the same. Default "
                   "660")
      ->check(command_line::positive());
  command->add_flag("--force", options->force,
                    "Kill it at once: its job goes on from its last checkpoint");
  command->footer(
      "Example: meshloom down\n"
      "It is the daemon of --state-dir or MESHLOOM_STATE_DIR. Where neither is given, it is that "
      "of "
      "./meshloom-state, else the only one that this account has started. One that was started by "
      "hand is ended by meshloom "
      "shutdown.");
  command->callback([&context, options] {
    context.action = [&context, options](Client&) {
      return telling_errors([&] { return down(context, *options); });
    };
  });
}

}  // namespace meshloom::cli
