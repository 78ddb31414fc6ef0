// SPDX-License-Identifier: Apache-2.0
// HookSpool: which events a hook has still to be started for, also after a restart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace meshloom::control {

/// STATE_DIR/hooks.json: the revision of events.jsonl up to which events were taken, and those of
/// them that have failed. Replaced whole after each; what the disk does not take is told in the
/// log, and after a restart a hook may be started twice for an event. Used by one thread.
class HookSpool {
 public:
  /// Without a file it begins behind `newest`: a hook is not told of what was before it.
  HookSpool(std::filesystem::path file, std::int64_t newest);

  std::int64_t taken() const { return taken_; }
  /// Lines of events that have failed, oldest first. At most 1000 are kept.
  const std::vector<std::string>& failed() const { return failed_; }

  /// The event up to `revision` is done with: it has succeeded, or is kept as one that has failed.
  void take(std::int64_t revision, const std::string& failed_line = "");
  /// The oldest that has failed has succeeded now.
  void drop_first_failed();

 private:
  void save();

  const std::filesystem::path file_;
  std::int64_t taken_;
  std::vector<std::string> failed_;
  bool in_trouble_ = false;
};

/// A daemon without a hook forgets what one had still to be started for.
void forget_hooks(const std::filesystem::path& file);

}  // namespace meshloom::control
