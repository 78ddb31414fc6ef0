// SPDX-License-Identifier: Apache-2.0
// MPI as a scope object: initialised in the constructor, finalised on the good path only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "daemon/comm/diagnosis/flight_field.h"
#include "daemon/comm/mesh/group_environment.h"
#include "daemon/comm/mesh/rank_runtime.h"
#include "daemon/comm/mesh/topology.h"
#include "daemon/comm/training_pulse.h"

namespace meshloom::comm {

class MpiLeftovers;
class MpiSegmentFolder;
class RankGroups;

struct MpiRuntimeOptions {
  /// Signal that this process gets when its parent (mpirun) dies, however it dies; 0: none. Only
  /// if mpirun started it.
  int parent_death_signal = 9;
  /// A rank waits so long for the others during bootstrap.
  std::chrono::milliseconds bootstrap_timeout{100'000};
  /// MPI's traffic between hosts takes this network interface; see mpi_defaults().
  std::string interface {};
  SymmetricOptions symmetric = symmetric_from_environment();  ///< the same on all ranks
  HierarchyOptions hierarchy = hierarchy_from_environment();  ///< the same on all ranks
};

/// There is one per process, made before other threads start and before gRPC, and used by that
/// thread alone (MPI_THREAD_FUNNELED). Every MPI call is nonblocking and polled; MPI errors come as
/// CommError.
class MpiRuntime : public RankRuntime {
 public:
  /// Throws CommError if MPI cannot start, ResourceExhausted if there is no room for its
  /// shared-memory files, InvalidArgument as mpi_defaults() does, or for pretended hosts that are
  /// not one for each rank, and what probe_topology() throws. What else is wrong MPI_Init tells
  /// mpirun, and ends the process.
  explicit MpiRuntime(const MpiRuntimeOptions& = {});
  /// Finalises only if `finish` was called: after a failure peers may be gone, and MPI_Finalize
  /// waits for them.
  ~MpiRuntime() override;
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  /// Returns false if the process was started by hand: then it is alone, which deserves a warning.
  bool launched_by_mpirun() const { return launched_by_mpirun_; }

  /// Returns the pulse by which all groups of this rank tell of their collectives; others may add
  /// to it.
  TrainingPulse& pulse() { return pulse_; }

  Bootstrap& bootstrap() override { return *bootstrap_; }
  /// Returns why MPI's own shared-memory files are not in shared memory; empty if they are.
  const std::string& segment_note() const;
  /// Returns the topology as it was probed at the start.
  const Topology& topology() const { return topology_; }
  /// Makes a world group on a communicator of its own.
  std::unique_ptr<ProcessGroup> make_world_group(const GroupOptions& = {}) override;
  /// Makes a world group with another choice between hosts than that of the options, to compare
  /// ways.
  std::unique_ptr<ProcessGroup> make_world_group(const GroupOptions&, HierarchyChoice choice);

  /// Returns the flight logs of all ranks, for any thread.
  const std::shared_ptr<const FlightField>& flight() const { return flight_; }
  /// Sets what is called on this rank's training thread when the abort record of the host is this
  /// rank's, before its waits throw.
  void on_abort(std::function<void(const AbortRecord&)> callback);

  /// Returns why collectives inside a host go over messages; empty: they go through symmetric
  /// memory.
  const std::string& symmetric_refusal() const { return memory_->refusal(); }

  /// Says that all went well: every rank gets here, so that the destructor may finalise.
  void finish() { finished_ = true; }

 private:
  MpiRuntimeOptions options_;
  int rank_ = 0;
  int world_size_ = 1;
  bool launched_by_mpirun_ = false;
  bool finished_ = false;
  TrainingPulse pulse_;
  std::unique_ptr<MpiSegmentFolder> segments_;
  std::unique_ptr<Bootstrap> bootstrap_;
  Topology topology_;
  std::shared_ptr<MpiLeftovers> leftovers_;
  std::shared_ptr<const FlightField> flight_;
  std::shared_ptr<RankGroups> groups_;
  std::shared_ptr<HostSymmetricMemory> memory_;
};

}  // namespace meshloom::comm
