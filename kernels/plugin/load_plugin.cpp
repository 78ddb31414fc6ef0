// SPDX-License-Identifier: Apache-2.0
#include "kernels/plugin/load_plugin.h"

#include <dlfcn.h>

#include <utility>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "kernels/plugin/plugin_interface.h"

namespace meshloom::kernels {
namespace {

class TableHost final : public PluginHost {
 public:
  void add_device(Device device, std::function<Backend&()> backend) override {
    kernels::add_device(device, std::move(backend));
  }
};

}  // namespace

void load_plugin(const std::filesystem::path& file) {
  // All symbols at once: what is missing is told at the start, and not in the midst of a job.
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw FailedPrecondition(
        fmt::format("plugin {} cannot be loaded: {}; install what it names, or put its folder into "
                    "LD_LIBRARY_PATH",
                    file.string(), why != nullptr ? why : "no reason is given"),
        "PLUGIN_NOT_LOADED", {{"file", file.string()}});
  }
  const auto entry = reinterpret_cast<PluginEntry>(::dlsym(library, kPluginEntryName));
  if (entry == nullptr)
    throw FailedPrecondition(fmt::format("{} is no plugin of meshloom: it has no function {}; "
                                         "remove it, or install meshloom again",
                                         file.string(), kPluginEntryName),
                             "NO_PLUGIN", {{"file", file.string()}});
  TableHost host;
  const std::uint32_t abi = entry(kPluginAbi, host);
  if (abi != kPluginAbi)
    throw FailedPrecondition(
        fmt::format("plugin {} has interface {} where this program has {}: both must be of one "
                    "build, install meshloom again",
                    file.string(), abi, kPluginAbi),
        "PLUGIN_ABI", {{"file", file.string()}});
}

}  // namespace meshloom::kernels
