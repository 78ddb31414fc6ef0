// SPDX-License-Identifier: Apache-2.0
#include <sys/types.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "daemon/base/process_stat.h"
#include "tests/bench/bench.h"
#include "tests/bench/daemon_process.h"

namespace meshloom::bench {
namespace {

namespace fs = std::filesystem;

struct StartupOptions {
  std::string daemon = "meshloomd";
  std::string client = "meshloom";
  int ranks = 2;
  int repeats = 5;
  double idle_seconds = 5.0;
};

/// Processes whose command line names the daemon and this state dir.
std::vector<pid_t> ranks_of(const fs::path& state_dir) {
  std::vector<pid_t> ranks;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (line.find(state_dir.string()) == std::string::npos ||
        line.find("meshloomd") == std::string::npos)
      continue;
    if (line.find("mpirun") != std::string::npos) continue;
    ranks.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return ranks;
}

std::int64_t resident_bytes(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/statm");
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

/// User and system time so far.
double cpu_seconds(pid_t process) {
  const auto stat = base::read_process_stat(process).value();
  return static_cast<double>(stat.user_ticks + stat.system_ticks) /
         static_cast<double>(::sysconf(_SC_CLK_TCK));
}

struct Sample {
  double ready_seconds = 0.0;
  std::int64_t largest_idle_rank = 0;
  double idle_cpu_share = 0.0;
};

Sample measure(const StartupOptions& options, bool idle) {
  const auto begin = Clock::now();
  const DaemonProcess daemon({options.daemon, options.client, options.ranks});
  Sample sample;
  sample.ready_seconds = seconds_since(begin);
  if (idle) {
    const auto ranks = ranks_of(daemon.state_dir());
    double before = 0.0, after = 0.0;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    for (const pid_t rank : ranks) {
      sample.largest_idle_rank = std::max(sample.largest_idle_rank, resident_bytes(rank));
      before += cpu_seconds(rank);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(options.idle_seconds));
    for (const pid_t rank : ranks) after += cpu_seconds(rank);
    sample.idle_cpu_share = (after - before) / options.idle_seconds;
  }
  return sample;
}

}  // namespace

int run_startup_bench(int argc, char** argv) {
  StartupOptions options;
  CLI::App app("Times mpirun to a daemon that answers, and looks at the daemon while it is idle.",
               "meshloom-bench startup");
  app.add_option("--daemon", options.daemon, "the meshloomd program")->capture_default_str();
  app.add_option("--client", options.client, "the meshloom program")->capture_default_str();
  app.add_option("--ranks", options.ranks, "ranks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "starts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--idle-seconds", options.idle_seconds, "how long idle CPU time is watched")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::vector<double> ready;
  Sample idle;
  for (int i = 0; i < options.repeats; ++i) {
    const Sample sample = measure(options, i == 0);
    if (i == 0) idle = sample;
    ready.push_back(sample.ready_seconds);
  }
  const nlohmann::json line = {{"bench", "startup"},
                               {"ranks", options.ranks},
                               {"ready_seconds", {{"p50", percentile(ready, 0.5)}, {"all", ready}}},
                               {"idle_rank_resident_bytes", idle.largest_idle_rank},
                               {"idle_cpu_share_of_a_core", idle.idle_cpu_share}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace meshloom::bench
