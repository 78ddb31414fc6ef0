// SPDX-License-Identifier: Apache-2.0
// SymmetricCollective: what all collectives in symmetric memory do alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/symm_collectives/symmetric_context.h"

namespace meshloom::comm {

/// A rank shows its data in the slot of the collective: what is small is copied into the slot; what
/// lies in symmetric memory is named, and peers read it in place; the rest goes slice by slice
/// through a ring of staging memory. Then each rank takes, slice by slice, what it needs of its
/// peers' data, and says so. It is done when it has all and no peer touches its memory any more.
///
/// How a rank shows its data is its own choice; slices are counted alike on all ranks. Nothing of a
/// peer is used before its signature was compared, and nothing is taken before all were.
class SymmetricCollective : public Collective {
 public:
  ~SymmetricCollective() override;
  SymmetricCollective(const SymmetricCollective&) = delete;
  SymmetricCollective& operator=(const SymmetricCollective&) = delete;

  bool advance() final;
  std::uint64_t progress() const final { return moved_; }
  std::vector<int> missing() const final;
  std::string about(int rank) const final { return context_.about(rank); }

 protected:
  /// Piece is memory of this rank that peers read.
  struct Piece {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  /// `pieces` is how many differ from peer to peer: the size of the group, or 1.
  SymmetricCollective(SymmetricContext& context, const Call& call, int pieces);

  /// Returns the data that this rank has for a peer, which takes all of it.
  virtual Piece piece(int peer) const = 0;
  /// Returns the bytes that a peer has for this rank.
  virtual std::size_t expected(int peer) const = 0;
  /// Takes `count` slices from `first` on, of all peers.
  virtual void take(std::uint64_t first, std::uint64_t count) = 0;
  /// Tells whether peers write an answer over what they take.
  virtual bool answered() const { return false; }
  /// Copies the answers of a slice from staging memory.
  virtual void take_answers(std::uint64_t /*slice*/) {}
  /// Counts bytes that were copied to or from staging memory.
  void count_staged(std::size_t bytes) { *bytes_staged_ += bytes; }
  /// Tells whether the pieces may be read in place while this rank takes.
  virtual bool readable_in_place() const { return true; }
  /// Tells whether peers touch memory of this rank until they say that they have taken all, however
  /// it is shown.
  virtual bool lends() const { return false; }
  /// Tells whether this rank may take. Asked again and again, from when the first peer has come,
  /// until this rank may take. All peers have to have come besides.
  virtual bool may_take() { return true; }
  /// Tells whether the peer is in the same collective, and its share is mapped.
  bool has_come(int peer) const {
    return context_.peers(number_)[static_cast<std::size_t>(peer)].data != nullptr;
  }
  /// Returns the memory of a share; null while its descriptor is on its way.
  std::byte* resolve(int peer, const Share& share, std::size_t used);
  [[noreturn]] static void throw_no_entry();

  SymmetricContext& context() const { return context_; }
  std::size_t slice_bytes() const { return slice_bytes_; }
  std::uint64_t slices(std::size_t bytes) const {
    return divide_up<std::uint64_t>(bytes, slice_bytes_);
  }
  /// Returns the bytes of a piece that lie in `count` slices from `first` on.
  std::size_t bytes_in(std::size_t bytes, std::uint64_t first, std::uint64_t count = 1) const {
    const std::size_t begin = std::min(bytes, static_cast<std::size_t>(first) * slice_bytes_);
    return std::min(bytes - begin, static_cast<std::size_t>(count) * slice_bytes_);
  }
  /// Returns where a slice of what the peer has for this rank lies.
  std::byte* at(int peer, std::uint64_t slice) const;
  /// Returns where a slice of this rank's piece for `peer` is staged.
  std::byte* staged(int peer, std::uint64_t slice) const;

 private:
  /// Returns the bytes of a slice of all pieces in staging memory.
  std::size_t stride() const { return slice_bytes_ * static_cast<std::size_t>(pieces_); }
  /// Shows what this rank has; false while the slot is in use.
  bool show();
  void show_inline(Share* shares);
  bool show_in_place(Share* shares);
  void show_staged(CollectivePad::Head& head, Share* shares);
  /// Fills the ring, if there is one, as far as there is room, and says what can be read.
  void fill();
  /// Looks at the flags of all peers; true once all are here and agree.
  bool see();
  void compare(int peer) const;
  /// Finds the memory of the peers that have come; false while one is missing or its descriptor is
  /// on its way.
  bool resolve();
  void take_what_is_ready();
  bool consumed_by_all(std::uint64_t slice) const;
  bool step();
  bool is_done() const;
  /// Tells whether the peer keeps this rank waiting.
  bool lags(int peer) const;
  [[noreturn]] void throw_gone(int peer) const;

  SymmetricContext& context_;
  Signature signature_;
  std::uint64_t number_;
  std::uint64_t* bytes_staged_;
  int pieces_;
  std::size_t slice_bytes_;
  bool shown_ = false, resolved_ = false, done_ = false;
  bool lent_ = false;   ///< peers touch memory of this rank until they say that they have taken all
  bool rings_ = false;  ///< some peer shows its data slice by slice
  std::uint64_t to_give_ = 0;  ///< slices of the longest piece
  std::uint64_t to_take_ = 0;
  std::uint64_t ready_ = 0;    ///< own slices that peers can read
  std::uint64_t taken_ = 0;    ///< slices of the peers that this rank has
  std::uint64_t retired_ = 0;  ///< staged slices that no peer needs any more
  std::uint64_t moved_ = 0;
  std::optional<Clock::time_point> unopened_since_;
  std::uint32_t idle_ = 0;  ///< polls that moved nothing
  std::shared_ptr<Segment> ring_;
};

}  // namespace meshloom::comm
