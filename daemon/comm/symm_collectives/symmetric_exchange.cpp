// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_collectives/symmetric_exchange.h"

#include "daemon/comm/symm_collectives/copy_memory.h"

namespace meshloom::comm {

std::unique_ptr<Collective> SymmetricExchange::start(SymmetricContext& context, const Call& call) {
  const CollectiveKind kind = call.signature.kind;
  const bool gives_all_the_same = kind == CollectiveKind::kAllGather ||
                                  kind == CollectiveKind::kBroadcast ||
                                  kind == CollectiveKind::kBarrier;
  const int pieces = gives_all_the_same ? 1 : context.size();
  return std::unique_ptr<Collective>(new SymmetricExchange(context, call, pieces));
}

SymmetricExchange::SymmetricExchange(SymmetricContext& context, const Call& call, int pieces)
    : SymmetricCollective(context, call, pieces),
      give_(index(context.size())),
      take_(index(context.size())) {
  const int rank = context.rank(), root = call.signature.root;
  const auto piece_of = [](const TensorView& view) {
    return Piece{view.as<std::byte>(), view.bytes()};
  };
  const CollectiveKind kind = call.signature.kind;
  for (int peer = 0; peer < context.size(); ++peer) {
    const std::size_t p = index(peer);
    Piece& give = give_[p];
    Piece& take = take_[p];
    switch (kind) {
      case CollectiveKind::kAllGather:
        give = piece_of(call.inputs[0]);
        take = piece_of(call.outputs[p]);
        break;
      case CollectiveKind::kBroadcast:
        if (rank == root) give = piece_of(call.inputs[0]);
        if (peer == root) take = piece_of(call.outputs[0]);
        break;
      case CollectiveKind::kScatter:
        if (rank == root) give = piece_of(call.inputs[p]);
        if (peer == root) take = piece_of(call.outputs[0]);
        break;
      case CollectiveKind::kGather:
        if (peer == root) give = piece_of(call.inputs[0]);
        if (rank == root) take = piece_of(call.outputs[p]);
        break;
      case CollectiveKind::kAllToAll:
      case CollectiveKind::kSendRecv:
        give = piece_of(call.inputs[p]);
        take = piece_of(call.outputs[p]);
        break;
      default: break;  // a barrier moves nothing
    }
  }
  const Piece mine = give_[index(rank)], to = take_[index(rank)];
  if (mine.bytes > 0 && to.bytes > 0 && mine.data != to.data)
    copy_memory(context.threads(), to.data, mine.data, mine.bytes, mine.bytes);
  give_[index(rank)] = take_[index(rank)] = {};
  for (const Piece& give : give_) {
    *call.bytes_sent += give.bytes;
    for (const Piece& take : take_)
      overlap_ =
          overlap_ || (give.data < take.data + take.bytes && take.data < give.data + give.bytes);
  }
}

void SymmetricExchange::take(std::uint64_t first, std::uint64_t count) {
  const int size = context().size();
  // Each rank begins with its successor, so that not all read rank 0 first.
  for (int step = 1; step < size; ++step) {
    const int peer = (context().rank() + step) % size;
    const Piece& to = take_[index(peer)];
    const std::size_t bytes = bytes_in(to.bytes, first, count);
    if (bytes == 0) continue;
    std::byte* const data = to.data + first * slice_bytes();
    const std::byte* const from = at(peer, first);
    copy_memory(context().threads(), data, from, bytes, to.bytes);
  }
}

}  // namespace meshloom::comm
