// SPDX-License-Identifier: Apache-2.0
// The plugin of the CUDA backend, where the program finds it and a driver.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace meshloom::kernels {

/// Returns the places where the plugin may lie, for a program in the folder `programs`: where it is
/// built and installed, then beside the program.
std::vector<std::filesystem::path> cuda_plugin_places(const std::filesystem::path& programs);

/// Tells whether this machine seems to have an NVIDIA driver: its device file, or its library.
bool has_nvidia_driver();

/// Adds the devices cuda:0.. to the table, or notes why there are none (note_missing) and returns
/// it. Where there is no plugin or no driver nothing is opened, which would take about 100 ms and
/// 200 MB. Called at a program's start.
std::string load_cuda_plugin();

}  // namespace meshloom::kernels
