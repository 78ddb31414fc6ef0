// SPDX-License-Identifier: Apache-2.0
// Small numbers of the host, reduced over ranks or gathered from them, and a digest by which ranks
// compare what is larger.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/comm/process_group.h"

namespace meshloom::comm {

/// Reduces `values` in place, element by element, over the ranks of the group, which all call it.
void all_reduce(ProcessGroup& group, std::span<double> values, ReduceOp op);

/// Gathers equally many values of every rank, by rank. All ranks of the group call it.
std::vector<std::vector<std::int64_t>> all_gather(ProcessGroup& group,
                                                  const std::vector<std::int64_t>& mine);

/// Returns the XXH3 digest (64 bits) of a text. It tells texts apart that differ by mistake, not by
/// intent.
std::int64_t text_digest(std::string_view text);

}  // namespace meshloom::comm
