// SPDX-License-Identifier: Apache-2.0
// RemoteDisk: rank 0's files on a rank whose host has another disk.
#pragma once

#include <memory>
#include <string>

#include "daemon/base/disk.h"
#include "daemon/comm/training_pulse.h"
#include "daemon/control/access/launch_key.h"
#include "daemon/train/files/file_system.h"

namespace meshloom::control {

/// Reads byte ranges and writes shards by RankFileService, on the calling thread. Every piece that
/// comes or goes is progress of the training thread; calls end when cancel() does, which whoever
/// watches rank 0 calls. What rank 0 throws is thrown here; if it cannot be reached, IoError
/// (RANK0_UNREACHABLE). Files that were opened end before this.
class RemoteDisk final : public base::Disk, public train::OutputFiles {
 public:
  /// Connects when it is first used. `pulse` may be null; `key`: LaunchCard::key.
  RemoteDisk(const std::string& address, std::string secret, int rank,
             comm::TrainingPulse* pulse = nullptr, const LaunchKey& key = {});
  ~RemoteDisk() override;

  /// Ends calls in flight, and those to come. Any thread may call it.
  void cancel();

  bool is_remote() const override { return true; }
  base::FileKind kind(const std::filesystem::path& path) override;
  base::InputFile open(const std::filesystem::path& path) override;
  std::vector<std::string> list(const std::filesystem::path& folder) override;
  std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) override;
  std::optional<std::string> stamp(const std::filesystem::path& path) override;
  std::unique_ptr<train::OutputFile> create(const std::filesystem::path& path,
                                            std::size_t expected_bytes) override;

 private:
  class Calls;
  class Range;
  class Shard;

  const std::shared_ptr<Calls> calls_;
};

}  // namespace meshloom::control
