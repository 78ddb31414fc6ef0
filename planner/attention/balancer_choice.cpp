// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/balancer_choice.h"

#include <algorithm>

namespace meshloom::planner {
namespace {

constexpr double kWorthWhile = 0.01;

bool has_window(std::int64_t size, const RowMask& row, const std::vector<LayerWindow>& layers) {
  const auto narrows = [size](std::int64_t window) { return window >= 0 && window < size - 1; };
  if (narrows(row.mask.window_right) && !row.mask.is_causal) return true;
  if (layers.empty()) return narrows(row.mask.window_left);
  return std::any_of(layers.begin(), layers.end(),
                     [&](const LayerWindow& layer) { return narrows(layer.window_left); });
}

}  // namespace

LoadBalancer chosen_balancer(std::int64_t size, int ranks, const RowMask& row,
                             const std::vector<LayerWindow>& layers) {
  if (row.documents) return LoadBalancer::kPerDocument;
  if (ranks == 1 || !has_window(size, row, layers)) return LoadBalancer::kHeadTail;
  const auto balance = [&](LoadBalancer balancer) {
    return balance_of(balanced_parts(balancer, size, ranks, row, layers), row, layers);
  };
  const bool gains =
      balance(LoadBalancer::kMaskArea) > balance(LoadBalancer::kHeadTail) + kWorthWhile;
  return gains ? LoadBalancer::kMaskArea : LoadBalancer::kHeadTail;
}

}  // namespace meshloom::planner
