// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_collectives/symmetric_exposure.h"

#include <cstring>
#include <type_traits>

#include "daemon/comm/symm_collectives/copy_memory.h"
#include "daemon/comm/symm_mem/symmetric_memory.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

/// From the first to the last element of a view, in bytes.
std::size_t extent(const TensorView& view) {
  if (view.numel() == 0) return 0;
  std::int64_t last = 0;
  for (int dim = 0; dim < view.ndim(); ++dim) last += (view.size(dim) - 1) * view.stride(dim);
  return static_cast<std::size_t>(last + 1) * dtype_size(view.dtype);
}

}  // namespace

bool is_in_symmetric_memory(ProcessGroup& group, const TensorView& view) {
  const std::shared_ptr<SymmetricMemory> memory = group.symmetric_memory();
  return memory && memory->holds(view.data, extent(view));
}

SymmetricExposure::SymmetricExposure(SymmetricContext& context, const Call& call)
    : SymmetricCollective(context, call, 1), exposed_(call.exposed) {
  static_assert(std::is_trivially_copyable_v<Entry>, "a table is copied as it lies");
  for (const TensorView& view : call.inputs) {
    const std::optional<Share> share = context.segments().share(view.data, extent(view));
    table_.push_back({share ? *share : stage(view), view.shape, view.strides, view.dtype});
  }
  *call.bytes_sent += call.bytes;
}

SymmetricExposure::~SymmetricExposure() {
  for (std::shared_ptr<Segment>& segment : staged_) context().give_back(std::move(segment));
}

Share SymmetricExposure::stage(const TensorView& view) {
  check_internal(view.contiguous(), "a view of shape {} outside of symmetric memory has strides",
                 view.shape);
  staged_.push_back(
      context().take_staging(divide_up<std::size_t>(view.bytes(), SymmetricContext::kRing)));
  std::byte* const data = staged_.back()->data();
  copy_memory(context().threads(), data, view.as<std::byte>(), view.bytes(), view.bytes());
  count_staged(view.bytes());
  const std::optional<Share> share = context().segments().share(data, view.bytes());
  if (!share) throw_no_entry();
  return *share;
}

SymmetricCollective::Piece SymmetricExposure::piece(int) const {
  return {reinterpret_cast<std::byte*>(const_cast<Entry*>(table_.data())),
          table_.size() * sizeof(Entry)};
}

bool SymmetricExposure::map(int peer) {
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < table_.size(); ++i) {
    Entry entry;
    std::memcpy(static_cast<void*>(&entry), at(peer, 0) + i * sizeof(Entry), sizeof(Entry));
    TensorView view{nullptr, entry.dtype, entry.shape, entry.strides, kCpuDevice};
    if (entry.share.bytes > 0) {
      view.data = resolve(peer, entry.share, entry.share.bytes);
      if (view.data == nullptr) return false;
    }
    views.push_back(view);
  }
  exposed_->peers[static_cast<std::size_t>(peer)] = std::move(views);
  return true;
}

bool SymmetricExposure::may_take() {
  if (!all_mapped_) {
    bool all = true;
    for (int peer = 0; peer < context().size(); ++peer) {
      if (peer == context().rank() || !exposed_->peers[static_cast<std::size_t>(peer)].empty())
        continue;
      all = has_come(peer) && map(peer) && all;
    }
    all_mapped_ = all;
  }
  return all_mapped_ && exposed_->released;
}

}  // namespace meshloom::comm
