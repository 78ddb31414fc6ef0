// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/collectives/move_collectives.h"

#include <algorithm>

namespace meshloom::comm {
namespace {

constexpr std::size_t kBroadcastSlice = 1 << 20;

}  // namespace

Exchange::Exchange(CollectiveContext context, const std::vector<Piece>& receives,
                   const std::vector<Piece>& sends)
    : transfers_(context.transport, context.bytes_sent) {
  for (const Piece& piece : receives)
    transfers_.recv(piece.data, piece.bytes, piece.peer, context.tag, &context.signature);
  for (const Piece& piece : sends)
    transfers_.send(piece.data, piece.bytes, piece.peer, context.tag, &context.signature);
}

BinomialTree binomial_tree(int size, int member, int root) {
  BinomialTree tree;
  // Members counted from the root: the parent is this number without its lowest bit, children add
  // one lower bit.
  const int relative = (member - root + size) % size;
  int lowest = 1;
  while (lowest < size && (relative & lowest) == 0) lowest *= 2;
  if (relative != 0) tree.parent = (relative - lowest + root) % size;
  for (int bit = lowest / 2; bit >= 1; bit /= 2)
    if (relative + bit < size) tree.children.push_back((relative + bit + root) % size);
  return tree;
}

Broadcast::Broadcast(CollectiveContext context, std::byte* data, std::size_t bytes, int root)
    : context_(context),
      data_(data),
      bytes_(bytes),
      tree_(binomial_tree(context.transport.size(), context.transport.rank(), root)),
      incoming_(context.transport, context.bytes_sent),
      outgoing_(context.transport, context.bytes_sent),
      neighbours_(context.transport, context.bytes_sent) {
  const int size = context.transport.size();
  if (tree_.parent >= 0)
    incoming_.recv(data_, slice_bytes(0), tree_.parent, context_.tag, &context_.signature);
  const int next = (context.transport.rank() + 1) % size;
  const int previous = (context.transport.rank() - 1 + size) % size;
  if (previous != tree_.parent)
    neighbours_.recv(nullptr, 0, previous, context_.tag, &context_.signature);
  if (std::find(tree_.children.begin(), tree_.children.end(), next) == tree_.children.end())
    neighbours_.send(nullptr, 0, next, context_.tag, &context_.signature);
}

std::size_t Broadcast::slice_bytes(std::size_t begin) const {
  return std::min(kBroadcastSlice, bytes_ - begin);
}

bool Broadcast::advance() {
  const bool agreed = neighbours_.done();
  while ((!started_ || received_ < bytes_) && incoming_.done()) {
    const std::size_t slice = slice_bytes(received_);
    for (const int child : tree_.children)
      outgoing_.send(data_ + received_, slice, child, context_.tag,
                     started_ ? nullptr : &context_.signature);
    started_ = true;
    received_ += slice;
    if (tree_.parent >= 0 && received_ < bytes_)
      incoming_.recv(data_ + received_, slice_bytes(received_), tree_.parent, context_.tag);
  }
  return outgoing_.done() && started_ && received_ == bytes_ && agreed;
}

std::uint64_t Broadcast::progress() const {
  return incoming_.completed() + outgoing_.completed() + neighbours_.completed();
}

std::vector<int> Broadcast::missing() const {
  for (const Transfers* transfers : {&incoming_, &outgoing_, &neighbours_}) {
    std::vector<int> peers = transfers->missing();
    if (!peers.empty()) return peers;
  }
  return {};
}

Barrier::Barrier(CollectiveContext context)
    : context_(context), transfers_(context.transport, context.bytes_sent) {
  start_round();
}

void Barrier::start_round() {
  const int size = context_.transport.size();
  const int rank = context_.transport.rank();
  // No two rounds have the same pair of ranks.
  transfers_.recv(&heard_, 1, (rank - distance_ + size) % size, context_.tag, &context_.signature);
  transfers_.send(&token_, 1, (rank + distance_) % size, context_.tag, &context_.signature);
}

bool Barrier::advance() {
  while (transfers_.done()) {
    distance_ *= 2;
    if (distance_ >= context_.transport.size()) return true;
    start_round();
  }
  return false;
}

}  // namespace meshloom::comm
