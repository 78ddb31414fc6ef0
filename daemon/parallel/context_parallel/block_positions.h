// SPDX-License-Identifier: Apache-2.0
// BlockPositions: where the queries and keys of the blocks of a plan stand, in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/parallel/context_parallel/row_group.h"
#include "daemon/tensor/tensor.h"
#include "kernels/options.h"
#include "planner/attention/rotate.h"

namespace meshloom::parallel {

/// It is made once with a plan, by one copy from the host, for all layers and passes that share it.
class BlockPositions {
 public:
  BlockPositions() = default;
  /// The groups of a plan, of which this rank is member `member`. `rotate`, which is no kUlysses,
  /// says which keys of others come: all of them, or (kPull) those that are seen.
  BlockPositions(ExecutionContext& context, std::span<const RowGroup> groups, int member,
                 planner::Rotate rotate);

  /// Tells the kernel the positions, and the documents if there are any, of a group's queries and
  /// of the keys of its steps [first, end), one step's behind the other's. A step without keys that
  /// are seen has none. The memory lives as long as this.
  void tell(kernels::AttentionOptions& options, std::size_t group, int first, int end) const;

 private:
  /// Places holds queries, then the keys of each step.
  struct Places {
    std::int64_t begin = 0;
    std::vector<std::int64_t> keys;  ///< where those of each step begin, and those of the last end
    bool documents = false;
  };

  std::vector<Places> groups_;
  std::int64_t count_ = 0;  ///< of all positions; as many documents lie behind them
  Tensor values_;           ///< int64, flat
};

}  // namespace meshloom::parallel
