// SPDX-License-Identifier: Apache-2.0
// GroupState: what a group has in flight, and all that is true of it whatever its algorithms are.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/failure/rank_groups.h"
#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/flight/flight_recorder.h"
#include "daemon/comm/group_key.h"
#include "daemon/comm/process_group.h"

namespace meshloom::comm {

/// The place says where a group stands among the groups of its world.
struct GroupPlace {
  std::vector<int> world_ranks;  ///< of each member
  GroupKey key = 0;
  bool is_world = false;
};

/// A call is issued, advances whenever any work of the rank is polled, and is complete, or fails.
/// The first failure poisons the group and ends whatever else it has in flight.
class GroupState final : public RecoverableGroup {
 public:
  /// `groups` is shared by all groups that come from one world.
  GroupState(std::unique_ptr<Algorithms> algorithms, GroupOptions options,
             std::shared_ptr<RankGroups> groups, GroupPlace place);
  ~GroupState();
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  Algorithms& algorithms() const { return *algorithms_; }
  const GroupOptions& options() const { return options_; }
  const GroupPlace& place() const { return place_; }
  const std::shared_ptr<RankGroups>& groups() const { return groups_; }
  std::size_t in_flight() const { return in_flight_.size(); }
  /// Returns the sum of the counters of all kinds that are counted under a name.
  CommCounter counter(const std::string& name) const;
  /// Returns the counters of the kinds that were called, by the names that they are counted under.
  std::map<std::string, CommCounter> counters() const;
  void reset_counters() { counters_.fill({}); }
  std::string flight_record() const { return recorder_.text(); }

  /// Throws PeerFailed if a rank of the world has failed, FailedPrecondition if the group is
  /// poisoned. `name` is the call that is about to be made.
  void check_usable(const char* name);
  /// Numbers, records and starts a call that was checked.
  WorkPtr issue(Call call);

  void poll() override {
    if (!in_flight_.empty()) poll_at(Clock::now());
  }
  GroupStanding standing() const override;
  std::optional<LastIssued> last_issued() const override;
  void give_up() override;
  void abandon_memory() override { algorithms_->abandon_memory(); }
  void start_over(std::uint64_t sequence, const std::string& cause) override;

 private:
  friend class InFlightWork;
  struct InFlight;

  void poll_at(Clock::time_point now);
  void advance(InFlight& one, Clock::time_point now);
  /// Throws once the abort flag is raised or nothing has moved for too long; fails with what
  /// another rank has recorded of this group.
  void check_deadline(InFlight& one, Clock::time_point now);
  /// Poisons the group and ends all that is in flight: `one` with `error`, the rest because of it.
  void fail(const InFlight& one, const std::exception_ptr& error, const std::string& why);
  /// Fails by a deadline or a death, which all ranks of the host are to show alike: this rank's
  /// becomes their abort record, or that which stands becomes this rank's.
  void fail_as_recorded(const InFlight& one, const Error& error);
  AbortRecord record_of(const InFlight& one, const Error& error) const;
  /// Returns the error that this rank throws of a record, whoever wrote it; `own` is what it found
  /// itself, if it did.
  std::exception_ptr error_of(const InFlight& one, const AbortRecord& record,
                              const Error* own) const;
  /// Ends `one` with an error that names both sides, and everyone's waits.
  void fail_for_all(InFlight& one, const SignatureDiffers& difference);
  /// Ends the newest first: a message that still comes must not go to a younger receive
  /// (MpiTransport).
  void end_all(const std::function<std::exception_ptr(const InFlight&)>& error_of);

  PeerFailed peer_failed(const std::string& what) const;
  /// Returns the error that ends `call`, whose group is poisoned.
  std::exception_ptr poisoned(const std::string& call) const;
  /// Returns "all_reduce #12 of group 'dp' on rank 1 of 4".
  std::string describe(const InFlight& one) const;
  /// Returns "2", or "2 (world rank 6)".
  std::string rank_text(int rank) const;
  std::uint64_t id() const { return group_id(place_.key, place_.world_ranks); }
  std::string ranks_text(const std::vector<int>& ranks) const;

  std::unique_ptr<Algorithms> algorithms_;
  GroupOptions options_;
  std::shared_ptr<RankGroups> groups_;
  GroupPlace place_;
  std::uint64_t collectives_ = 0;
  /// The log numbers collectives since the last recovery from this number on, so that none comes
  /// twice.
  std::uint64_t first_number_ = 0;
  std::int64_t unmatched_ = 0;  ///< sends less receives since the group was new
  FlightRecorder recorder_;
  const std::string* name_in_pulse_ = nullptr;
  std::array<CommCounter, kCollectiveKinds> counters_{};  ///< by kind
  std::list<std::shared_ptr<InFlight>> in_flight_;
  std::string poison_;   ///< why the group is of no more use; empty: it is
  bool broken_ = false;  ///< poisoned by a failure that fail_as_recorded() records
  bool ended_ = false;   ///< by a recovery, for good
};

}  // namespace meshloom::comm
