// SPDX-License-Identifier: Apache-2.0
// What is wrong with a checkpoint or an export on disk.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace meshloom::control {

/// Why the checkpoint or export in `folder` is damaged: its manifest cannot be read, or a file is
/// missing or has another size than the manifest says; with `digests` also another content, for
/// which all files are read. Of an export the headers of its files are looked at, and its digests
/// are what the manifest is. Empty if nothing was found, or if it was deleted meanwhile. `go_on` is
/// called before each piece of a file that is read; it may throw Cancelled or Unavailable, which go
/// through.
std::string find_damage(const std::filesystem::path& folder, bool digests,
                        const std::function<void()>& go_on);

/// Whether it is said what the files in `folder` have to be: older exports have no digests.
bool has_digests(const std::filesystem::path& folder);

}  // namespace meshloom::control
