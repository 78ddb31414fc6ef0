// SPDX-License-Identifier: Apache-2.0
// The daemon's folder: what lies where, and the lock against a second daemon.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "daemon/base/unique_fd.h"
#include "daemon/control/stores/lock_beat.h"

namespace meshloom::control {

///   lock, address, journal
///   events.jsonl, hooks.json           what became of all jobs (EventLog), what hooks are owed
///   logs/rank-N.log, logs/flight-rank-N.txt
///   jobs/NAME/{resolved.yaml, metrics.jsonl, checkpoints/step-N, EXPORT}
///   blobs/{SHA256, incoming/UPLOAD}, models/NAME/
///   tokens/DIGEST.tokens               of text (train::TokenCache)
///   evaluations/N/                     weights of a checkpoint while they are evaluated
///   runs/NAME/{states/STATE-EPOCH-SEQ, weights/NAME}
///   lost/DATE/                         what the journal knows nothing of (LostFolder)
///   journal-id                         of the journal whose contents these are
class StateDir {
 public:
  struct LockOptions {
    /// flock(2) of a descriptor, without waiting: 0 or its errno.
    std::function<int(int fd)> lock = flock_now;
    LockBeat::Times times;
    /// Another daemon has begun on the folder, since this one was stopped for so long that it was
    /// taken for dead: whatever this one writes from here on destroys what the other one does. Who
    /// hears of that outlives the object; null: nobody.
    LockBeat::Observer* observer = nullptr;
  };
  /// Makes the folder (mode 0700) if it is missing and locks it for the life of the object: the
  /// folder itself, so that it stays locked when the lock file is removed. Where the file system
  /// has no locks a second daemon is found by a LockBeat, and starts take some seconds. One that
  /// other users could read becomes private with all that lies in it. Rank 0 only. Throws
  /// FailedPrecondition (STATE_DIR_LOCKED) naming the other daemon.
  StateDir(std::filesystem::path root, const LockOptions& options);
  explicit StateDir(std::filesystem::path root);
  ~StateDir();
  StateDir(const StateDir&) = delete;
  StateDir& operator=(const StateDir&) = delete;

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path journal() const { return root_ / "journal"; }
  std::filesystem::path jobs() const { return root_ / "jobs"; }
  std::filesystem::path job(const std::string& id) const { return jobs() / id; }
  std::filesystem::path events() const { return root_ / "events.jsonl"; }
  std::filesystem::path tokens() const { return root_ / "tokens"; }
  std::filesystem::path run(const std::string& id) const { return root_ / "runs" / id; }
  std::filesystem::path checkpoints(const std::string& id) const { return job(id) / "checkpoints"; }

  /// Throws FailedPrecondition (STATE_DIR_GONE) if the folder or its journal was removed or
  /// replaced, so that nothing that is written would be found again.
  void check_in_place() const;

  /// Writes "host:port" where clients and tests find it; removed with the object.
  void publish_address(const std::string& address);

 private:
  static int flock_now(int fd);

  std::filesystem::path root_;
  base::UniqueFd folder_;
  base::UniqueFd lock_;
  std::unique_ptr<LockBeat> beat_;  ///< null: the file system has locks
  bool published_ = false;
};

/// Where a run's state that is saved at number `seq` of an epoch lies below the state dir. The
/// journal keeps it.
std::string saved_state_folder(const std::string& run, const std::string& state, std::int64_t epoch,
                               std::int64_t seq);
/// The same of weights that are saved on disk.
std::string saved_weights_folder(const std::string& run, const std::string& weights);

/// The log file of one rank; the folder is made. Every rank may call it.
std::filesystem::path log_file(const std::filesystem::path& state_dir, int rank);
/// Where a rank writes the collectives of all ranks when one of them has met its deadline; the
/// newest alone is kept.
std::filesystem::path flight_file(const std::filesystem::path& state_dir, int rank);

}  // namespace meshloom::control
