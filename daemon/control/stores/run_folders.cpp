// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/run_folders.h"

#include <vector>

#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/lost_folder.h"
#include "daemon/control/stores/names.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

/// Of the folder `place` of the state dir: what is in it and not in `known`.
std::vector<fs::path> unknown_in(const fs::path& root, const std::string& place,
                                 const std::set<std::string>& known) {
  return entries_of(root / place,
                    [&](const std::string& name) { return !known.contains(place + "/" + name); });
}

}  // namespace

void sweep_run_folders(const StateDir& state, RunStore& store) {
  for (const std::string& folder : store.take_removed())
    try_removal(folder, [&] { fs::remove_all(state.root() / folder); });
  std::set<std::string> runs;
  std::vector<fs::path> unknown;
  for (const auto& [id, known] : store.folders()) {
    runs.insert(run_resource(id));
    try_removal(run_resource(id),
                [&] { remove_run_leftovers(train::posix_file_system(), state.run(id)); });
    for (const char* kind : {"states", "weights"})
      for (fs::path& folder : unknown_in(state.root(), run_resource(id) + "/" + kind, known))
        unknown.push_back(std::move(folder));
  }
  for (fs::path& folder : unknown_in(state.root(), "runs", runs))
    unknown.push_back(std::move(folder));
  LostFolder(state.root()).take(unknown, "runs");
}

}  // namespace meshloom::control
