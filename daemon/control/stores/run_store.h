// SPDX-License-Identifier: Apache-2.0
// RunStore: the runs that clients drive, with what they have saved, as they are to be found after a
// restart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/stores/journaled_store.h"
#include "daemon/control/stores/request_key.h"
#include "daemon/control/stores/saved_items.h"

namespace meshloom::control {

/// All methods may be called from any thread. Ids are names without "runs/"; states and weights go
/// by their whole names.
///
/// Saved states, and weights on disk, are records of their own, so that a save costs the same
/// however many there are. What a record that is put says of them is not looked at.
class RunStore final : public JournaledStore {
 public:
  /// Of what stays in memory, in bytes of records: states come with metadata that clients give.
  struct Limits {
    std::size_t states = 16 << 20;       ///< of a run
    std::size_t all_states = 256 << 20;  ///< of all runs together
    std::size_t weights = 512 << 10;     ///< on disk, of a run
  };

  RunStore();
  explicit RunStore(const Limits& limits) : limits_(limits) {}

  /// The id of the run that a repeated request made; nothing for a new request. Throws
  /// InvalidArgument (REQUEST_ID_REUSED), and NotFound (RUN_DELETED) if the run was deleted.
  std::optional<std::string> find_request(const RequestKey& key) const;
  /// Durable when it returns, else it throws (a full disk) and nothing has changed.
  void put(const v1::RunRecord& run, const RequestKey& request = {});
  /// For what has happened already: what cannot be written is tried again until it is.
  void put_kept(const v1::RunRecord& run);
  /// With all that it has saved, but for the files. As put_kept.
  void remove(const std::string& id);
  /// All records by id, with weights and without states.
  std::map<std::string, v1::RunRecord> all() const;

  /// A state of a run that is known becomes its newest, in the place of one of its name. As put.
  void put_state(const v1::SavedState& state);
  /// What became known of a state: as put_kept.
  void put_state_kept(const v1::SavedState& state);
  /// As put_kept; nothing happens if there is none.
  void remove_state(const std::string& name);
  std::optional<v1::SavedState> find_state(const std::string& name) const;
  /// The same. Throws NotFound (STATE_NOT_FOUND).
  v1::SavedState state(const std::string& name) const;
  /// The newest that is not damaged, without user_metadata.
  std::optional<v1::SavedState> newest_readable_state(const std::string& id) const;
  std::int64_t count_states(const std::string& id) const;
  /// Oldest first. `each` must not call the store.
  void visit_states(const std::string& id,
                    const std::function<void(const v1::SavedState&)>& each) const;
  /// Up to `size` of a run, and no more than a page has room for, after position (0 at first),
  /// oldest first; the position to go on from, 0 at the end.
  std::pair<std::vector<v1::SavedState>, std::int64_t> list_states(const std::string& id,
                                                                   std::int64_t position,
                                                                   int size) const;
  /// How much of a run's states is told with it, in bytes, the newest first.
  struct StateRoom {
    std::size_t all = 0;
    std::size_t with_metadata = 0;  ///< of those that are told with user_metadata
  };
  /// Fills in Run.saved and Run.saved_count.
  void tell_states(const StateRoom& room, v1::Run* run) const;
  /// Throws ResourceExhausted (STATES_FULL) if a state of this name and of `bytes` is too much.
  void check_state_room(const std::string& name, std::size_t bytes) const;

  /// Weights on disk, as put_state and remove_state.
  void put_weights(const v1::SavedWeights& weights);
  void remove_weights(const std::string& name);
  /// Throws ResourceExhausted (WEIGHTS_FULL) if one more is too much.
  void check_weights_room(const std::string& id) const;

  /// The whole name of a run that has not ended and whose config passes, if there is one. Such a
  /// config has no data.
  std::optional<std::string> user_by_config(const ConfigTest& test) const;

  /// Once, after the replay: the folders of runs, states and weights, of the state dir, that
  /// records have removed and none has made since. A daemon that died may have left them.
  std::set<std::string> take_removed();

  /// Those of saved states and of weights on disk, of the state dir, by the ids of runs.
  std::map<std::string, std::set<std::string>> folders() const;

  void snapshot(const Ledger::Visit& append) const override;

 private:
  struct Kept {
    v1::RunRecord record;  ///< without saved and weights
    SavedItems<v1::SavedState> states;
    SavedItems<v1::SavedWeights> weights;
  };

  void apply(const v1::JournalRecord& record) override;
  void apply_run(const v1::JournalRecord& record);
  void settle_after_restart() override {}  // RunManager does
  void put_as(const v1::RunRecord& run, const RequestKey& request, Ledger::Need need);
  void change(const v1::JournalRecord& record, Ledger::Need need);

  // With mutex_ held; null: there is none.
  const Kept* find(const std::string& id) const;
  Kept* find(const std::string& id);
  // With mutex_ held: they change the items, and removed_ by their folders.
  template <typename Item>
  void hold(SavedItems<Item>& items, const Item& item);
  template <typename Item>
  void drop(SavedItems<Item>& items, const std::string& name);
  template <typename Item>
  void drop_all(SavedItems<Item>& items);
  void forget_folder(const std::string& folder);

  const Limits limits_;
  std::map<std::string, Kept> runs_;
  bool settled_ = false;           ///< take_removed() was called
  std::set<std::string> removed_;  ///< what it returns
};

/// CLOSED or FAILED.
bool has_ended(const v1::Run& run);

}  // namespace meshloom::control
