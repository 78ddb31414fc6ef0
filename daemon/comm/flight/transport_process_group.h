// SPDX-License-Identifier: Apache-2.0
// The ProcessGroup: collectives as state machines over a Transport, with deadlines, abort and
// records.
#pragma once

#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/collectives/collective.h"
#include "daemon/comm/failure/rank_groups.h"
#include "daemon/comm/flight/flight_recorder.h"
#include "daemon/comm/process_group.h"

namespace meshloom::comm {

class TransportProcessGroup : public ProcessGroup {
 public:
  /// `groups` is shared by all groups that come from one world; `world_ranks[i]` is member i's rank
  /// there.
  TransportProcessGroup(std::unique_ptr<Transport> transport, GroupOptions options,
                        std::shared_ptr<RankGroups> groups, std::vector<int> world_ranks,
                        std::uint64_t key, bool is_world);
  ~TransportProcessGroup() override;

  const std::string& name() const override { return options_.name; }
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }

  WorkPtr all_reduce(const TensorView& data, ReduceOp op) override;
  WorkPtr all_gather(std::span<const TensorView> outputs, const TensorView& input) override;
  WorkPtr reduce_scatter(const TensorView& output, std::span<const TensorView> inputs,
                         ReduceOp op) override;
  WorkPtr all_to_all(std::span<const TensorView> outputs,
                     std::span<const TensorView> inputs) override {
    return exchange(CollectiveKind::kAllToAll, outputs, inputs);
  }
  WorkPtr send_recv(std::span<const TensorView> outputs,
                    std::span<const TensorView> inputs) override {
    return exchange(CollectiveKind::kSendRecv, outputs, inputs);
  }
  WorkPtr broadcast(const TensorView& data, int root) override;
  WorkPtr scatter(const TensorView& output, std::span<const TensorView> inputs, int root) override;
  WorkPtr send(const TensorView& data, int destination, int tag) override;
  WorkPtr recv(const TensorView& data, int source, int tag) override;
  WorkPtr barrier() override;
  std::unique_ptr<ProcessGroup> split(const std::vector<std::vector<int>>& parts,
                                      const std::string& name) override;

  CommCounter counter(const std::string& collective) const override;
  std::map<std::string, CommCounter> counters() const override { return counters_; }
  void reset_counters() override;
  std::string flight_record() const override { return recorder_.text(); }
  FailureDomain* failures() override { return groups_.get(); }

  /// How far this rank is in the group; `key` and `members` tell groups apart, on all members
  /// alike.
  struct Standing {
    std::uint64_t key = 0;
    std::uint64_t members = 0;
    int size = 0;
    std::uint64_t collectives = 0;
    std::uint64_t next_sequence = 0;
    bool whole = true;           ///< nothing in flight or given up
    std::int64_t unmatched = 0;  ///< sends less recvs: 0 over all members
  };

  // For RankGroups.
  void poll();
  Standing standing() const;
  bool has_record() const { return recorder_.next_sequence() > 0; }
  Clock::time_point last_issue() const { return recorder_.last_issue(); }
  /// The last collective that was begun.
  std::string last_text() const;
  /// All flights fail with PeerFailed, but for those that have an error of their own.
  void give_up();
  /// Staging memory that MPI may still write to is never used or freed.
  void abandon_scratch() { scratch_.abandon(); }
  /// A world group is as new and goes on at `sequence`; any other refuses everything from now on.
  void start_over(std::uint64_t sequence, const std::string& cause);

 private:
  friend class TransportWork;
  struct Flight;

  WorkPtr exchange(CollectiveKind kind, std::span<const TensorView> outputs,
                   std::span<const TensorView> inputs);
  /// Counts, records and returns what a collective of this name gets.
  std::shared_ptr<Flight> take_off(const char* name, std::size_t bytes);
  /// With the next collective's tag and number.
  CollectiveContext context(Flight& flight, Signature signature);
  /// For a send or receive of the user, with this tag.
  CollectiveContext context(Flight& flight, int tag);
  WorkPtr launch(std::shared_ptr<Flight> flight, std::unique_ptr<Collective> collective);

  void advance(Flight& flight, Clock::time_point now);
  void check_deadline(Flight& flight, Clock::time_point now);
  /// Ends the flight with an error that names both sides, and everyone's waits.
  void fail_for_all(Flight& flight, const SignatureDiffers& difference);
  /// "2", or "2 (world rank 6)".
  std::string rank_text(int rank) const;
  void check_usable(const char* name);
  void fail(const Flight& flight, const std::exception_ptr& error, const std::string& why);
  /// Newest first: a message that still comes must not go to a younger receive (MpiTransport).
  void end_flights(const std::function<std::exception_ptr(const Flight&)>& error_of);
  PeerFailed peer_failed(const std::string& what) const;
  std::string describe(const Flight& flight) const;
  std::string peers_text(const std::vector<int>& peers) const;

  std::unique_ptr<Transport> transport_;
  GroupOptions options_;
  std::shared_ptr<RankGroups> groups_;
  std::vector<int> world_ranks_;
  std::uint64_t key_;
  bool is_world_;
  std::uint64_t splits_ = 0;
  std::uint64_t collectives_ = 0;
  std::int64_t unmatched_ = 0;  ///< sends less recvs since the group was new
  ScratchPool scratch_;
  FlightRecorder recorder_;
  std::map<std::string, CommCounter> counters_;
  std::list<std::shared_ptr<Flight>> flights_;
  std::string poison_;  ///< why the group is of no more use; empty: it is
  bool ended_ = false;  ///< by a recovery, for good
};

/// The group of all ranks of `transport`, a world group. `groups` belongs to the rank and is given
/// to every group it makes.
std::unique_ptr<ProcessGroup> make_transport_group(std::unique_ptr<Transport> transport,
                                                   const GroupOptions& options,
                                                   std::shared_ptr<RankGroups> groups);

}  // namespace meshloom::comm
