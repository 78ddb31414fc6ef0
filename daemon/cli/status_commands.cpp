// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "daemon/base/host_identity.h"
#include "daemon/base/states.h"
#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/gpu_lines.h"
#include "daemon/cli/launcher_watch.h"
#include "daemon/cli/output/output.h"
#include "daemon/command_line/number_checks.h"
#include "daemon/launch/launched_processes.h"
#include "daemon/launch/started_daemons.h"

namespace meshloom::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// The daemon as it is when all ranks serve, or after `seconds`.
Client::Health wait_until_serving(Client& client, double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  while (true) {
    const Client::Health health = client.health();
    if (health == Client::Health::kServing || Clock::now() >= end) return health;
    client.wait_for_connection(std::chrono::milliseconds(200));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::string busy_text(const Client& client) {
  return fmt::format("meshloomd at {} is busy: it is connected and did not answer within {} s",
                     client.address(), Client::kHealthTime.count());
}

/// One that is being saved to be let go has them still.
bool has_ranks(v1::JobState state) {
  return state == v1::JOB_STATE_PREPARING || state == v1::JOB_STATE_RUNNING ||
         state == v1::JOB_STATE_PAUSING || state == v1::JOB_STATE_CANCELLING;
}

const char* state_text(v1::WorkerState state) {
  switch (state) {
    case v1::WORKER_STATE_READY: return "ready";
    case v1::WORKER_STATE_SILENT: return "silent";
    case v1::WORKER_STATE_STUCK: return "stuck";
    default: return "-";  // of another version
  }
}

void print_workers(const v1::ListWorkersResponse& response) {
  std::vector<std::vector<std::string>> rows{
      {"rank", "state", "host", "pid", "device", "cpu", "threads", "memory"}};
  for (const auto& worker : response.workers())
    rows.push_back({std::to_string(worker.rank()), state_text(worker.state()), worker.host(),
                    std::to_string(worker.pid()), worker.device(), worker.cpu(),
                    std::to_string(worker.threads()), bytes_text(worker.memory_bytes())});
  print_table(rows);
  for (const std::string& line : gpu_lines(response)) fmt::print("{}\n", line);
  for (const auto& worker : response.workers())
    if (!worker.trouble().empty()) fmt::print("rank {}: {}\n", worker.rank(), worker.trouble());
}

/// Says how a daemon of this host was started if it was started in the background.
void print_launch(const v1::ListWorkersResponse& response) {
  std::optional<launch::FoundDaemon> found;
  try {
    found = launch::find_on(response.state_dir());
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());
  }
  // The folder may be another host's of the same name.
  if (found && found->record && found->runs && response.workers_size() > 0 &&
      launch::LaunchedProcesses(*found->record).owns(response.workers(0).pid()))
    fmt::print("started by meshloom up, log in {}; meshloom down ends it\n",
               found->record->log.string());
}

/// Tells the state of the whole daemon: ranks are named if it is for them that it does not serve.
std::string state_of(const v1::ListWorkersResponse& response, Client::Health health) {
  std::vector<std::string> troubled;
  for (const auto& worker : response.workers())
    if (!worker.trouble().empty())
      troubled.push_back(fmt::format("rank {} is {}", worker.rank(), state_text(worker.state())));
  if (!troubled.empty()) return fmt::format("{}", fmt::join(troubled, ", "));
  switch (health) {
    case Client::Health::kServing: return "serving";
    case Client::Health::kNotServing: return "waiting for ranks";
    case Client::Health::kBusy: return "busy";
    case Client::Health::kUnreachable: return "gone";
  }
  return "gone";
}

ExitCode status(Client& client, bool json, double wait_seconds) {
  Client::Health health = wait_until_serving(client, wait_seconds);
  if (health == Client::Health::kBusy) throw CliError(kUnreachable, busy_text(client));
  if (wait_seconds > 0 && health != Client::Health::kServing)
    throw CliError(kUnreachable, fmt::format("no meshloomd serves at {} after {} s",
                                             client.address(), wait_seconds));
  const auto workers = client.call(client.workers(), &v1::WorkerService::Stub::ListWorkers,
                                   v1::ListWorkersRequest());
  // It may have started meanwhile.
  if (health == Client::Health::kUnreachable) health = client.health();
  const bool serving = health == Client::Health::kServing;
  if (json) {
    print_json(workers);
    return serving ? kOk : kUnreachable;
  }
  const std::string state = state_of(workers, health);
  fmt::print("meshloomd {} at {}: {}, up {}, state in {}\n", workers.version(), client.address(),
             state, duration_text(static_cast<double>(workers.uptime_seconds())),
             workers.state_dir());
  print_workers(workers);
  print_launch(workers);
  if (workers.drain() == v1::DRAIN_STATE_DRAINED)
    fmt::print("drained: {}\n", workers.drain_reason());
  if (workers.drain() == v1::DRAIN_STATE_DRAINING)
    fmt::print("draining: {}; {} still has the ranks\n", workers.drain_reason(),
               workers.has_ranks());
  if (workers.queue().ahead_count() > 0)
    fmt::print("queue: what is submitted now waits {}\n", workers.queue().reason());
  if (workers.recoveries() > 0)
    fmt::print("failures of one rank that the daemon survived: {}; the last: {}\n",
               workers.recoveries(), workers.last_failure());
  for (const std::string& note : workers.access_notes()) fmt::print("access: {}\n", note);
  for (const std::string& trouble : workers.journal_trouble()) fmt::print("journal: {}\n", trouble);
  for (const auto& lost : workers.lost())
    fmt::print("lost: {} files, {}, in {}/{} at the start: the journal knows nothing of them\n",
               lost.files(), bytes_text(lost.size_bytes()), workers.state_dir(), lost.folder());
  const auto all = client.list(client.jobs(), &v1::JobService::Stub::ListJobs);
  v1::Job running;
  for (const auto& job : all.jobs())
    if (has_ranks(job.state())) running = job;
  if (!running.name().empty())
    fmt::print("running: {}, step {} of {}{}\n", short_name(running.name()), running.step(),
               running.steps(), serving ? "" : ", " + state);
  return serving ? kOk : kUnreachable;
}

ExitCode shutdown(Client& client, bool json, double wait_seconds) {
  std::optional<LauncherWatch> launchers;
  if (wait_seconds > 0)
    launchers.emplace(client.call(client.workers(), &v1::WorkerService::Stub::ListWorkers,
                                  v1::ListWorkersRequest()),
                      base::host_name());
  const v1::ShutdownRequest request;
  const auto response = client.call(client.workers(), &v1::WorkerService::Stub::Shutdown, request);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(wait_seconds));
  const auto wait_until = [&](const char* still, const auto& reached) {
    while (!reached()) {
      if (Clock::now() >= end)
        throw CliError(kFailed, fmt::format("{} after {} s", still, wait_seconds));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  };
  if (launchers) {
    wait_until("the daemon still serves",
               [&] { return client.health() == Client::Health::kUnreachable; });
    wait_until("the daemon no longer serves, but mpirun has not ended",
               [&] { return launchers->ended(); });
  }
  if (json) {
    print_json(response);
  } else {
    fmt::print("{}\n", wait_seconds > 0
                           ? "the daemon has stopped"
                           : "the daemon stops at the next step boundary, after a checkpoint");
  }
  return kOk;
}

ExitCode drain(Client& client, bool json, const std::string& reason, double wait_seconds) {
  v1::DrainRequest request;
  request.set_reason(reason);
  client.call(client.workers(), &v1::WorkerService::Stub::Drain, request);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(wait_seconds));
  v1::ListWorkersResponse now;
  while (true) {
    now = client.call(client.workers(), &v1::WorkerService::Stub::ListWorkers,
                      v1::ListWorkersRequest());
    if (now.drain() != v1::DRAIN_STATE_DRAINING || Clock::now() >= end) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const bool drained = now.drain() == v1::DRAIN_STATE_DRAINED;
  if (json)
    print_json(now);
  else if (drained)
    fmt::print("drained: nothing has the ranks, and nothing begins before `meshloom undrain`\n");
  else
    fmt::print("draining: {} still has the ranks\n", now.has_ranks());
  return drained || wait_seconds == 0 ? kOk : kFailed;
}

ExitCode undrain(Client& client, bool json) {
  const auto response =
      client.call(client.workers(), &v1::WorkerService::Stub::Undrain, v1::UndrainRequest());
  if (json)
    print_json(response);
  else
    fmt::print("jobs and runs begin again{}\n",
               response.resumed().empty()
                   ? ""
                   : fmt::format("; {} goes on", fmt::join(response.resumed(), ", ")));
  return kOk;
}

ExitCode dump(Client& client, bool json, int entries) {
  v1::DumpFlightRequest request;
  request.set_entries(entries);
  const auto response =
      client.call(client.workers(), &v1::WorkerService::Stub::DumpFlight, request);
  if (json) {
    print_json(response);
  } else {
    fmt::print("{}", response.text());
  }
  return kOk;
}

/// The table that the daemon goes by, which this program is built with.
ExitCode states(bool json) {
  if (!json) {
    fmt::print("{}", base::states_markdown(1));
    return kOk;
  }
  nlohmann::ordered_json all;
  for (const base::StateTable* table : base::state_tables())
    for (const base::StateMove& move : table->moves)
      all[table->resource].push_back({{"from", table->name(move.from)},
                                      {"to", table->name(move.to)},
                                      {"by", move.by},
                                      {"when", move.when}});
  fmt::print("{}\n", all.dump(2));
  return kOk;
}

void add_drain_commands(CLI::App& app, CommandContext& context) {
  auto* drain_command = app.add_subcommand(
      "drain",
      "Save and pause the running job, save and close the running run, and begin nothing more");
  auto drain_wait = std::make_shared<double>(0);
  auto reason = std::make_shared<std::string>();
  drain_command->add_option("--reason", *reason, "Shown by status");
  drain_command->add_option("--wait", *drain_wait, "Wait up to so many seconds until it is drained")
      ->check(command_line::not_negative());
  drain_command->callback([&context, drain_wait, reason] {
    context.action = [&context, drain_wait, reason](Client& client) {
      return drain(client, context.json, *reason, *drain_wait);
    };
  });
  auto* undrain_command = app.add_subcommand("undrain", "Let jobs and runs begin again");
  undrain_command->callback([&context] {
    context.action = [&context](Client& client) { return undrain(client, context.json); };
  });
}

void add_worker_command(CLI::App& app, CommandContext& context) {
  auto* worker = app.add_subcommand("worker", "Look at the ranks of the daemon");
  worker->require_subcommand(1);
  auto* dump_command = worker->add_subcommand(
      "dump",
      "Show the collectives of all ranks side by side, and who keeps the others waiting; no rank "
      "has to answer, so it works while they train or hang, and disturbs none");
  auto entries = std::make_shared<int>(16);
  dump_command
      ->add_option("--entries", *entries,
                   "The last so many calls of each rank, of which 1024 are recorded; default 16")
      ->check(command_line::positive());
  dump_command->footer("Example: meshloom worker dump --entries 64");
  dump_command->callback([&context, entries] {
    context.action = [&context, entries](Client& client) {
      return dump(client, context.json, *entries);
    };
  });
}

}  // namespace

void add_status_commands(CLI::App& app, CommandContext& context) {
  auto* status_command = app.add_subcommand("status", "Show the daemon and its ranks");
  auto wait = std::make_shared<double>(0);
  status_command->add_option("--wait", *wait, "Wait up to so many seconds until all ranks serve")
      ->check(command_line::not_negative());
  status_command->footer("Example: meshloom status --wait 10");
  status_command->callback([&context, wait] {
    context.action = [&context, wait](Client& client) {
      return status(client, context.json, *wait);
    };
  });

  auto* shutdown_command = app.add_subcommand(
      "shutdown",
      "Stop the daemon at a step boundary; the running job is saved and goes on at the next start");
  auto gone = std::make_shared<double>(0);
  shutdown_command
      ->add_option("--wait", *gone,
                   "Wait up to so many seconds until it no longer serves and mpirun, where it "
                   "runs on this host, has ended")
      ->check(command_line::not_negative());
  shutdown_command->callback([&context, gone] {
    context.action = [&context, gone](Client& client) {
      return shutdown(client, context.json, *gone);
    };
  });

  add_drain_commands(app, context);
  add_capabilities_command(app, context);

  auto* states_command = app.add_subcommand(
      "states", "The states of jobs, runs and operations, and every move between them");
  states_command->callback(
      [&context] { context.action = [&context](Client&) { return states(context.json); }; });
  add_worker_command(app, context);
}

}  // namespace meshloom::cli
