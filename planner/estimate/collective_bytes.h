// SPDX-License-Identifier: Apache-2.0
// What a rank sends in a collective, as the process groups do it.
#pragma once

#include <cstdint>
#include <string>

namespace meshloom::planner {

enum class CollectiveKind { kAllReduce, kAllGather, kReduceScatter, kAllToAll };
std::string to_string(CollectiveKind kind);

/// Returns the bytes that rank 0 of a group of `size` sends in one call on `elements` of the whole
/// tensor, of which its part is `own`: an all_gather sends the own part to every other rank, a
/// reduce_scatter every other rank its part; an all_reduce of more than 32 KiB is both, a smaller
/// one sends all to everyone at once. Of an all_to_all `own` is what goes to others.
std::int64_t bytes_sent(CollectiveKind kind, std::int64_t elements, std::int64_t own,
                        std::int64_t element_bytes, int size);
/// Returns the bytes that rank 0 sends in one call if parts follow the ceil rule.
std::int64_t bytes_sent(CollectiveKind kind, std::int64_t elements, std::int64_t element_bytes,
                        int size);

}  // namespace meshloom::planner
