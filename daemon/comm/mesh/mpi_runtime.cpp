// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/mpi_runtime.h"

#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>

#include "daemon/comm/bootstrap/mpi_bootstrap.h"
#include "daemon/comm/failure/mpi_failure_channel.h"
#include "daemon/comm/flight/collective_group.h"
#include "daemon/comm/hierarchy/host_algorithms.h"
#include "daemon/comm/mesh/bootstrap_exchange.h"
#include "daemon/comm/mesh/mpi_environment.h"
#include "daemon/comm/mesh/mpi_segment_folder.h"
#include "daemon/comm/mpi_check.h"
#include "daemon/comm/staging/staging_algorithms.h"
#include "daemon/comm/symm_mem/peer_process.h"
#include "daemon/comm/transport/mpi_transport.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

/// Every rank of the world calls it. A rank's log lies in symmetric memory of its own, which its
/// peers on the host map; in private memory where it has none. Logs of ranks that cannot be
/// reached, such as those of other hosts, are not there, and say why. Throws what the bootstrap
/// throws.
std::shared_ptr<const FlightField> share_flight_logs(Bootstrap& bootstrap,
                                                     HostSymmetricMemory& memory) {
  const int rank = bootstrap.rank(), size = bootstrap.world_size();
  SegmentPiece mine;
  if (memory.options().sharing == SharingMode::kNone) mine.trouble = "sharing is turned off";
  try {
    if (mine.trouble.empty() && size > 1) mine.segment = memory.make_segment(FlightLog::bytes());
  } catch (const Error& error) {
    mine.trouble = error.what();
  }
  if (!mine.segment) mine.trouble = mine.trouble.empty() ? "it is alone" : mine.trouble;
  auto field = std::make_shared<FlightField>(*make_private_flight_field(rank, size, mine.trouble));
  if (size == 1) return field;
  if (mine.segment) {
    field->logs[static_cast<std::size_t>(rank)] = {
        FlightLog(mine.segment->data()), {}, mine.segment};
    field->own().begin(rank, own_start_time(), own_pid_namespace());
  }
  BootstrapExchange exchange(bootstrap);
  const ReachedSegments reached = memory.directory().reach(exchange, mine);
  for (std::size_t r = 0; r < field->logs.size(); ++r) {
    if (static_cast<int>(r) == rank || !mine.segment) continue;
    const std::shared_ptr<Segment>& segment = reached.memory.segments[r];
    const std::string& why = reached.why_not[r];
    field->logs[r] = {segment ? FlightLog(segment->data()) : FlightLog(),
                      why.empty() && !segment ? "it shares no memory" : why, segment};
  }
  bootstrap.barrier();  // all have mapped what they reach
  return field;
}

}  // namespace

MpiRuntime::MpiRuntime(const MpiRuntimeOptions& options)
    : options_(options),
      launched_by_mpirun_(comm::launched_by_mpirun()),
      segments_(std::make_unique<MpiSegmentFolder>()),
      leftovers_(std::make_shared<MpiLeftovers>()),
      memory_(std::make_shared<HostSymmetricMemory>(options.symmetric)) {
  if (const int signal = options_.parent_death_signal; launched_by_mpirun_ && signal != 0) {
    const pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, signal);
    // The parent may have died before the request was made.
    if (getppid() != parent) raise(signal);
  }
  for (const auto& [name, value] : mpi_defaults(process_environment(), options_.interface))
    setenv(name.c_str(), value.c_str(), 0);
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (provided < MPI_THREAD_FUNNELED) throw CommError("MPI offers no MPI_THREAD_FUNNELED");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &world_size_), "MPI_Comm_size");
  bootstrap_ = make_mpi_bootstrap(MPI_COMM_WORLD, options_.bootstrap_timeout);
  // Every rank has mapped its neighbours' segments by now: their files are needed no more.
  bootstrap_->barrier();
  segments_->hide();
  topology_ = probe_topology(*bootstrap_);
  options_.hierarchy = with_hosts(options_.hierarchy, topology_.host_numbers());
  flight_ = share_flight_logs(*bootstrap_, *memory_);
  if (world_size_ > 1)
    groups_ = std::make_shared<RankGroups>(
        make_mpi_failure_channel(MPI_COMM_WORLD, leftovers_, options_.bootstrap_timeout), flight_,
        &pulse_);
}

const std::string& MpiRuntime::segment_note() const { return segments_->note(); }

void MpiRuntime::on_abort(std::function<void(const AbortRecord&)> callback) {
  if (groups_) groups_->on_abort(std::move(callback));
}

MpiRuntime::~MpiRuntime() {
  if (!finished_) return;
  groups_.reset();
  segments_->show();
  MPI_Finalize();
}

std::unique_ptr<ProcessGroup> MpiRuntime::make_world_group(const GroupOptions& options) {
  return make_world_group(options, options_.hierarchy.choice);
}

std::unique_ptr<ProcessGroup> MpiRuntime::make_world_group(const GroupOptions& options,
                                                           HierarchyChoice choice) {
  if (world_size_ == 1) return make_single_process_group(options);
  HierarchyOptions hierarchy = options_.hierarchy;
  hierarchy.choice = choice;
  const GroupKey key = groups_->next_world_key();
  auto algorithms = make_host_algorithms(
      make_mpi_transport(MPI_COMM_WORLD, leftovers_),
      {memory_, groups_->peer_access(), options.threads, options.timeout}, hierarchy, key);
  return make_collective_group(with_staging(std::move(algorithms), options), options, groups_, key);
}

}  // namespace meshloom::comm
