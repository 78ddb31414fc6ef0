// SPDX-License-Identifier: Apache-2.0
// Which keys a rank needs from whom, and in which order it attends to them: the static schedule of
// context-parallel attention. A pure value: every rank works out its own, and any other rank's.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/attention/mask.h"

namespace meshloom::planner {

/// A rank holds this of a sequence.
struct SequencePart {
  IndexRanges queries;
  IndexRanges keys;
};

/// AttentionStep has the queries of one rank against the keys of another.
struct AttentionStep {
  int source = 0;
  /// Positions of the keys of `source` that some query here sees, in the order in which it holds
  /// them; empty: nothing is computed or moved.
  IndexRanges keys;
  std::int64_t area = 0;  ///< pairs that see each other
};

/// Returns the steps of rank `rank` in the order in which it computes them and merges their
/// results: its own keys first, then those of rank - 1, rank - 2 and so on around the ring, so that
/// no two ranks read from the same one at once. One step for every rank.
std::vector<AttentionStep> attention_schedule(int rank, const std::vector<SequencePart>& parts,
                                              const RowMask& row);

/// Returns, by rank, which of the keys of `source` its queries see, in the order in which `source`
/// holds them; what attention_schedule of that rank says of its step with this source.
std::vector<IndexRanges> requested_keys(int source, const std::vector<SequencePart>& parts,
                                        const RowMask& row);

/// Returns how many keys a rank gets from others.
std::int64_t remote_keys(int rank, const std::vector<AttentionStep>& steps);

/// Returns where in a list of ranges the elements `wanted` lie, which it holds in that order:
/// places counted along the list.
IndexRanges places_in(const IndexRanges& held, const IndexRanges& wanted);

}  // namespace meshloom::planner
