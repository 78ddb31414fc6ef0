// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/balance.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/base/error.h"
#include "planner/attention/document_balance.h"

namespace meshloom::planner {
namespace {

struct NamedBalancer {
  LoadBalancer balancer;
  const char* name;
};
constexpr std::array kBalancers{NamedBalancer{LoadBalancer::kAuto, "auto"},
                                NamedBalancer{LoadBalancer::kNone, "none"},
                                NamedBalancer{LoadBalancer::kHeadTail, "head_tail"},
                                NamedBalancer{LoadBalancer::kPerDocument, "per_document"},
                                NamedBalancer{LoadBalancer::kMaskArea, "mask_area"}};

/// Of an odd number of tokens the head has the larger half, and the first ranks have one token
/// more: there a causal query sees least.
std::vector<IndexRanges> head_tail_parts(std::int64_t size, int ranks) {
  std::vector<ChunkPair> chunks(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t tokens = token_budget(size, ranks, r);
    chunks[static_cast<std::size_t>(r)] = {tokens - tokens / 2, tokens / 2};
  }
  return zigzag(chunks, {0, size});
}

/// What queries see of a whole sequence, summed over layers.
class LayerAreas {
 public:
  LayerAreas(const RowMask& row, const std::vector<LayerWindow>& layers, std::int64_t size)
      : all_{{0, size}} {
    if (layers.empty()) masks_.push_back({row, 1});
    for (const LayerWindow& layer : layers) {
      masks_.push_back({row, layer.layers});
      masks_.back().row.mask.window_left = layer.window_left;
    }
  }

  std::int64_t of(const IndexRanges& queries) const {
    std::int64_t area = 0;
    for (const Mask& mask : masks_) area += mask.layers * visible_area(mask.row, queries, all_);
    return area;
  }

 private:
  struct Mask {
    RowMask row;
    std::int64_t layers;
  };

  IndexRanges all_;
  std::vector<Mask> masks_;
};

/// Chunks of equal size go to ranks, the largest area first, each to the rank that has the least.
std::vector<IndexRanges> area_parts(std::int64_t size, int ranks, const LayerAreas& areas) {
  struct Chunk {
    ShardRange range;
    std::int64_t area;
  };
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<std::int64_t> room(count), area(count, 0);
  for (int r = 0; r < ranks; ++r) room[static_cast<std::size_t>(r)] = token_budget(size, ranks, r);
  const std::int64_t step = std::max<std::int64_t>(1, size / ranks / kAreaChunks);
  std::vector<Chunk> chunks;
  for (std::int64_t begin = 0; begin < size; begin += step) {
    const ShardRange range{begin, std::min(size, begin + step)};
    chunks.push_back({range, areas.of({range})});
  }
  std::stable_sort(chunks.begin(), chunks.end(),
                   [](const Chunk& a, const Chunk& b) { return a.area > b.area; });
  std::vector<std::vector<ShardRange>> held(count);
  for (const Chunk& chunk : chunks) {
    // A chunk for which no rank has room goes to several.
    for (std::int64_t begin = chunk.range.begin; begin < chunk.range.end;) {
      std::size_t best = count;
      for (std::size_t r = 0; r < count; ++r)
        if (room[r] > 0 && (best == count || area[r] < area[best])) best = r;
      const std::int64_t end = std::min(chunk.range.end, begin + room[best]);
      held[best].push_back({begin, end});
      room[best] -= end - begin;
      area[best] += areas.of({{begin, end}});
      begin = end;
    }
  }
  return joined_parts(std::move(held));
}

/// So much more even areas by kMaskArea have to be for kAuto to take it.
constexpr double kWorthWhile = 0.01;

bool has_window(std::int64_t size, const RowMask& row, const std::vector<LayerWindow>& layers) {
  const auto narrows = [size](std::int64_t window) { return window >= 0 && window < size - 1; };
  if (narrows(row.mask.window_right) && !row.mask.is_causal) return true;
  if (layers.empty()) return narrows(row.mask.window_left);
  return std::any_of(layers.begin(), layers.end(),
                     [&](const LayerWindow& layer) { return narrows(layer.window_left); });
}

}  // namespace

const char* to_string(LoadBalancer balancer) {
  return kBalancers[static_cast<std::size_t>(balancer)].name;
}

std::optional<LoadBalancer> find_load_balancer(std::string_view name) {
  for (const NamedBalancer& known : kBalancers)
    if (name == known.name) return known.balancer;
  return std::nullopt;
}

std::vector<IndexRanges> balanced_parts(LoadBalancer balancer, std::int64_t size, int ranks,
                                        const RowMask& row,
                                        const std::vector<LayerWindow>& layers) {
  check(ranks >= 1 && size >= 0, "a sequence of {} for {} ranks", size, ranks);
  check(!row.documents || row.documents->size() == size,
        "documents of a sequence of {}, expected {}", row.documents ? row.documents->size() : 0,
        size);
  // The layers of a model have no say here: a run that left its balancer open before they had one
  // goes on as it began.
  if (balancer == LoadBalancer::kAuto) balancer = chosen_balancer(size, ranks, row);
  switch (balancer) {
    case LoadBalancer::kHeadTail: return head_tail_parts(size, ranks);
    case LoadBalancer::kMaskArea: return area_parts(size, ranks, LayerAreas(row, layers, size));
    case LoadBalancer::kPerDocument:
      check(row.documents != nullptr, "load_balancer per_document needs documents");
      return document_parts(*row.documents, row.mask, ranks);
    default: break;
  }
  std::vector<IndexRanges> parts(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r)
    append_range(parts[static_cast<std::size_t>(r)], shard_range(size, ranks, r));
  return parts;
}

DimOrderPtr balanced_order(LoadBalancer balancer, std::int64_t size, int ranks, int row_dim,
                           const std::vector<RowMask>& rows,
                           const std::vector<LayerWindow>& layers) {
  std::vector<std::vector<IndexRanges>> parts;
  for (const RowMask& row : rows) {
    const bool again = !parts.empty() && !row.documents && !rows.front().documents;
    parts.push_back(again ? parts.front() : balanced_parts(balancer, size, ranks, row, layers));
  }
  if (parts.empty()) return nullptr;
  const DimOrderPtr order = DimOrder::listed_by_row(size, row_dim, std::move(parts));
  return order->plain() ? nullptr : order;
}

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

double balance_of(const std::vector<std::int64_t>& work) {
  const std::int64_t largest = work.empty() ? 0 : *std::max_element(work.begin(), work.end());
  if (largest == 0) return 1.0;
  const std::int64_t sum = std::accumulate(work.begin(), work.end(), std::int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(work.size()) / static_cast<double>(largest);
}

double balance_of(const std::vector<IndexRanges>& parts, const RowMask& row,
                  const std::vector<LayerWindow>& layers) {
  std::int64_t size = 0;
  for (const IndexRanges& part : parts) size += total_size(part);
  const LayerAreas areas(row, layers, size);
  std::vector<std::int64_t> work;
  for (const IndexRanges& part : parts) work.push_back(areas.of(part));
  return balance_of(work);
}

}  // namespace meshloom::planner
