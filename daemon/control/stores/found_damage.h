// SPDX-License-Identifier: Apache-2.0
// Damage that was found in a checkpoint or an export when its files were read, remembered beside
// it: lists that do not read files tell of it, too.
#pragma once

#include <filesystem>
#include <string>

namespace meshloom::control {

/// What cannot be written is in the log alone.
void remember_damage(const std::filesystem::path& folder, const std::string& damage);
/// Empty if nothing was found, or files of the folder have changed since.
std::string remembered_damage(const std::filesystem::path& folder);
/// All files were read, and nothing is wrong with them.
void forget_damage(const std::filesystem::path& folder);

}  // namespace meshloom::control
