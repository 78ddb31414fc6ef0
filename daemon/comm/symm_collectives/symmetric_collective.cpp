// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_collectives/symmetric_collective.h"

#include <cstring>

#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

// What a rank says that shows all of its data at once.
constexpr std::uint64_t kAllSlices = FlagValue::kMostSlices;

constexpr std::size_t kAlignment = 64;

// As long as the end of a process may take.
constexpr auto kLongestEnd = std::chrono::milliseconds(500);

// Polls that moved nothing until a look at the peers' processes: soon enough when polls sleep.
constexpr std::uint32_t kLookEvery = 8;

}  // namespace

SymmetricCollective::SymmetricCollective(SymmetricContext& context, const Call& call, int pieces)
    : context_(context),
      signature_(call.compared()),
      number_(call.signature.sequence),
      bytes_staged_(call.bytes_staged),
      pieces_(pieces),
      slice_bytes_(SymmetricContext::kSliceBytes / static_cast<std::size_t>(pieces) / kAlignment *
                   kAlignment) {
  check_internal(slice_bytes_ > 0, "a group of {} ranks in symmetric memory", pieces);
}

SymmetricCollective::~SymmetricCollective() {
  if (!done_ && lent_) context_.note_peer_access();
  if (ring_) context_.give_back(std::move(ring_));
}

std::byte* SymmetricCollective::at(int peer, std::uint64_t slice) const {
  const PeerView& view = context_.peers(number_)[static_cast<std::size_t>(peer)];
  return view.data + (view.ring > 0 ? slice % view.ring * view.stride : slice * slice_bytes_);
}

std::byte* SymmetricCollective::staged(int peer, std::uint64_t slice) const {
  return ring_->data() + slice % SymmetricContext::kRing * stride() +
         (pieces_ > 1 ? static_cast<std::size_t>(peer) * slice_bytes_ : 0);
}

bool SymmetricCollective::show() {
  if (!context_.admits(number_)) return false;
  std::vector<PeerView>& peers = context_.peers(number_);
  std::fill(peers.begin(), peers.end(), PeerView{});
  CollectivePad::Head& head = context_.own_pad().head(number_);
  head.signature = signature_;
  head.ring = 0;
  Share* const shares = context_.own_pad().shares(number_);
  std::size_t bytes = 0;
  for (int peer = 0; peer < context_.size(); ++peer) {
    if (peer == context_.rank()) continue;
    const std::size_t one = piece(peer).bytes;
    bytes = pieces_ > 1 ? bytes + one : std::max(bytes, one);
    to_give_ = std::max(to_give_, slices(one));
    to_take_ = std::max(to_take_, slices(expected(peer)));
  }
  check(std::max(to_give_, to_take_) <= kAllSlices, "a collective of {} bytes", bytes);
  shown_ = true;
  ready_ = kAllSlices;
  if (bytes <= CollectivePad::kInlineBytes && !(answered() && bytes > 0)) {
    show_inline(shares);
    lent_ = lends();
  } else if (!show_in_place(shares)) {
    show_staged(head, shares);
  }
  fill();
  return true;
}

void SymmetricCollective::show_inline(Share* shares) {
  std::byte* const memory = context_.own_pad().inline_data(number_);
  std::size_t used = 0;
  for (int peer = 0; peer < context_.size(); ++peer) {
    if (peer == context_.rank()) continue;
    const Piece one = piece(peer);
    shares[peer] = {pieces_ > 1 ? used : 0, one.bytes, Share::kInline, 0};
    if (one.bytes > 0 && (pieces_ > 1 || used == 0))
      std::memcpy(memory + used, one.data, one.bytes);
    used += one.bytes;
  }
}

bool SymmetricCollective::show_in_place(Share* shares) {
  if (!readable_in_place()) return false;
  for (int peer = 0; peer < context_.size(); ++peer) {
    if (peer == context_.rank()) continue;
    const Piece one = piece(peer);
    const std::optional<Share> share = context_.segments().share(one.data, one.bytes);
    if (!share) return false;
    shares[peer] = *share;
  }
  lent_ = true;
  return true;
}

void SymmetricCollective::show_staged(CollectivePad::Head& head, Share* shares) {
  ring_ = context_.take_staging(stride());
  head.ring = SymmetricContext::kRing;
  head.stride = static_cast<std::uint32_t>(stride());
  for (int peer = 0; peer < context_.size(); ++peer) {
    if (peer == context_.rank()) continue;
    const std::optional<Share> share = context_.segments().share(staged(peer, 0), slice_bytes_);
    if (!share) throw_no_entry();
    shares[peer] = *share;
    shares[peer].bytes = piece(peer).bytes;
  }
  lent_ = true;
  ready_ = 0;
}

void SymmetricCollective::fill() {
  while (ready_ < to_give_ && ready_ < retired_ + SymmetricContext::kRing) {
    for (int peer = 0; peer < context_.size(); ++peer) {
      if (peer == context_.rank()) continue;
      const Piece one = piece(peer);
      const std::size_t bytes = bytes_in(one.bytes, ready_);
      if (bytes > 0) std::memcpy(staged(peer, ready_), one.data + ready_ * slice_bytes_, bytes);
      count_staged(bytes);
      if (pieces_ == 1) break;
    }
    ++ready_;
    ++moved_;
  }
  context_.own_pad().head(number_).arrived.store(context_.value(number_, 1 + ready_),
                                                 std::memory_order_release);
}

bool SymmetricCollective::see() {
  std::vector<PeerView>& peers = context_.peers(number_);
  const std::uint64_t here = context_.value(number_, 1), begun = context_.value(number_, 0);
  bool all = true;
  for (int p = 0; p < context_.size(); ++p) {
    if (p == context_.rank()) continue;
    PeerView& peer = peers[static_cast<std::size_t>(p)];
    const CollectivePad& pad = context_.pad(p);
    const std::uint64_t arrived = pad.head(number_).arrived.load(std::memory_order_acquire);
    if (arrived < here) {
      all = false;
      continue;
    }
    if (!peer.arrived) {
      compare(p);
      peer.arrived = true;
      ++moved_;
    }
    moved_ += arrived - here > peer.ready ? 1 : 0;
    peer.ready = arrived - here;
    if (!lent_) continue;
    const std::uint64_t consumed = pad.consumed(number_).load(std::memory_order_acquire);
    if (consumed <= begun) continue;
    moved_ += consumed - begun > peer.consumed ? 1 : 0;
    peer.consumed = consumed - begun;
  }
  return all;
}

void SymmetricCollective::compare(int peer) const {
  const CollectivePad& pad = context_.pad(peer);
  Signature mine = signature_, theirs = pad.head(number_).signature;
  mine.pair_bytes = static_cast<std::int64_t>(expected(peer));
  theirs.pair_bytes = static_cast<std::int64_t>(pad.shares(number_)[context_.rank()].bytes);
  if (mine == theirs) return;
  SignatureDiffers difference(mine, theirs);
  difference.set_peer(peer);
  throw difference;
}

bool SymmetricCollective::resolve() {
  std::vector<PeerView>& peers = context_.peers(number_);
  bool all = true;
  for (int p = 0; p < context_.size(); ++p) {
    PeerView& peer = peers[static_cast<std::size_t>(p)];
    if (p == context_.rank() || peer.data != nullptr || expected(p) == 0) continue;
    if (!peer.arrived) {
      all = false;
      continue;
    }
    const CollectivePad& pad = context_.pad(p);
    const CollectivePad::Head& head = pad.head(number_);
    const Share& share = pad.shares(number_)[context_.rank()];
    peer.ring = head.ring;
    peer.stride = head.stride;
    rings_ = rings_ || head.ring > 0;
    const std::size_t used =
        head.ring > 0 ? std::size_t{head.ring - 1} * head.stride + slice_bytes_ : share.bytes;
    peer.data = share.segment == Share::kInline ? pad.inline_data(number_) + share.offset
                                                : resolve(p, share, used);
    all = all && peer.data != nullptr;
  }
  return all;
}

std::byte* SymmetricCollective::resolve(int peer, const Share& share, std::size_t used) {
  try {
    return context_.segments().resolve(peer, share, used);
  } catch (const CommError&) {
    // A process that ends loses its descriptors a moment before it has ended.
    if (context_.is_gone(peer)) throw_gone(peer);
    const Clock::time_point now = Clock::now();
    if (!unopened_since_) unopened_since_ = now;
    if (now - *unopened_since_ > kLongestEnd) throw;
    return nullptr;
  }
}

void SymmetricCollective::take_what_is_ready() {
  const std::vector<PeerView>& peers = context_.peers(number_);
  while (taken_ < to_take_) {
    // What is taken may overwrite what was not staged yet.
    if (!readable_in_place() && taken_ >= ready_ && ready_ < to_give_) return;
    for (int p = 0; p < context_.size(); ++p)
      if (p != context_.rank() && bytes_in(expected(p), taken_) > 0 &&
          peers[static_cast<std::size_t>(p)].ready <= taken_)
        return;
    const std::uint64_t count = rings_ ? 1 : to_take_ - taken_;
    take(taken_, count);
    taken_ += count;
    ++moved_;
    context_.own_pad().consumed(number_).store(context_.value(number_, taken_),
                                               std::memory_order_release);
  }
}

bool SymmetricCollective::consumed_by_all(std::uint64_t slice) const {
  const std::vector<PeerView>& peers = context_.peers(number_);
  for (int p = 0; p < context_.size(); ++p)
    if (p != context_.rank() &&
        peers[static_cast<std::size_t>(p)].consumed < std::min(slice + 1, slices(piece(p).bytes)))
      return false;
  return true;
}

bool SymmetricCollective::is_done() const {
  if (taken_ < to_take_) return false;
  if (ring_) return retired_ == to_give_;
  return !lent_ || to_give_ == 0 || consumed_by_all(to_give_ - 1);
}

bool SymmetricCollective::step() {
  if (!shown_ && !show()) return false;
  const bool agreed = see();
  if (!resolved_) resolved_ = resolve();
  if (!may_take() || !agreed || !resolved_) return false;
  take_what_is_ready();
  if (ring_) {
    const std::uint64_t before = retired_;
    while (retired_ < ready_ && consumed_by_all(retired_)) {
      take_answers(retired_);
      ++retired_;
      ++moved_;
    }
    if (retired_ > before && ready_ < to_give_) fill();
  }
  if (!is_done()) return false;
  done_ = true;
  context_.finish(number_);
  return true;
}

bool SymmetricCollective::advance() {
  const std::uint64_t before = moved_;
  if (step()) return true;
  if (moved_ != before || ++idle_ % kLookEvery != 0) return false;
  const int gone = context_.find_gone(missing());
  // What it did before it ended may be all that was needed.
  if (gone >= 0 && !step() && moved_ == before) throw_gone(gone);
  return done_;
}

std::vector<int> SymmetricCollective::missing() const {
  std::vector<int> ranks;
  for (int p = 0; p < context_.size(); ++p)
    if (p != context_.rank() && lags(p)) ranks.push_back(p);
  return ranks;
}

bool SymmetricCollective::lags(int p) const {
  if (!shown_) return !context_.has_left(p, number_);
  const PeerView& peer = context_.peers(number_)[static_cast<std::size_t>(p)];
  if (!peer.arrived) return true;
  if (!resolved_) return peer.data == nullptr && expected(p) > 0;
  if (bytes_in(expected(p), taken_) > 0 && peer.ready <= taken_) return true;
  return lent_ && peer.consumed < slices(piece(p).bytes);
}

void SymmetricCollective::throw_no_entry() {
  throw ResourceExhausted(
      fmt::format("symmetric memory: more than {} segments are in use by one group",
                  CollectivePad::kTableEntries),
      "SYMM_MEM_NO_ROOM");
}

void SymmetricCollective::throw_gone(int peer) const {
  const int name = context_.name(peer);
  throw CommError(
      fmt::format("{} #{}: the process of rank {} (pid {}) has ended", kind_name(signature_.kind),
                  signature_.sequence, name, context_.pid(peer)),
      "SYMM_MEM_PEER_GONE",
      {{"collective", kind_name(signature_.kind)},
       {"sequence", std::to_string(signature_.sequence)},
       {"rank", std::to_string(context_.name(context_.rank()))},
       {"missing", std::to_string(name)},
       {"pid", std::to_string(context_.pid(peer))}});
}

}  // namespace meshloom::comm
