// SPDX-License-Identifier: Apache-2.0
// The RunFactory of a daemon: the training engine on this rank.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/mesh/rank_runtime.h"
#include "daemon/comm/process_group.h"
#include "daemon/control/ranks/remote_disk.h"
#include "daemon/control/ranks/run_factory.h"
#include "daemon/train/config/device_choice.h"

namespace meshloom::control {

/// What a rank makes runs on devices beside its CPU with.
struct RankDevices {
  comm::RankRuntime* runtime = nullptr;  ///< of the world; outlives the factory
  comm::GroupOptions group = {};         ///< of its groups, but for the device
  train::HostDevices host = {};          ///< of this rank
  int local_rank = 0;
};

/// Makes what runs on a device are made with when the first of them is, so that an idle rank stays
/// small, and keeps it. Used by the training thread.
class TrainFactory final : public RunFactory {
 public:
  /// `world`: of host memory; all ranks meet in it whatever their runs compute on. `disk`: where
  /// rank 0's files are, if not on the disk of this host. Both outlive the factory.
  TrainFactory(comm::ProcessGroup& world, int threads, RemoteDisk* disk = nullptr,
               RankDevices devices = {});
  ~TrainFactory() override;

  std::unique_ptr<train::Run> create(const v1::RunConfig& resolved,
                                     const train::RunOptions& options) override;
  void run_in_step(const std::function<void()>& verb) override;
  std::uint64_t recoveries() const override;
  void join_recovery() override;

 private:
  /// The context on a device of this rank.
  ExecutionContext& context_on(Device device);
  /// The group of all ranks whose runs compute on what run.device names. Every rank makes those of
  /// the same names in the same order, whichever devices they stand for on it.
  comm::ProcessGroup& world_on(const std::string& resolved_device, Device device);

  comm::ProcessGroup& world_;
  int threads_;
  RemoteDisk* disk_;
  RankDevices devices_;
  std::vector<std::unique_ptr<ExecutionContext>> contexts_;            ///< each on another device
  std::map<std::string, std::unique_ptr<comm::ProcessGroup>> worlds_;  ///< by run.device
};

}  // namespace meshloom::control
