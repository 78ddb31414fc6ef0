// SPDX-License-Identifier: Apache-2.0
// Ranks of one host without MPI, threads or forked processes: the memory that they share, and the
// groups that one of them makes in it.
#pragma once

#include <chrono>
#include <memory>

#include "daemon/comm/diagnosis/flight_field.h"
#include "daemon/comm/failure/rank_groups.h"
#include "daemon/comm/failure/shared_memory_failure_channel.h"
#include "daemon/comm/hierarchy/hierarchy_table.h"
#include "daemon/comm/process_group.h"
#include "daemon/comm/symm_mem/host_symmetric_memory.h"
#include "daemon/comm/transport/byte_ring.h"
#include "daemon/comm/transport/transport.h"

namespace meshloom::comm {

/// SharedMemoryWorld holds the rings, the flight logs and what failures need, in an anonymous
/// mapping that forked children share.
class SharedMemoryWorld {
 public:
  /// Throws ResourceExhausted naming the size.
  explicit SharedMemoryWorld(int world_size);
  ~SharedMemoryWorld();
  SharedMemoryWorld(const SharedMemoryWorld&) = delete;
  SharedMemoryWorld& operator=(const SharedMemoryWorld&) = delete;

  int world_size() const { return rings_.world_size; }
  const RingField& rings() const { return rings_; }
  const FailureField& failures() const { return failures_; }
  FlightLog flight_log(int rank) const;

 private:
  RingField rings_;
  FailureField failures_;
  std::byte* flight_logs_ = nullptr;
};

/// SharedMemoryRank holds one rank's messages and groups; made once for each rank, and used by its
/// training thread.
class SharedMemoryRank {
 public:
  /// `timeout` is for each wait for all ranks after a failure. `symmetric` and `hierarchy` are the
  /// same on all ranks, which are on one host where the latter names none. Throws InvalidArgument
  /// where it does not name one for each rank.
  SharedMemoryRank(const std::shared_ptr<SharedMemoryWorld>& world, int rank,
                   std::chrono::milliseconds timeout, const SymmetricOptions& symmetric = {},
                   const HierarchyOptions& hierarchy = {});

  /// Makes a group of all ranks as RankRuntime::make_world_group does.
  std::unique_ptr<ProcessGroup> make_world_group(const GroupOptions& options);
  const std::shared_ptr<RankGroups>& groups() const { return groups_; }

 private:
  HierarchyOptions hierarchy_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<HostSymmetricMemory> memory_;
  std::shared_ptr<RankGroups> groups_;
};

}  // namespace meshloom::comm
