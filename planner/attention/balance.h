// SPDX-License-Identifier: Apache-2.0
// How the tokens of a sequence are dealt to ranks so that attention is as much work for each.
//
// Zigzag order: "Striped Attention" (Brandon et al., 2023) describes the imbalance of causal masks,
// Megatron's and PyTorch's context parallelism the head and tail chunks that are used here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/attention/mask.h"
#include "planner/dim_order.h"

namespace meshloom::planner {

enum class LoadBalancer : std::uint8_t {
  kAuto,         ///< chosen_balancer of each row
  kNone,         ///< neighbouring tokens, by the ceil rule
  kHeadTail,     ///< rank r holds chunk r and chunk 2 * ranks - 1 - r of 2 * ranks
  kPerDocument,  ///< head and tail of every document; a short document goes whole to one rank
  kMaskArea,     ///< chunks of a sixteenth of a rank's tokens, by what the mask lets them see
};

/// So many layers of a model have this window to the left, which stands for that of a row's mask
/// (AttentionMask::window_left).
struct LayerWindow {
  std::int64_t window_left = -1;
  std::int64_t layers = 1;
};

/// Chunks per rank of kMaskArea.
inline constexpr std::int64_t kAreaChunks = 16;

/// The names, for error texts and help.
inline constexpr const char* kLoadBalancerNames =
    "auto, none, head_tail, per_document or mask_area";
const char* to_string(LoadBalancer balancer);
std::optional<LoadBalancer> find_load_balancer(std::string_view name);

/// Returns, by rank, what it holds of a sequence of `size` elements, in the order in which it holds
/// it. Every rank holds floor(size / ranks) elements or one more, and which of them have one more
/// depends on the size alone; kNone follows the ceil rule (shard.h) instead. `row` is the mask of
/// queries and keys of this sequence; kPerDocument without documents throws InvalidArgument, and so
/// do documents of another size. kMaskArea balances the sum of the areas of `layers`, if there are
/// any. Takes O(size) with documents, else O(ranks).
std::vector<IndexRanges> balanced_parts(LoadBalancer balancer, std::int64_t size, int ranks,
                                        const RowMask& row,
                                        const std::vector<LayerWindow>& layers = {});

/// Returns what balanced_parts gives for a batch whose rows may differ in their documents, as the
/// order of the sequence dim of a tensor whose rows lie in dim `row_dim`; null if it is the ceil
/// rule.
DimOrderPtr balanced_order(LoadBalancer balancer, std::int64_t size, int ranks, int row_dim,
                           const std::vector<RowMask>& rows,
                           const std::vector<LayerWindow>& layers = {});

/// Returns what kAuto stands for: the balancer whose areas are most even. kPerDocument for a row
/// with documents. Else kHeadTail, which gives a rank two stretches, so that it reads the fewest
/// keys of others; but kMaskArea if some layer has a window and the areas of all layers are more
/// even by that: by a hundredth, since less is lost again at the edges of its many stretches. Takes
/// O(ranks) for each kind of layer.
LoadBalancer chosen_balancer(std::int64_t size, int ranks, const RowMask& row,
                             const std::vector<LayerWindow>& layers = {});

/// Returns the mean over the largest of what ranks have to do: 1 is perfect; 1 if there is nothing.
double balance_of(const std::vector<std::int64_t>& work);
/// Returns the mean over the largest of the areas that the ranks compute, over all `layers` if
/// there are any: 1 is perfect; 1 if nothing is seen.
double balance_of(const std::vector<IndexRanges>& parts, const RowMask& row,
                  const std::vector<LayerWindow>& layers = {});

}  // namespace meshloom::planner
