// SPDX-License-Identifier: Apache-2.0
// SymmetricExposure: ranks read views of each other in place.
#pragma once

#include <memory>
#include <vector>

#include "daemon/comm/exposure.h"
#include "daemon/comm/symm_collectives/symmetric_collective.h"

namespace meshloom::comm {

/// A table goes through the slot of the collective, and says where each view of a rank lies. A rank
/// has consumed the tables of its peers when it reads nothing of what they name any more.
class SymmetricExposure final : public SymmetricCollective {
 public:
  SymmetricExposure(SymmetricContext& context, const Call& call);
  ~SymmetricExposure() override;

  /// Tells whether a table of so many views fits.
  static bool fits(std::size_t views) {
    return views > 0 && views * sizeof(Entry) <= CollectivePad::kInlineBytes;
  }
  bool waits() const override { return exposed_->released || !all_mapped_; }

 private:
  struct Entry {
    Share share;
    Shape shape;
    Strides strides;
    DType dtype = DType::kFloat32;
  };

  /// Shares a view that lies outside of symmetric memory by a copy.
  Share stage(const TensorView& view);
  /// Takes over the table of a peer that has come; false while a descriptor is on its way.
  bool map(int peer);

  Piece piece(int peer) const override;
  std::size_t expected(int) const override { return table_.size() * sizeof(Entry); }
  bool lends() const override { return true; }
  bool may_take() override;
  void take(std::uint64_t, std::uint64_t) override {}

  std::vector<Entry> table_;
  std::shared_ptr<ExposedViews> exposed_;
  std::vector<std::shared_ptr<Segment>> staged_;
  bool all_mapped_ = false;
};

}  // namespace meshloom::comm
