// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/daemon.h"

#include <unistd.h>

#include <filesystem>
#include <optional>

#include "daemon/base/as_error.h"
#include "daemon/comm/mesh/topology.h"
#include "daemon/control/host/host_info.h"
#include "daemon/control/host/leave_soon.h"
#include "daemon/control/host/memory.h"
#include "daemon/control/host/stop_signal.h"
#include "daemon/control/leader.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/follower.h"
#include "daemon/control/ranks/launch_card.h"
#include "daemon/control/ranks/rank_service.h"
#include "daemon/control/ranks/rank_worker.h"
#include "daemon/control/ranks/remote_disk.h"
#include "daemon/control/services/flight_dump.h"
#include "daemon/control/train_factory.h"
#include "daemon/control/world_hosts.h"
#include "kernels/backend_table.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

/// Its device is the one that a job without run.device gives the rank.
v1::RankHello make_hello(int rank, const comm::Topology& topology, int threads,
                         const train::WorldDevices& devices) {
  const auto& place = topology.ranks[static_cast<std::size_t>(rank)];
  const auto& host = devices[static_cast<std::size_t>(place.host)];
  v1::RankHello hello;
  hello.set_rank(rank);
  hello.set_local_rank(place.local_rank);
  hello.set_host(place.hostname);
  hello.set_pid(::getpid());
  hello.set_threads(threads);
  const Device device =
      train::device_of_rank(train::default_device(devices), host, place.local_rank);
  hello.set_device(to_string(device));
  hello.set_gpu(kernels::backend_for(device).describe().device_text);
  // The class of the CPU: amx, avx512_bf16, avx512, avx2 or sse4.
  hello.set_cpu(kernels::backend_for(kCpuDevice).describe().hardware_class);
  hello.set_memory_bytes(process_memory().resident);
  return hello;
}

/// Texts of proto messages are UTF-8.
std::string failure_text(const comm::Failure& failure) {
  return to_details(
             InternalError(fmt::format("rank {} failed alone: {}", failure.rank, failure.text)))
      .message();
}

/// Ends this rank, whose rank 0 has gone.
class RankEnd final : public Follower::Observer {
 public:
  RankEnd(int rank, comm::AbortFlag& abort, RemoteDisk* disk)
      : rank_(rank), abort_(abort), disk_(disk) {}
  void rank0_ended(const std::string& cause) override {
    spdlog::critical("rank {} stops: {}", rank_, cause);
    abort_.raised = true;
    if (disk_ != nullptr) disk_->cancel();
    leave_soon(fmt::format("rank {}", rank_));
  }

 private:
  const int rank_;
  comm::AbortFlag& abort_;
  RemoteDisk* const disk_;
};

DaemonEnd follow(comm::ProcessGroup& world, const LaunchCard& card, const v1::RankHello& hello,
                 comm::MpiRuntime& runtime, std::chrono::milliseconds rank_timeout,
                 RunFactory& factory, comm::AbortFlag& abort, RemoteDisk* disk) {
  RankEnd rank_end(hello.rank(), abort, disk);
  Follower follower(
      {card.address, card.beats, card.secret, hello, &runtime.pulse(), rank_timeout, card.key},
      rank_end);
  const StopSignalListener signals(follower);
  world.failures()->on_raise([&](std::uint64_t epoch, const comm::Failure& failure) {
    follower.report_failure(epoch, failure_text(failure));
  });
  LoopEnd end;
  {
    RankWorker worker(hello.rank(), factory);
    end = run_commands(follower.commands(), worker, follower, &runtime.pulse());
  }
  if (end != LoopEnd::kStopped) {
    // Rank 0 answers a result that leaves the ranks out of step with an abort, which ends the
    // stream.
    leave_soon(fmt::format("rank {}", hello.rank()));
    follower.wait_for_end();
    return {1, false};
  }
  follower.leave();
  return {0, true};
}

/// Begins the log of this rank in the state folder of its own host, which may be made for that, and
/// returns where its flight records go. A rank on another disk than rank 0's does without both
/// where that folder cannot be used, and says so.
std::optional<std::filesystem::path> begin_log(const v1::DaemonConfig& config,
                                               const v1::RankHello& hello) {
  const int rank = hello.rank();
  try {
    const std::string file = log_file(config.state_dir(), rank).string();
    init_log({rank, config.log_level(), file});
    if (hello.other_disk())
      spdlog::info("{} writes its log on its own disk: {}", describe(hello), file);
    return flight_file(config.state_dir(), rank);
  } catch (const std::exception& error) {
    if (!hello.other_disk()) throw;
    init_log({rank, config.log_level(), ""});
    spdlog::warn("{} keeps no log file and no flight record, standard error has its lines: {}",
                 describe(hello), error.what());
    return std::nullopt;
  }
}

/// How the ranks exchange data, for the log.
std::string describe_exchange(const comm::MpiRuntime& runtime, const comm::ProcessGroup& world) {
  const std::string& refusal = runtime.symmetric_refusal();
  const int hosts = runtime.topology().hosts;
  if (!refusal.empty()) return "by messages over MPI: " + refusal;
  if (hosts == 1) return "through symmetric memory";
  if (world.hosts().empty()) return fmt::format("by messages over MPI between {} hosts", hosts);
  return fmt::format("through symmetric memory inside {} hosts and over MPI between them", hosts);
}

/// Every rank of the world calls it; `ranks` and `leader` are for rank 0. What the others join by,
/// or why they need not.
LaunchCard start_leader(comm::MpiRuntime& runtime, const DaemonOptions& options,
                        const Leader::World& ranks, comm::AbortFlag& abort,
                        std::unique_ptr<Leader>* leader) {
  LaunchCard card;
  if (runtime.rank() == 0) {
    try {
      *leader = std::make_unique<Leader>(options, ranks, abort, runtime.pulse());
      card = (*leader)->card();
    } catch (...) {
      card.failure = base::as_error(std::current_exception()).what();
      spdlog::critical("{}", card.failure);
    }
  }
  return launch_card_from(runtime.bootstrap().broadcast(to_bytes(card), 0));
}

/// Rank 0, until the daemon stops. Lets go of a leader that threads which hang may still use.
DaemonEnd lead(comm::ProcessGroup& world, std::unique_ptr<Leader>& leader, RunFactory& factory) {
  if (!world.hosts().empty())
    spdlog::debug("hosts of the ranks, which decide the order of sums: {}", world.hosts());
  if (world.failures())
    world.failures()->on_raise([&](std::uint64_t epoch, const comm::Failure& failure) {
      leader->report_failure(epoch, failure_text(failure));
    });
  const DaemonEnd end = leader->serve(factory);
  if (end.hanging) static_cast<void>(leader.release());
  return end;
}

}  // namespace

DaemonEnd run_daemon(comm::MpiRuntime& runtime, const DaemonOptions& options) {
  const v1::DaemonConfig& config = options.config;
  const int rank = runtime.rank();
  const comm::Topology& topology = runtime.topology();
  const int fair = threads_per_rank(runtime.bootstrap(), topology);
  const int threads = config.threads() > 0 ? config.threads() : fair;

  comm::AbortFlag abort;
  comm::GroupOptions group;
  group.timeout = std::chrono::milliseconds(config.collective_timeout_ms());
  group.abort = &abort;
  group.threads = Threads{threads};
  const auto world = runtime.make_world_group(group);
  if (rank == 0 && runtime.world_size() > 1)
    spdlog::info("ranks exchange data {}", describe_exchange(runtime, *world));
  if (rank == 0 && !runtime.segment_note().empty()) spdlog::info("{}", runtime.segment_note());
  const WorldHosts hosts = gather_hosts(runtime.bootstrap(), topology);
  v1::RankHello hello = make_hello(rank, topology, threads, hosts.devices);
  const Leader::World ranks{hello, runtime.world_size(), hosts, runtime.flight()};
  std::unique_ptr<Leader> leader;
  const LaunchCard card = start_leader(runtime, options, ranks, abort, &leader);
  if (!card.failure.empty()) return {1, true};
  hello.set_other_disk(!sees_probe(config.state_dir(), card.probe));
  const std::optional<std::filesystem::path> flight_path = begin_log(config, hello);
  std::unique_ptr<RemoteDisk> disk;
  if (hello.other_disk())
    disk =
        std::make_unique<RemoteDisk>(card.address, card.secret, rank, &runtime.pulse(), card.key);
  const comm::RankPlace& place = topology.ranks[static_cast<std::size_t>(rank)];
  TrainFactory factory(
      *world, threads, disk.get(),
      {&runtime, group, hosts.devices[static_cast<std::size_t>(place.host)], place.local_rank});
  if (flight_path)
    runtime.on_abort([&runtime, path = *flight_path](const comm::AbortRecord& record) {
      write_flight_file(*runtime.flight(), path, record.text);
    });
  if (rank == 0) return lead(*world, leader, factory);
  return follow(*world, card, hello, runtime, std::chrono::milliseconds(config.rank_timeout_ms()),
                factory, abort, disk.get());
}

}  // namespace meshloom::control
