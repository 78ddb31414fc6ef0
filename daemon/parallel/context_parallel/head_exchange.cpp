// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/head_exchange.h"

#include <numeric>

#include "daemon/parallel/context_parallel/key_bundle.h"
#include "daemon/tensor/ops/op_support.h"

namespace meshloom::parallel {
namespace {

/// One head of x [B,H,n,E]: a view.
Tensor head_view(const Tensor& x, std::int64_t head) {
  return ops::alias(x, {x.size(0), 1, x.size(2), x.size(3)}, x.strides(), head * x.strides()[1]);
}

std::int64_t count(const std::vector<std::int64_t>& list) {
  return static_cast<std::int64_t>(list.size());
}

/// One side of an exchange: a piece [B,heads,places,E] of one flat tensor for each neighbour, in
/// their order.
class Side {
 public:
  Side(const Tensor& like, int ranks) : like_(like), sizes_(static_cast<std::size_t>(ranks), 0) {}
  void add(std::size_t rank, std::int64_t heads, std::int64_t places) {
    shapes_.push_back({like_.size(0), heads, places, like_.size(3)});
    first_.push_back(numel_);
    sizes_[rank] = numel(shapes_.back());
    numel_ += sizes_[rank];
  }
  /// Elements of each rank; 0 for those that are no neighbours.
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  Tensor flat() const {
    return empty(like_.context(), {numel_}, like_.dtype(), MemoryKind::kSymmetric);
  }
  Tensor piece(const Tensor& flat, std::size_t neighbour) const {
    const Shape& shape = shapes_[neighbour];
    return ops::alias(flat, shape, contiguous_strides(shape), first_[neighbour]);
  }

 private:
  const Tensor& like_;
  std::int64_t numel_ = 0;
  std::vector<Shape> shapes_;
  std::vector<std::int64_t> first_, sizes_;
};

/// What a rank has of all heads at its own places, and of its own heads at the places of all
/// neighbours.
struct Sides {
  Side by_places, by_heads;

  Sides(const SequencePlan& plan, const Tensor& like, const HeadLists& lists,
        const std::vector<std::int64_t>& places)
      : by_places(like, plan.ranks), by_heads(like, plan.ranks) {
    const auto self = static_cast<std::size_t>(plan.rank);
    const std::size_t own = self % lists.size();
    for (std::size_t u = 0; u < lists.size(); ++u) {
      const std::size_t rank = self - own + u;
      by_places.add(rank, count(lists[u]), places[self]);
      by_heads.add(rank, count(lists[own]), places[rank]);
    }
  }
};

/// Calls `pair(head of x, head of a piece)` for the heads of every neighbour.
template <typename Pair>
void for_each_head(const Tensor& x, const Side& side, const Tensor& flat, const HeadLists& lists,
                   const Pair& pair) {
  for (std::size_t u = 0; u < lists.size(); ++u)
    for (std::size_t h = 0; h < lists[u].size(); ++h)
      pair(head_view(x, lists[u][h]), head_view(side.piece(flat, u), static_cast<std::int64_t>(h)));
}

/// Calls `pair(places of y, piece)` for every neighbour.
template <typename Pair>
void for_each_stretch(const Tensor& y, const Side& side, const Tensor& flat, std::size_t neighbours,
                      const Pair& pair) {
  std::int64_t begin = 0;
  for (std::size_t u = 0; u < neighbours; ++u) {
    const Tensor piece = side.piece(flat, u);
    const std::int64_t places = piece.size(2);
    pair(ops::alias(y, {y.size(0), y.size(1), places, y.size(3)}, y.strides(),
                    begin * y.strides()[2]),
         piece);
    begin += places;
  }
}

}  // namespace

Tensor HeadExchange::to_heads(const Tensor& x, const HeadLists& lists,
                              const std::vector<std::int64_t>& places) const {
  const Sides sides(plan_, x, lists, places);
  const Tensor packed = sides.by_places.flat();
  for_each_head(x, sides.by_places, packed, lists,
                [](const Tensor& head, const Tensor& piece) { copy_into(piece, head); });
  const Tensor arrived =
      collectives_
          .all_to_all(packed, sides.by_places.sizes(), sides.by_heads.sizes(), plan_.mesh_dims)
          ->wait();
  const auto first = places.begin() + plan_.rank - static_cast<std::ptrdiff_t>(own());
  const std::int64_t all_places = std::accumulate(first, first + plan_.neighbours, std::int64_t{0});
  Tensor y = empty(x.context(), {x.size(0), count(lists[own()]), all_places, x.size(3)}, x.dtype());
  for_each_stretch(y, sides.by_heads, arrived, lists.size(),
                   [](const Tensor& stretch, const Tensor& piece) { copy_into(stretch, piece); });
  return y;
}

Tensor HeadExchange::to_places(const Tensor& y, const HeadLists& lists,
                               const std::vector<std::int64_t>& places, std::int64_t heads) const {
  const Sides sides(plan_, y, lists, places);
  const Tensor packed = sides.by_heads.flat();
  for_each_stretch(y, sides.by_heads, packed, lists.size(),
                   [](const Tensor& stretch, const Tensor& piece) { copy_into(piece, stretch); });
  const Tensor arrived =
      collectives_
          .all_to_all(packed, sides.by_heads.sizes(), sides.by_places.sizes(), plan_.mesh_dims)
          ->wait();
  const std::int64_t here = places[static_cast<std::size_t>(plan_.rank)];
  Tensor x = zeros(y.context(), {y.size(0), heads, here, y.size(3)}, y.dtype());
  for_each_head(x, sides.by_places, arrived, lists,
                [](const Tensor& head, const Tensor& piece) { add_into(head, piece); });
  return x;
}

}  // namespace meshloom::parallel
