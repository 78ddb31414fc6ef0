// SPDX-License-Identifier: Apache-2.0
// Opens libraries that bring devices.
#pragma once

#include <filesystem>

namespace meshloom::kernels {

/// Opens a plugin and adds its devices to the table (backend_table.h); it is never closed. Called
/// at a program's start. Throws FailedPrecondition, in one line with what to do: for a file that is
/// missing or that the loader refuses (PLUGIN_NOT_LOADED), that is no plugin (NO_PLUGIN), or that
/// was built with another version of the interface (PLUGIN_ABI); and what the plugin throws.
void load_plugin(const std::filesystem::path& file);

}  // namespace meshloom::kernels
