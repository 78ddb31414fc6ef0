// SPDX-License-Identifier: Apache-2.0
// RankGroups: all groups of a rank, which are polled together and fail together.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/failure/failure_channel.h"
#include "daemon/comm/training_pulse.h"

namespace meshloom::comm {

class TransportProcessGroup;

/// Shared by all groups that come from the world groups of one rank, in the order in which they
/// were made.
class RankGroups final : public FailureDomain {
 public:
  /// `pulse`: where the groups tell what they do; may be null.
  explicit RankGroups(std::unique_ptr<FailureChannel> channel, TrainingPulse* pulse = nullptr);
  ~RankGroups() override;

  void add(TransportProcessGroup* group) { groups_.push_back(group); }
  void remove(TransportProcessGroup* group) { std::erase(groups_, group); }

  /// Tells the world groups of a rank apart: 1, 2, ... in the order in which they are made.
  std::uint64_t next_world() { return ++worlds_; }

  TrainingPulse* pulse() const { return pulse_; }

  /// Moves every flight of every group: a peer may wait for another one first.
  void poll_all();
  bool raised(Clock::time_point now) { return channel_->raised(epoch_, verb_, now); }
  /// The failure that this rank has noticed and not recovered from; null where there is none.
  const Failure* noticed() const { return noticed_ ? &*noticed_ : nullptr; }
  /// Where a failure was raised and noticed: gives up all flights and waits until no transfer
  /// touches a buffer, for which every rank is needed.
  void settle_if_noticed() {
    if (noticed_ && !settled_) settle();
  }
  /// A group of this rank saw that a failure was raised.
  void notice();
  /// A Work was dropped before its end. Its buffer may go away next, so transfers that MPI holds on
  /// to end here, which needs all ranks: the drop becomes this rank's failure.
  void after_drop(const std::string& why) noexcept;
  /// A collective failed by itself (a deadline, a lost peer) and its flights have ended: no rank is
  /// waited for any more.
  void after_break() noexcept;
  /// Whether MPI may still touch buffers of transfers that were given up.
  bool has_leftovers() const { return channel_->has_leftovers(); }
  /// The ranks are in different collectives: this rank fails, and whatever verb the others are in,
  /// their waits end.
  void raise_for_all(const std::string& error) { raise(error, 0); }

  std::uint64_t epoch() const override { return epoch_; }
  void begin_verb() override { ++verb_; }
  void raise(const std::string& error) override { raise(error, verb_); }
  Recovery recover(const std::string& report) override;
  void on_raise(std::function<void(std::uint64_t, const Failure&)> callback) override {
    on_raise_ = std::move(callback);
  }

 private:
  void raise(const std::string& error, std::uint64_t verb);
  void settle();
  /// The verb and how many groups, a line for each, then `report`.
  std::string pack(const std::string& report) const;
  std::string last_collective() const;

  std::unique_ptr<FailureChannel> channel_;
  TrainingPulse* pulse_;
  std::vector<TransportProcessGroup*> groups_;
  std::uint64_t worlds_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t verb_ = 0;
  std::optional<Failure> noticed_;
  bool settled_ = false;
  bool broken_ = false;
  std::function<void(std::uint64_t, const Failure&)> on_raise_;
};

}  // namespace meshloom::comm
