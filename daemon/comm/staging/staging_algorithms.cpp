// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/staging/staging_algorithms.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "daemon/comm/staging/pinned_memory.h"
#include "daemon/comm/staging/staged_call.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

class StagedCollective;

/// The state that the staged collectives of one group share.
struct StagingGroup {
  std::unique_ptr<Algorithms> inner;
  GroupDevice device;
  Threads threads;
  std::shared_ptr<PinnedMemory> memory;  ///< of all groups of the rank
  /// Issued and not begun, the oldest first.
  std::deque<const StagedCollective*> waiting;
  /// These were lent to collectives that were given up: MPI may still write there.
  std::vector<PinnedMemory::Block> given_up;
};

/// A call that is begun once the device has copied its inputs out and the calls before it have
/// begun.
class StagedCollective final : public Collective {
 public:
  StagedCollective(std::shared_ptr<StagingGroup> group, const Call& call)
      : group_(std::move(group)), call_(call, group_->inner->rank()), staged_(call.bytes_staged) {
    block_ = group_->memory->take(call_.block_bytes());
    try {
      const std::uint64_t copied = call_.copy_out(group_->device, group_->threads, block_.data);
      if (copied > 0) copied_ = group_->memory->mark();
      count(copied);
      group_->waiting.push_back(this);
    } catch (...) {
      group_->memory->give_back(block_);
      throw;
    }
  }

  ~StagedCollective() override {
    std::erase(group_->waiting, this);
    inner_.reset();
    if (begun_ && !done_)
      group_->given_up.push_back(block_);
    else
      group_->memory->give_back(block_);
    group_->memory->give_back(std::move(copied_), false);
  }

  bool advance() override {
    if (!done_ && (inner_ || begin()) && inner_->advance()) {
      count(call_.copy_back(group_->device, group_->threads));
      inner_.reset();
      done_ = true;
    }
    return done_;
  }

  std::uint64_t progress() const override { return inner_ ? 1 + inner_->progress() : 0; }
  std::vector<int> missing() const override {
    return inner_ ? inner_->missing() : std::vector<int>{group_->inner->rank()};
  }
  bool waits() const override { return !inner_ || inner_->waits(); }
  std::string about(int rank) const override {
    return inner_
               ? inner_->about(rank)
               : fmt::format("its {} has not come to this call", to_string(group_->device.device));
  }

 private:
  /// Whether its turn has come.
  bool begin() {
    if (group_->waiting.front() != this) return false;
    if (copied_.event) {
      if (!copied_.event->done()) return false;
      group_->memory->give_back(std::exchange(copied_, {}), true);
    }
    begun_ = true;
    inner_ = group_->inner->start(call_.host_call());
    group_->waiting.pop_front();
    return true;
  }
  void count(std::uint64_t bytes) const {
    if (staged_ != nullptr) *staged_ += bytes;
  }

  const std::shared_ptr<StagingGroup> group_;
  StagedCall call_;
  std::uint64_t* const staged_;
  PinnedMemory::Block block_;
  PinnedMemory::Mark copied_;  ///< behind the copies out of the device
  std::unique_ptr<Collective> inner_;
  bool begun_ = false;  ///< the block was lent to the algorithms below
  bool done_ = false;
};

class StagingAlgorithms final : public Algorithms {
 public:
  StagingAlgorithms(std::unique_ptr<Algorithms> inner, const GroupDevice& device, Threads threads,
                    std::shared_ptr<PinnedMemory> memory)
      : group_(std::make_shared<StagingGroup>(
            StagingGroup{std::move(inner), device, threads, std::move(memory), {}, {}})) {}
  ~StagingAlgorithms() override { give_back(); }

  int rank() const override { return group_->inner->rank(); }
  int size() const override { return group_->inner->size(); }
  std::string hosts() const override { return group_->inner->hosts(); }

  std::unique_ptr<Collective> start(const Call& call) override {
    const auto on_host = [](std::span<const TensorView> views) {
      return std::all_of(views.begin(), views.end(),
                         [](const TensorView& view) { return view.device == kCpuDevice; });
    };
    if (group_->waiting.empty() && on_host(call.inputs) && on_host(call.outputs))
      return group_->inner->start(call);
    return std::make_unique<StagedCollective>(group_, call);
  }
  void progress() override { group_->inner->progress(); }

  std::unique_ptr<Algorithms> split(const std::vector<std::vector<int>>& parts,
                                    std::uint64_t key) override {
    return std::make_unique<StagingAlgorithms>(group_->inner->split(parts, key), group_->device,
                                               group_->threads, group_->memory);
  }
  void renew() override {
    group_->inner->renew();
    give_back();
  }
  void abandon_memory() override {
    group_->inner->abandon_memory();
    for (const PinnedMemory::Block& block : std::exchange(group_->given_up, {}))
      group_->memory->abandon(block);
  }

 private:
  /// Nobody writes any more to what was given up.
  void give_back() {
    for (const PinnedMemory::Block& block : std::exchange(group_->given_up, {}))
      group_->memory->give_back(block);
  }

  const std::shared_ptr<StagingGroup> group_;
};

}  // namespace

std::unique_ptr<Algorithms> with_staging(std::unique_ptr<Algorithms> inner,
                                         const GroupOptions& options) {
  if (!options.device) return inner;
  return std::make_unique<StagingAlgorithms>(
      std::move(inner), *options.device, options.threads,
      std::make_shared<PinnedMemory>(*options.device, options.threads));
}

}  // namespace meshloom::comm
