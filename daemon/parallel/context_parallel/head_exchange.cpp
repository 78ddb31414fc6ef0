// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/head_exchange.h"

#include "daemon/parallel/context_parallel/key_bundle.h"
#include "daemon/tensor/ops/op_support.h"

namespace meshloom::parallel {
namespace {

/// Places [begin, begin + count) of one head of x [B,H,n,E]: a view.
Tensor head_view(const Tensor& x, std::int64_t head, std::int64_t begin, std::int64_t count) {
  const Strides& strides = x.strides();
  return ops::alias(x, {x.size(0), 1, count, x.size(3)}, strides,
                    head * strides[1] + begin * strides[2]);
}

/// Pieces of one flat tensor, [B,heads,places,E] each.
class Pieces {
 public:
  explicit Pieces(std::int64_t rows, std::int64_t width) : rows_(rows), width_(width) {}
  /// Where the next piece begins.
  std::int64_t add(std::int64_t heads, std::int64_t places) {
    const std::int64_t at = numel_;
    numel_ += rows_ * heads * places * width_;
    return at;
  }
  std::int64_t numel() const { return numel_; }
  Tensor view(const Tensor& flat, std::int64_t at, std::int64_t heads, std::int64_t places) const {
    const Shape shape{rows_, heads, places, width_};
    return ops::alias(flat, shape, contiguous_strides(shape), at);
  }

 private:
  std::int64_t rows_, width_;
  std::int64_t numel_ = 0;
};

std::int64_t count(const std::vector<std::int64_t>& list) {
  return static_cast<std::int64_t>(list.size());
}

}  // namespace

HeadLists query_heads_of(std::int64_t heads, int neighbours) {
  HeadLists lists;
  std::int64_t next = 0;
  for (int u = 0; u < neighbours; ++u) {
    const std::int64_t share = heads / neighbours + (u < heads % neighbours ? 1 : 0);
    lists.emplace_back();
    for (std::int64_t h = next; h < next + share; ++h) lists.back().push_back(h);
    next += share;
  }
  return lists;
}

HeadLists key_heads_of(const HeadLists& query_heads, std::int64_t group) {
  HeadLists lists;
  for (const std::vector<std::int64_t>& queries : query_heads) {
    std::vector<std::int64_t> per_query, once;
    for (const std::int64_t h : queries) {
      per_query.push_back(h / group);
      if (once.empty() || once.back() != h / group) once.push_back(h / group);
    }
    const bool whole_groups =
        !queries.empty() && queries.front() % group == 0 && count(queries) % group == 0;
    lists.push_back(once.size() <= 1 || whole_groups ? once : per_query);
  }
  return lists;
}

Tensor HeadExchange::to_heads(const Tensor& x, const HeadLists& lists,
                              const std::vector<std::int64_t>& places) const {
  const std::int64_t rows = x.size(0), width = x.size(3), here = x.size(2);
  const std::int64_t heads = count(lists[own()]);
  std::vector<std::int64_t> sent(static_cast<std::size_t>(plan_.ranks), 0), received = sent;
  Pieces out(rows, width), in(rows, width);
  std::vector<std::int64_t> from, to;
  std::int64_t all_places = 0;
  for (int u = 0; u < plan_.neighbours; ++u) {
    const auto rank = static_cast<std::size_t>(first() + u);
    to.push_back(out.add(count(lists[static_cast<std::size_t>(u)]), here));
    from.push_back(in.add(heads, places_of(places, u)));
    sent[rank] = out.numel() - to.back();
    received[rank] = in.numel() - from.back();
    all_places += places_of(places, u);
  }
  const Tensor packed = empty(x.context(), {out.numel()}, x.dtype(), MemoryKind::kSymmetric);
  for (std::size_t u = 0; u < lists.size(); ++u) {
    const Tensor piece = out.view(packed, to[u], count(lists[u]), here);
    for (std::size_t h = 0; h < lists[u].size(); ++h)
      copy_into(head_view(piece, static_cast<std::int64_t>(h), 0, here),
                head_view(x, lists[u][h], 0, here));
  }
  const Tensor arrived = collectives_.all_to_all(packed, sent, received, plan_.mesh_dims)->wait();
  Tensor y = empty(x.context(), {rows, heads, all_places, width}, x.dtype());
  std::int64_t begin = 0;
  for (int u = 0; u < plan_.neighbours; ++u) {
    const std::int64_t n = places_of(places, u);
    const Strides& strides = y.strides();
    copy_into(ops::alias(y, {rows, heads, n, width}, strides, begin * strides[2]),
              in.view(arrived, from[static_cast<std::size_t>(u)], heads, n));
    begin += n;
  }
  return y;
}

Tensor HeadExchange::to_places(const Tensor& y, const HeadLists& lists,
                               const std::vector<std::int64_t>& places, std::int64_t heads) const {
  const std::int64_t rows = y.size(0), width = y.size(3), own_heads = y.size(1);
  const std::int64_t here = places[static_cast<std::size_t>(plan_.rank)];
  std::vector<std::int64_t> sent(static_cast<std::size_t>(plan_.ranks), 0), received = sent;
  Pieces out(rows, width), in(rows, width);
  std::vector<std::int64_t> from, to;
  for (int u = 0; u < plan_.neighbours; ++u) {
    const auto rank = static_cast<std::size_t>(first() + u);
    to.push_back(out.add(own_heads, places_of(places, u)));
    from.push_back(in.add(count(lists[static_cast<std::size_t>(u)]), here));
    sent[rank] = out.numel() - to.back();
    received[rank] = in.numel() - from.back();
  }
  const Tensor packed = empty(y.context(), {out.numel()}, y.dtype(), MemoryKind::kSymmetric);
  std::int64_t begin = 0;
  for (int u = 0; u < plan_.neighbours; ++u) {
    const std::int64_t n = places_of(places, u);
    const Strides& strides = y.strides();
    copy_into(out.view(packed, to[static_cast<std::size_t>(u)], own_heads, n),
              ops::alias(y, {rows, own_heads, n, width}, strides, begin * strides[2]));
    begin += n;
  }
  const Tensor arrived = collectives_.all_to_all(packed, sent, received, plan_.mesh_dims)->wait();
  Tensor x = zeros(y.context(), {rows, heads, here, width}, y.dtype());
  for (std::size_t u = 0; u < lists.size(); ++u) {
    const Tensor piece = in.view(arrived, from[u], count(lists[u]), here);
    for (std::size_t h = 0; h < lists[u].size(); ++h)
      add_into(head_view(x, lists[u][h], 0, here),
               head_view(piece, static_cast<std::int64_t>(h), 0, here));
  }
  return x;
}

}  // namespace meshloom::parallel
