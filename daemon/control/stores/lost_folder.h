// SPDX-License-Identifier: Apache-2.0
// LostFolder: what lies in a state dir and no record knows of, kept aside for people.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::control {

///   lost/DATE/...          as it lay in the state dir; DATE-2 and so on where that is taken
///   lost/DATE/journal-id   of the contents of another journal: see state_contents.h
/// A daemon that starts moves files there, by renaming them. No daemon ever removes one.
class LostFolder {
 public:
  explicit LostFolder(std::filesystem::path state_dir) : root_(std::move(state_dir)) {}

  /// Moves files and folders of the state dir, and tells the log how much it is and `where` it was
  /// ("blobs"). One without a byte in it is removed. What cannot be moved stays and is told of.
  void take(const std::vector<std::filesystem::path>& paths, std::string_view where) const;

  /// A new folder for a whole set, which take() puts nothing in.
  std::filesystem::path make_set(const std::string& journal_id) const;
  struct Set {
    std::filesystem::path folder;
    std::string journal_id;  ///< empty: of a journal without one
  };
  std::vector<Set> sets() const;
  /// Removes the folder of a set from which everything was taken.
  void forget_set(const Set& set) const;

  struct Held {
    std::string folder;  ///< of the state dir: "lost/DATE"
    std::int64_t files = 0;
    std::int64_t bytes = 0;
  };
  /// Oldest first.
  std::vector<Held> list() const;

 private:
  std::filesystem::path root_;
};

/// What lies in a folder, under the names that `which` says so of if it is given; by name. Nothing
/// where that is no folder or cannot be read.
std::vector<std::filesystem::path> entries_of(
    const std::filesystem::path& folder,
    const std::function<bool(const std::string& name)>& which = {});

struct FolderSize {
  std::int64_t files = 0;  ///< that are no folders
  std::int64_t bytes = 0;  ///< a file with several names counts once
};
FolderSize size_of(const std::vector<std::filesystem::path>& paths);

/// Whether a byte is in a file, or in one below a folder; holes are none.
bool holds_bytes(const std::filesystem::path& path);

}  // namespace meshloom::control
