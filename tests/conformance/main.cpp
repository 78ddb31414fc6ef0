// SPDX-License-Identifier: Apache-2.0
// meshloom-conformance: runs cases under mpirun, on forked ranks, or on one rank.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <set>
#include <thread>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "daemon/comm/mesh/mpi_environment.h"
#include "daemon/comm/mesh/mpi_runtime.h"
#include "daemon/comm/mesh/topology.h"
#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/conformance/kinds.h"
#include "tests/conformance/report.h"
#include "tests/support/fenced_device/fenced_device.h"
#include "tests/support/test_backend.h"

namespace meshloom::conformance {
namespace {

struct Options {
  std::vector<std::filesystem::path> paths;
  std::string filter = "*";
  std::filesystem::path report, out;
  std::string device = "cpu";
  int local_ranks = 0;
  std::string fusion = "auto";
  std::string may_refuse;  ///< empty: no refusal is expected
};

/// Cases of all files whose names match. Throws InvalidArgument where two have one name.
std::vector<CaseEntry> read_cases(const Options& options) {
  std::vector<CaseEntry> cases;
  std::set<std::string> names;
  for (const CaseFile& file : find_case_files(options.paths)) {
    for (CaseEntry& entry : read_case_file(file, all_kinds())) {
      check(names.insert(entry.name).second, "two cases are called '{}'", entry.name);
      if (matches_glob(entry.name, options.filter)) cases.push_back(std::move(entry));
    }
  }
  return cases;
}

Threads threads_per_rank(comm::RankRuntime& runtime) {
  const auto place =
      comm::probe_topology(runtime.bootstrap()).ranks[static_cast<std::size_t>(runtime.rank())];
  return {std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / place.local_size)};
}

int run_rank(comm::RankRuntime& runtime, const Options& options) {
  const Device device{options.device == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda, 0};
  kernels::backend_for(device);
  const std::vector<CaseEntry> cases = read_cases(options);
  Runner runner(runtime, all_kinds(),
                {device, threads_per_rank(runtime), *planner::find_fusion_mode(options.fusion)});
  Report report(options.out.empty() ? std::nullopt : std::optional(options.out));
  int passed = 0, failed = 0;
  for (const CaseEntry& entry : cases) {
    runner.run(entry, [&](Outcome outcome) {
      const bool refused = outcome.status == Status::kFail && !options.may_refuse.empty() &&
                           outcome.message.find(options.may_refuse) != std::string::npos;
      if (refused) outcome.status = Status::kSkip;
      passed += outcome.status == Status::kPass ? 1 : 0;
      failed += outcome.status == Status::kFail ? 1 : 0;
      if (runtime.rank() == 0) report.add(outcome);
    });
  }
  if (runtime.rank() == 0) {
    report.print_totals();
    if (!options.report.empty()) report.write(options.report);
  }
  return failed == 0 && passed > 0 ? 0 : 1;
}

/// Usage errors are the same on every rank; rank 0 prints them.
int run_rank_or_explain(comm::RankRuntime& runtime, const Options& options) {
  try {
    return run_rank(runtime, options);
  } catch (const Error& error) {
    if (runtime.rank() == 0) std::fprintf(stderr, "meshloom-conformance: %s\n", error.what());
    return 2;
  }
}

int run(const Options& options) {
  if (options.local_ranks > 0)
    return comm::run_local_ranks(options.local_ranks, [&](comm::RankRuntime& runtime) {
      return run_rank_or_explain(runtime, options);
    });
  // One rank started by hand needs no MPI.
  if (!comm::launched_by_mpirun())
    return comm::run_local_ranks(
        1, [&](comm::RankRuntime& runtime) { return run_rank_or_explain(runtime, options); });
  comm::MpiRuntime runtime;
  const int result = run_rank_or_explain(runtime, options);
  runtime.finish();
  return result;
}

}  // namespace
}  // namespace meshloom::conformance

int main(int argc, char** argv) {
  meshloom::kernels::cpu::add_cpu_device();
  meshloom::conformance::Options options;
  CLI::App app{"Runs conformance cases and compares what they give with what they expect."};
  app.add_option("PATH", options.paths, "case files (NAME.json) or folders")->required();
  app.add_option("--filter", options.filter, "only cases whose whole name matches; * crosses /");
  app.add_option("--report", options.report, "write a summary of all cases to this JSON file");
  app.add_option("--out", options.out, "write outputs of every case below this folder");
  app.add_option("--device", options.device,
                 "cpu, cuda, or devices of the tests: fenced (the CPU behind a fence), "
                 "cuda-emulated (a GPU)")
      ->check(CLI::IsMember({"cpu", "cuda", "cuda-emulated", "fenced"}));
  app.add_option("--local-ranks", options.local_ranks, "fork this many ranks instead of using MPI")
      ->check(CLI::Range(1, 64));
  app.add_option("--may-refuse", options.may_refuse,
                 "cases that end with an error which holds these words count as skipped");
  app.add_option("--fusion", options.fusion, "of models with sequence parallelism")
      ->check(CLI::IsMember({"auto", "force", "forbid"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (options.device == "fenced") meshloom::testing::add_fenced_devices(1);
    if (options.device.starts_with("cuda")) meshloom::testing::load_test_backend(options.device);
    return meshloom::conformance::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "meshloom-conformance: %s\n", error.what());
    return 2;
  }
}
