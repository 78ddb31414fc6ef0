// SPDX-License-Identifier: Apache-2.0
// What a program and a plugin of devices know of each other. Both are compiled from this file.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/backend.h"

namespace meshloom::kernels {

/// The number of all that a plugin and a program share: this file, and every class and struct that
/// kernels/backend.h shows. It is raised with each change of them.
inline constexpr std::uint32_t kPluginAbi = 1;

/// The name of the one function that a plugin exports, of type PluginEntry.
inline constexpr const char* kPluginEntryName = "meshloom_plugin";

/// A plugin asks this of the program that opened it.
class PluginHost {
 public:
  virtual ~PluginHost() = default;
  /// Adds a device to the program's table, as add_device of kernels/backend_table.h does. `backend`
  /// makes the backend when it is first asked, and may throw why the device is of no use.
  virtual void add_device(Device device, std::function<Backend&()> backend) = 0;
};

/// Returns the plugin's kPluginAbi; where `abi`, which is the program's, differs, it does nothing
/// else. Throws FailedPrecondition, in one line with what to do, where there is no device to use.
///
/// What plugins throw is caught by type in the program though each has its own copy of the classes:
/// libstdc++ compares types by their names, and plugins are never closed.
using PluginEntry = std::uint32_t (*)(std::uint32_t abi, PluginHost& host);

}  // namespace meshloom::kernels
