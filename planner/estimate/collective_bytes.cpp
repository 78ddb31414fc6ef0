// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/collective_bytes.h"

#include "planner/communication_sizes.h"
#include "planner/shard.h"

namespace meshloom::planner {

std::string to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all_reduce";
    case CollectiveKind::kAllGather: return "all_gather";
    case CollectiveKind::kReduceScatter: return "reduce_scatter";
    case CollectiveKind::kAllToAll: return "all_to_all";
  }
  return "";
}

std::int64_t bytes_sent(CollectiveKind kind, std::int64_t elements, std::int64_t own,
                        std::int64_t element_bytes, int size) {
  const std::int64_t gathered = (size - 1) * own;
  const std::int64_t scattered = elements - own;
  switch (kind) {
    case CollectiveKind::kAllGather: return gathered * element_bytes;
    case CollectiveKind::kReduceScatter: return scattered * element_bytes;
    case CollectiveKind::kAllReduce:
      if (elements * element_bytes <= kOneShotBytes) return (size - 1) * elements * element_bytes;
      return (gathered + scattered) * element_bytes;
    case CollectiveKind::kAllToAll: return own * element_bytes;
  }
  return 0;
}

std::int64_t bytes_sent(CollectiveKind kind, std::int64_t elements, std::int64_t element_bytes,
                        int size) {
  return bytes_sent(kind, elements, shard_range(elements, size, 0).size(), element_bytes, size);
}

}  // namespace meshloom::planner
