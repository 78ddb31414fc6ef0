// SPDX-License-Identifier: Apache-2.0
// How long commands may go without progress: by the size of what they do.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Learns the size of a run from the command that creates it. Thread-safe.
///
/// The limits are those of a machine that is broken, not of a slow one: a minute, and the time of
/// the work at 10 MB/s of files and 100 MFLOP/s of each rank.
class CommandDeadlines {
 public:
  /// Sets deadline_ms if it is 0 and the size is known.
  void set(v1::RankCommand* command);

 private:
  struct RunSize {
    double state_bytes = 0;   ///< weights and optimizer
    double source_bytes = 0;  ///< of the files that it is loaded from
    double batch_flops = 0;   ///< of a global batch, forward; of the longest datum without any
    double token_flops = 0;   ///< of a token, forward
    double longest = 0;       ///< tokens of the longest sample
  };

  static RunSize size_of(const v1::CreateRunCommand& command);
  static double loss_flops(const v1::LossCommand& command, const RunSize& size);
  static double seconds(const v1::RankCommand& command, const RunSize& size);

  std::mutex mutex_;
  std::map<std::string, RunSize> runs_;
};

}  // namespace meshloom::control
