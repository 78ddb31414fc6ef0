// SPDX-License-Identifier: Apache-2.0
// RankGroups: all groups of a rank, which are polled together and fail together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/diagnosis/flight_field.h"
#include "daemon/comm/failure/failure_channel.h"
#include "daemon/comm/failure/peer_access.h"
#include "daemon/comm/group_key.h"
#include "daemon/comm/training_pulse.h"

namespace meshloom::comm {

/// The struct says how far this rank is in a group, which group_id() names.
struct GroupStanding {
  std::uint64_t id = 0;
  int size = 0;
  std::uint64_t collectives = 0;
  std::uint64_t next_sequence = 0;
  bool whole = true;           ///< nothing in flight or given up
  std::int64_t unmatched = 0;  ///< sends less receives: 0 over all members
};

/// RankGroups asks this of a group.
class RecoverableGroup {
 public:
  struct LastIssued {
    Clock::time_point when;
    std::string text;  ///< "all_reduce #12 of group 'dp'"
  };

  /// Moves all that is in flight as far as it goes without waiting.
  virtual void poll() = 0;
  virtual GroupStanding standing() const = 0;
  /// Returns the collective that was issued last, if there was one.
  virtual std::optional<LastIssued> last_issued() const = 0;
  /// All that is in flight fails with PeerFailed, but for what has an error of its own.
  virtual void give_up() = 0;
  /// Staging memory that MPI may still write to is never used or freed.
  virtual void abandon_memory() = 0;
  /// A world group is as new and goes on at `sequence`; any other refuses everything from now on.
  virtual void start_over(std::uint64_t sequence, const std::string& cause) = 0;

 protected:
  ~RecoverableGroup() = default;
};

/// It is shared by all groups that come from the world groups of one rank, in the order in which
/// they were made.
class RankGroups final : public FailureDomain {
 public:
  /// `flight`: the logs of all ranks; groups write to this rank's. `pulse`: where the groups tell
  /// what they do; may be null.
  RankGroups(std::unique_ptr<FailureChannel> channel, std::shared_ptr<const FlightField> flight,
             TrainingPulse* pulse = nullptr);
  /// Through this the groups of this rank tell of memory that peers may still touch.
  const std::shared_ptr<PeerAccess>& peer_access() const { return peer_access_; }
  ~RankGroups() override;

  void add(RecoverableGroup* group) { groups_.push_back(group); }
  void remove(RecoverableGroup* group) { std::erase(groups_, group); }

  /// Returns the key of the world group that is made next; every rank makes world groups in the
  /// same order.
  GroupKey next_world_key() { return world_key(++worlds_); }
  /// Returns the highest number that a group had which was split from one of this rank's.
  std::uint64_t parts_so_far() const { return parts_; }
  void note_part(std::uint64_t number) { parts_ = number; }

  TrainingPulse* pulse() const { return pulse_; }
  const FlightField& flight() const { return *flight_; }

  /// Returns the abort record of this epoch; none as long as no rank of the host has written it.
  std::optional<AbortRecord> aborted() const {
    AbortBoard& board = flight_->abort_board();
    return board.written(epoch_) ? board.read(epoch_) : std::nullopt;
  }
  /// `mine` becomes the record unless there is one; gives the record that stands.
  AbortRecord abort(const AbortRecord& mine);
  /// Sets what is called on the rank whose record stands, before its waits throw.
  void on_abort(std::function<void(const AbortRecord&)> callback) {
    on_abort_ = std::move(callback);
  }

  /// Moves all that is in flight in all groups: a peer may wait for another one first.
  void poll_all();
  bool raised(Clock::time_point now) { return channel_->raised(epoch_, verb_, now); }
  /// Returns the failure that this rank has noticed and not recovered from; null if there is none.
  const Failure* noticed() const { return noticed_ ? &*noticed_ : nullptr; }
  /// If a failure was raised and noticed: gives up all that is in flight and waits until no
  /// transfer touches a buffer, for which every rank is needed.
  void give_up_if_noticed() {
    if (noticed_ && !given_up_) give_up_all();
  }
  /// A group of this rank saw that a failure was raised.
  void notice();
  /// A Work was dropped before its end. Its buffer may go away next, so transfers that MPI holds on
  /// to end here, which needs all ranks: the drop becomes this rank's failure.
  void after_drop(const std::string& why) noexcept;
  /// A collective failed by itself (a deadline, a lost peer), and its group has ended all that it
  /// had in flight: no rank is waited for any more.
  void after_break() noexcept;
  /// Tells whether MPI or peers may still touch buffers of collectives that were given up.
  bool has_leftovers() const { return peer_access_->open || channel_->has_leftovers(); }
  /// The ranks are in different collectives: this rank fails, and whatever verb the others are in,
  /// their waits end.
  void raise_for_all(const std::string& error) { raise(error, 0); }

  std::uint64_t epoch() const override { return epoch_; }
  void begin_verb() override { ++verb_; }
  void raise(const std::string& error) override { raise(error, verb_); }
  const Failure* poll() override;
  Recovery recover(const std::string& report) override;
  void on_raise(std::function<void(std::uint64_t, const Failure&)> callback) override {
    on_raise_ = std::move(callback);
  }

 private:
  void raise(const std::string& error, std::uint64_t verb);
  void give_up_all();

  std::unique_ptr<FailureChannel> channel_;
  std::shared_ptr<const FlightField> flight_;
  TrainingPulse* pulse_;
  std::shared_ptr<PeerAccess> peer_access_ = std::make_shared<PeerAccess>();
  std::vector<RecoverableGroup*> groups_;
  std::uint64_t worlds_ = 0, parts_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t verb_ = 0;
  std::optional<Failure> noticed_;
  bool given_up_ = false;
  bool broken_ = false;
  std::function<void(std::uint64_t, const Failure&)> on_raise_;
  std::function<void(const AbortRecord&)> on_abort_;
};

}  // namespace meshloom::comm
