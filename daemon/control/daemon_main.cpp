// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/daemon_main.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "daemon/base/env.h"
#include "daemon/base/quiet_threads.h"
#include "daemon/comm/mesh/mpi_environment.h"
#include "daemon/comm/mesh/mpi_runtime.h"
#include "daemon/control/config_agreement.h"
#include "daemon/control/daemon.h"
#include "daemon/control/daemon_options.h"
#include "daemon/control/host/address_space.h"
#include "daemon/control/host/standard_streams.h"
#include "daemon/control/host/stop_signal.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/start_check.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr int kUsageExit = 2;

/// Before MPI_Init, which ends a process that it cannot start and leaves it to mpirun to say why.
void warn_of_quiet_mpirun() {
  const std::string variable = comm::quiet_variable(comm::process_environment());
  if (variable.empty() || base::launched_rank() != 0) return;
  std::fprintf(stderr,
               "meshloomd: %s is set: if MPI cannot start, mpirun does not say why; unset it\n",
               variable.c_str());
}

/// Of a config file that this rank cannot read nobody has told it yet, not even what MPI needs.
std::unique_ptr<comm::MpiRuntime> start_mpi(const ParsedDaemonOptions& parsed) {
  comm::MpiRuntimeOptions mpi;
  mpi.interface = parsed.options.config.mpi_interface();
  warn_of_quiet_mpirun();
  try {
    return std::make_unique<comm::MpiRuntime>(mpi);
  } catch (const InvalidArgument& error) {
    if (parsed.file.refusal.empty()) throw;
    throw InvalidArgument(fmt::format("{}; --config: {}", error.what(), parsed.file.refusal),
                          error.reason(), error.metadata());
  }
}

/// Exit code 2 on every rank alike, so that mpirun gives it back.
bool world_size_fits(const comm::MpiRuntime& runtime, int expected) {
  if (expected == 0) {
    if (!runtime.launched_by_mpirun())
      spdlog::warn(
          "not started by mpirun: this daemon has one rank. Start several with mpirun -n N "
          "meshloomd, or give --world-size 1");
    return true;
  }
  if (runtime.world_size() == expected) return true;
  if (runtime.rank() == 0)
    std::fprintf(stderr, "meshloomd: --world-size is %d, but %d ranks were started\n", expected,
                 runtime.world_size());
  return false;
}

/// Of rank 0's disk, on every rank alike.
bool has_data_dir(comm::MpiRuntime& runtime, const DaemonOptions& options) {
  std::string missing;
  try {
    if (runtime.rank() == 0) check_data_dir(options.config);
  } catch (const Error& error) {
    missing = error.what();
    std::fprintf(stderr, "meshloomd: %s\n", missing.c_str());
  }
  return runtime.bootstrap().broadcast(missing, 0).empty();
}

DaemonEnd run(ParsedDaemonOptions parsed) {
  const auto started = start_mpi(parsed);
  comm::MpiRuntime& runtime = *started;
  const DaemonOptions& options = parsed.options;
  const std::string wrong = agree_on_config(runtime.bootstrap(), runtime.topology(), &parsed);
  if (!wrong.empty() && runtime.rank() == 0) std::fprintf(stderr, "meshloomd: %s\n", wrong.c_str());
  init_log({runtime.rank(), options.config.log_level(), ""});
  route_grpc_log();
  if (!wrong.empty() || !world_size_fits(runtime, options.config.world_size()) ||
      !has_data_dir(runtime, options)) {
    runtime.finish();
    return {kUsageExit, true};
  }
  const DaemonEnd end = run_daemon(runtime, options);
  spdlog::shutdown();
  // Ranks that are out of step must not wait for each other in MPI_Finalize or in destructors.
  if (!end.in_step) std::_Exit(end.exit_code);
  runtime.finish();
  return end;
}

/// What is to be said before MPI has started, which is the same on all ranks: rank 0 says it.
int answer(const ParsedDaemonOptions& parsed) {
  if (base::launched_rank() != 0) {
    // mpirun ends all ranks when one has failed, and this one must not be ahead of rank 0.
    if (*parsed.exit_code != 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  } else if (*parsed.exit_code == 0) {
    std::fputs(parsed.answer.c_str(), stdout);
  } else {
    std::fprintf(stderr, "meshloomd: %s\n", parsed.answer.c_str());
  }
  return *parsed.exit_code;
}

}  // namespace

int daemon_main(int argc, char** argv, void (*add_devices)()) {
  base::use_quiet_threads(argv);
  keep_standard_streams();
  // Whatever a daemon writes is its user's alone.
  ::umask(077);
  prepare_signals();
  try {
    auto parsed = parse_daemon_options(argc, argv, base::read_environment());
    if (parsed.exit_code) return answer(parsed);
    check_address_space();
    if (parsed.flags.check) {
      std::fputs(check_start(parsed).c_str(), stdout);
      return 0;
    }
    if (add_devices != nullptr) add_devices();
    const DaemonEnd end = run(std::move(parsed));
    // A thread that hangs in a file system must not see the objects of the process go.
    if (end.hanging) std::_Exit(end.exit_code);
    return end.exit_code;
  } catch (const Error& error) {
    std::fprintf(stderr, "meshloomd: %s\n", error.what());
    return error.kind() == ErrorKind::kInvalidArgument || error.kind() == ErrorKind::kNotFound
               ? kUsageExit
               : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "meshloomd: %s\n", error.what());
    return 1;
  }
}

}  // namespace meshloom::control
