// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/state_contents.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "daemon/control/stores/lost_folder.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIdFile = "journal-id";
constexpr const char* kContents[] = {"blobs", "jobs", "models", "runs"};

/// Nothing if there is none.
std::optional<std::string> id_of_contents(const fs::path& state_dir) {
  constexpr std::uint64_t kLongestId = 256;
  std::error_code ignored;
  if (!fs::exists(state_dir / kIdFile, ignored)) return std::nullopt;
  return base::InputFile(state_dir / kIdFile, base::InputFile::Links::kRefuse)
      .read_text(kLongestId);
}

std::vector<fs::path> contents_of(const fs::path& state_dir) {
  std::vector<fs::path> found;
  for (const char* name : kContents)
    if (holds_bytes(state_dir / name)) found.push_back(state_dir / name);
  return found;
}

void set_aside(const fs::path& state_dir, const std::string& id, const char* why) {
  const std::vector<fs::path> contents = contents_of(state_dir);
  if (!contents.empty()) {
    const FolderSize size = size_of(contents);
    const fs::path set = LostFolder(state_dir).make_set(id);
    for (const fs::path& folder : contents) base::rename_file(folder, set / folder.filename());
    base::sync_folder(set);
    spdlog::error(
        "{}: {} files of another one, {} bytes, are kept in {}, where nothing uses or removes "
        "them; to have them again stop the daemon, put their journal in the place of this one and "
        "start it",
        why, size.files, size.bytes, set.string());
  }
  std::error_code ignored;
  fs::remove(state_dir / kIdFile, ignored);
}

void move_back(const fs::path& state_dir, const fs::path& set) {
  for (const char* name : kContents) {
    if (!fs::exists(set / name)) continue;
    if (holds_bytes(state_dir / name)) {
      spdlog::error("{} belongs to this journal and stays, since there is {} already",
                    (set / name).string(), (state_dir / name).string());
      continue;
    }
    fs::remove_all(state_dir / name);
    base::rename_file(set / name, state_dir / name);
    spdlog::warn("{} is back: it belongs to this journal", (set / name).string());
  }
  base::sync_folder(state_dir);
}

}  // namespace

void match_contents(const fs::path& state_dir, const std::string& journal_id, bool is_new) try {
  const std::optional<std::string> present = id_of_contents(state_dir);
  std::vector<LostFolder::Set> own;
  if (!is_new) own = LostFolder(state_dir).sets();
  std::erase_if(own, [&](const auto& set) { return set.journal_id != journal_id; });
  const bool of_another =
      present && *present != journal_id && (!journal_id.empty() || !own.empty());
  if (is_new)
    set_aside(state_dir, present.value_or(""), "the journal is new");
  else if (of_another)
    set_aside(state_dir, *present, "the journal is another one than at the last start");
  for (const LostFolder::Set& set : own) {
    move_back(state_dir, set.folder);
    LostFolder(state_dir).forget_set(set);
  }
  // Stores that are made already count on theirs.
  for (const char* name : {"blobs/incoming", "jobs"}) fs::create_directories(state_dir / name);
} catch (const fs::filesystem_error& error) {
  throw IoError(fmt::format("the contents of {} cannot be matched with its journal: {}",
                            state_dir.string(), error.what()));
}

void sign_contents(const fs::path& state_dir, const std::string& journal_id) {
  try {
    if (id_of_contents(state_dir) == journal_id) return;
    base::replace_file(state_dir / kIdFile, journal_id);
    base::sync_folder(state_dir);
  } catch (const Error& error) {
    spdlog::warn("whose contents {} has is not written down: {}", state_dir.string(), error.what());
  }
}

std::unique_ptr<Ledger> open_ledger(const fs::path& journal, std::vector<JournaledStore*> stores) {
  auto ledger = std::make_unique<Ledger>(journal, std::move(stores));
  match_contents(journal.parent_path(), ledger->journal_id(), ledger->is_new());
  ledger->start();
  sign_contents(journal.parent_path(), ledger->journal_id());
  return ledger;
}

}  // namespace meshloom::control
