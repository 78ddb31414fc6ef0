// SPDX-License-Identifier: Apache-2.0
// What `load_balancer: auto` stands for: the balancer whose areas are most even.
#pragma once

#include "planner/attention/balance.h"

namespace meshloom::planner {

/// Chunks per rank of kMaskArea.
inline constexpr std::int64_t kAreaChunks = 16;

/// kPerDocument for a row with documents. Else kHeadTail, which gives a rank two stretches, so that
/// it reads the fewest keys of others; but kMaskArea if some layer has a window and the areas of
/// all layers are more even by that: by a hundredth, since less is lost again at the edges of its
/// many stretches. Takes O(ranks) for each kind of layer.
LoadBalancer chosen_balancer(std::int64_t size, int ranks, const RowMask& row,
                             const std::vector<LayerWindow>& layers = {});

}  // namespace meshloom::planner
