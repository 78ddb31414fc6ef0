// SPDX-License-Identifier: Apache-2.0
// FileGrants: which of rank 0's files the other ranks may read and write: those that commands name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Of each rank by itself. A grant begins when a command that names files is sent to the rank, and
/// ends when the rank has deleted the command's run or has not made it. Any thread may call.
class FileGrants {
 public:
  void sent(int rank, const v1::RankCommand& command);
  void answered(int rank, const v1::RankResult& result);
  /// The rank has gone.
  void left(int rank);

  /// The path without links in it. Throws FailedPrecondition (PERMISSION_DENIED) unless it is one
  /// that the rank may read.
  std::filesystem::path readable(int rank, const std::filesystem::path& path) const;
  /// The same for a shard that the rank writes: a file in a checkpoint that is not finished.
  std::filesystem::path writable(int rank, const std::filesystem::path& path) const;

 private:
  /// Files and folders, canonical; whatever is below a folder belongs to it.
  struct Paths {
    std::set<std::filesystem::path> read;
    std::set<std::filesystem::path> written;
  };
  /// What ends a grant.
  struct End {
    std::string run;
    bool only_if_it_fails = false;
  };
  struct Rank {
    std::map<std::string, Paths> runs;
    std::map<std::int64_t, End> ends;  ///< by seq of the command
  };

  std::filesystem::path granted(int rank, const std::filesystem::path& path,
                                std::set<std::filesystem::path> Paths::*kind) const;

  mutable std::mutex mutex_;
  std::map<int, Rank> ranks_;
};

}  // namespace meshloom::control
