// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/shared_memory_world.h"

#include <sys/mman.h>

#include <numeric>
#include <vector>

#include "daemon/comm/flight/collective_group.h"
#include "daemon/comm/hierarchy/host_algorithms.h"
#include "daemon/comm/staging/staging_algorithms.h"
#include "daemon/comm/transport/shared_memory_transport.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

std::size_t field_bytes(int world_size) {
  const auto ranks = static_cast<std::size_t>(world_size);
  return sizeof(ByteRing) * ranks * ranks + sizeof(Seat) * ranks + sizeof(FailureBoard) +
         FlightLog::bytes() * ranks;
}

}  // namespace

SharedMemoryWorld::SharedMemoryWorld(int world_size) {
  void* memory = mmap(nullptr, field_bytes(world_size), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw ResourceExhausted(fmt::format("no {} bytes of shared memory for {} local ranks",
                                        field_bytes(world_size), world_size));
  // The mapping is zero, which is what an empty ring and an empty board look like; pages are
  // touched when they are used.
  rings_ = {static_cast<ByteRing*>(memory), world_size};
  Seat* seats = reinterpret_cast<Seat*>(rings_.rings + world_size * world_size);
  failures_ = {reinterpret_cast<FailureBoard*>(seats + world_size), seats, world_size};
  flight_logs_ = reinterpret_cast<std::byte*>(failures_.board + 1);
}

FlightLog SharedMemoryWorld::flight_log(int rank) const {
  return FlightLog(flight_logs_ + FlightLog::bytes() * static_cast<std::size_t>(rank));
}

SharedMemoryWorld::~SharedMemoryWorld() {
  munmap(static_cast<void*>(rings_.rings), field_bytes(world_size()));
}

SharedMemoryRank::SharedMemoryRank(const std::shared_ptr<SharedMemoryWorld>& world, int rank,
                                   std::chrono::milliseconds timeout,
                                   const SymmetricOptions& symmetric,
                                   const HierarchyOptions& hierarchy)
    : hierarchy_(with_hosts(hierarchy,
                            std::vector<int>(static_cast<std::size_t>(world->world_size()), 0))),
      memory_(std::make_shared<HostSymmetricMemory>(symmetric)) {
  auto endpoint = std::make_shared<RingEndpoint>(
      std::shared_ptr<const RingField>(world, &world->rings()), rank);
  transport_ = make_shared_memory_transport(endpoint);
  auto flight = std::make_shared<FlightField>();
  flight->rank = rank;
  for (int r = 0; r < world->world_size(); ++r)
    flight->logs.push_back({world->flight_log(r), {}, world});
  // This rank's log is its own from here on.
  flight->own().begin(rank, own_start_time(), own_pid_namespace());
  groups_ = std::make_shared<RankGroups>(
      make_shared_memory_failure_channel(
          std::shared_ptr<const FailureField>(world, &world->failures()), std::move(endpoint),
          timeout, symmetric.sharing != SharingMode::kNone),
      std::move(flight));
}

std::unique_ptr<ProcessGroup> SharedMemoryRank::make_world_group(const GroupOptions& options) {
  // All groups of a rank share its rings, each on a channel of its own.
  std::vector<int> all(static_cast<std::size_t>(transport_->size()));
  std::iota(all.begin(), all.end(), 0);
  const GroupKey key = groups_->next_world_key();
  auto algorithms = make_host_algorithms(
      transport_->split({all}, key),
      {memory_, groups_->peer_access(), options.threads, options.timeout}, hierarchy_, key);
  return make_collective_group(with_staging(std::move(algorithms), options), options, groups_, key);
}

}  // namespace meshloom::comm
