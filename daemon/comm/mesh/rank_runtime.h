// SPDX-License-Identifier: Apache-2.0
// RankRuntime: what a rank has before anything else, however it was started.
#pragma once

#include <memory>

#include "daemon/comm/bootstrap/bootstrap.h"
#include "daemon/comm/process_group.h"

namespace meshloom::comm {

/// RankRuntime is a process under mpirun (MpiRuntime), a forked process (run_local_ranks) or a
/// thread (run_thread_ranks).
class RankRuntime {
 public:
  virtual ~RankRuntime() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// Gives exchange, broadcast and barrier over all ranks; lives as long as the runtime.
  virtual Bootstrap& bootstrap() = 0;
  /// Makes a new group of all ranks. Every rank calls it in the same order. It ends before the
  /// runtime.
  virtual std::unique_ptr<ProcessGroup> make_world_group(const GroupOptions& = {}) = 0;
};

}  // namespace meshloom::comm
