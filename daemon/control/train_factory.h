// SPDX-License-Identifier: Apache-2.0
// The RunFactory of a daemon: the training engine on this rank.
#pragma once

#include "daemon/comm/process_group.h"
#include "daemon/control/ranks/remote_disk.h"
#include "daemon/control/ranks/run_factory.h"

namespace meshloom::control {

/// Makes the execution context with the first run, so that an idle rank stays small. Used by the
/// training thread.
class TrainFactory final : public RunFactory {
 public:
  /// `disk`: where rank 0's files are, if not on the disk of this host; outlives the factory.
  TrainFactory(comm::ProcessGroup& world, int threads, RemoteDisk* disk = nullptr);
  ~TrainFactory() override;

  std::unique_ptr<train::Run> create(const v1::RunConfig& resolved,
                                     const train::RunOptions& options) override;
  void run_in_step(const std::function<void()>& verb) override;
  std::uint64_t recoveries() const override;
  void join_recovery() override;

 private:
  comm::ProcessGroup& world_;
  int threads_;
  RemoteDisk* disk_;
  std::unique_ptr<ExecutionContext> context_;
};

}  // namespace meshloom::control
