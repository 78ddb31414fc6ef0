// SPDX-License-Identifier: Apache-2.0
// HierarchicalCollective: what all collectives over several hosts do alike.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/comm/collectives/move_collectives.h"
#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/hierarchy/composed_collectives.h"
#include "daemon/comm/hierarchy/hierarchical_context.h"

namespace meshloom::comm {

/// The data is cut into slices, some of which are in flight at once, so that one passes between
/// hosts while others move inside. A slice is made of local steps, which are collectives among the
/// ranks of this host, and of exchanges of messages with other hosts.
///
/// Every step compares the signature of the whole collective. Ranks of one host always share a
/// step; the leaders of neighbouring hosts send each other a message without data: so if two ranks
/// differ, some see it.
class HierarchicalCollective : public Collective {
 public:
  bool advance() final;
  std::uint64_t progress() const final { return running_.progress(); }
  std::vector<int> missing() const final { return running_.missing(); }
  std::string about(int rank) const final { return running_.about(rank); }

 protected:
  using Views = std::span<const TensorView>;
  using Piece = Exchange::Piece;
  using Behind = NamedStep::Behind;

  /// A slice has at most so many local steps and exchanges; the former alike on the ranks of a
  /// host, the latter on all ranks of the group, as the number of slices is.
  struct Steps {
    int local = 0;
    int exchanges = 0;
  };
  /// A slice has so many elements of each part, and the longest part ends in the last one.
  struct Slicing {
    std::span<const TensorView> parts{};
    std::int64_t elements = 1;
  };
  /// Without a slicing there is one slice.
  HierarchicalCollective(HierarchicalContext& context, const Call& call, Slicing slicing,
                         Steps steps);

  /// Returns the elements of a part that belong to slice number `index`, as a view of the part.
  TensorView slice_of(const TensorView& part, std::size_t index) const;

  /// Returns the stripe of each member of this host, of `stripes` of a contiguous view; empty for
  /// members behind these.
  std::vector<TensorView> stripes_by_member(const TensorView& view, int stripes) const;

  /// Makes a slice. Called once for each slice, in order. Every local step of it has to be made in
  /// the end.
  virtual CollectivePtr slice(std::size_t index) = 0;

  /// Makes a collective among the ranks of this host. `root` is a place among them.
  CollectivePtr local_step(std::size_t slice, int step, CollectiveKind kind, Views outputs,
                           Views inputs, int root = -1, Behind behind = {});
  /// Sends one message for each piece, with ranks of the group.
  CollectivePtr exchange(std::size_t slice, int step, const std::vector<Piece>& receives,
                         const std::vector<Piece>& sends, Behind behind = {});

  /// A rank that tells what its host has waits for all ranks of that host.
  Behind whole_host() const {
    return [this](int rank) { return layout().members(layout().host_of(rank)); };
  }

  HierarchicalContext& context() const { return context_; }
  const HostLayout& layout() const { return context_.layout(); }
  const Signature& signature() const { return signature_; }

 private:
  int tag(std::uint64_t index) const {
    return static_cast<int>((first_tag_ + index) % kCollectiveTags);
  }
  CollectiveContext messages(int tag) const;

  HierarchicalContext& context_;
  Signature signature_;
  std::uint64_t* bytes_sent_;
  std::uint64_t* bytes_staged_;
  std::int64_t slice_elements_;
  std::size_t slices_;
  Steps steps_;
  std::uint64_t first_number_;
  std::uint64_t first_tag_;
  std::size_t next_ = 0;
  bool greeted_ = false;
  Together running_{{}};
};

/// Returns elements [begin, begin + n) of a contiguous view; fewer where it ends before.
TensorView elements_of(const TensorView& view, std::int64_t begin, std::int64_t n);
inline std::int64_t elements_in(std::size_t bytes, DType dtype) {
  return static_cast<std::int64_t>(bytes / dtype_size(dtype));
}

}  // namespace meshloom::comm
