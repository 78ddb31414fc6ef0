// SPDX-License-Identifier: Apache-2.0
// What lies in a state dir belongs to one journal, also where that was moved away or put back.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/stores/ledger.h"

namespace meshloom::control {

/// The folders blobs, jobs, models and runs hold what the records of one journal name. Each journal
/// has an id, which is also in STATE_DIR/journal-id. Where a start finds another journal than the
/// one before:
///   - What lies there moves to a set of the LostFolder, with that id. So it does where a journal
///     is new: then nothing that it could hold was ever told of.
///   - The sets of this journal move back.
/// A journal that was written before there were ids has an empty one: its set is one without an id,
/// else what lies in the state dir is taken for its own.

/// Between the replay of the journal and the stores' first look at their folders, which are there
/// afterwards. `is_new`: the journal holds no record. Throws IoError: then nothing may begin, since
/// the stores would take what belongs to another journal for their own.
void match_contents(const std::filesystem::path& state_dir, const std::string& journal_id,
                    bool is_new);

/// Once the journal holds its id. Where it cannot be written that is told in the log.
void sign_contents(const std::filesystem::path& state_dir, const std::string& journal_id);

/// Replays the journal to the stores, matches what lies in its folder with it, and starts the
/// ledger. The stores outlive it and are used from here on.
std::unique_ptr<Ledger> open_ledger(const std::filesystem::path& journal,
                                    std::vector<JournaledStore*> stores);

}  // namespace meshloom::control
