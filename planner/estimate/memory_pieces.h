// SPDX-License-Identifier: Apache-2.0
// MemoryPieces: how much memory is taken while pieces of it come and go.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace meshloom::planner {

class MemoryPieces {
 public:
  /// Makes a piece of so many bytes that one holds.
  int take(std::int64_t bytes) {
    pieces_.push_back({.bytes = bytes, .holders = 1});
    add(bytes);
    return static_cast<int>(pieces_.size()) - 1;
  }
  void hold(int piece) { ++at(piece).holders; }
  /// The last holder's drop frees the piece. A negative one is none.
  void drop(int piece) {
    if (piece < 0 || --at(piece).holders > 0) return;
    add(-at(piece).bytes);
    for (const int other : std::exchange(at(piece).held, {})) drop(other);
  }
  /// From here on `piece` holds `other`, for as long as it is there.
  void attach(int piece, int other) {
    hold(other);
    at(piece).held.push_back(other);
  }
  int holders(int piece) const { return pieces_[static_cast<std::size_t>(piece)].holders; }
  std::int64_t bytes(int piece) const { return pieces_[static_cast<std::size_t>(piece)].bytes; }
  int count() const { return static_cast<int>(pieces_.size()); }

  /// Counts bytes that are there beside all pieces, or go.
  void add(std::int64_t bytes) {
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
  }
  /// Counts bytes that come and go at once.
  void pass(std::int64_t bytes) { peak_ = std::max(peak_, in_use_ + bytes); }

  std::int64_t in_use() const { return in_use_; }
  /// Returns the most since the last call; what is there begins the next stretch.
  std::int64_t take_peak() { return std::exchange(peak_, in_use_); }

 private:
  struct Piece {
    std::int64_t bytes;
    int holders;
    std::vector<int> held = {};
  };
  Piece& at(int piece) { return pieces_[static_cast<std::size_t>(piece)]; }

  std::vector<Piece> pieces_;
  std::int64_t in_use_ = 0, peak_ = 0;
};

}  // namespace meshloom::planner
