// SPDX-License-Identifier: Apache-2.0
#include "kernels/plugin/cuda_plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "kernels/plugin/load_plugin.h"

namespace meshloom::kernels {
namespace {

constexpr const char* kFileName = "libmeshloom_cuda.so";
// The build sets it: the folder of plugins, seen from that of the programs.
constexpr const char* kFolder = MESHLOOM_PLUGIN_FOLDER;

std::filesystem::path program_folder() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path{} : program.parent_path();
}

/// Empty if there is none.
std::filesystem::path find_plugin() {
  for (const auto& place : cuda_plugin_places(program_folder())) {
    std::error_code error;
    if (std::filesystem::exists(place, error)) return place;
  }
  return {};
}

/// Why there is no device; empty if there is one.
std::string try_to_load() {
  const std::filesystem::path plugin = find_plugin();
  if (plugin.empty())
    return fmt::format("this build has no cuda backend: {} is not there; build preset cuda",
                       cuda_plugin_places(program_folder()).front().string());
  if (!has_nvidia_driver())
    return "no NVIDIA driver is found (/dev/nvidiactl, libcuda.so.1): install driver 580 or newer; "
           "in a container, start it with --gpus all";
  try {
    load_plugin(plugin);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::vector<std::filesystem::path> cuda_plugin_places(const std::filesystem::path& programs) {
  return {(programs / kFolder / kFileName).lexically_normal(), programs / kFileName};
}

bool has_nvidia_driver() {
  if (::access("/dev/nvidiactl", F_OK) == 0) return true;
  // Some systems (WSL) have the library alone. Without it the loader's search costs microseconds.
  return ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

std::string load_cuda_plugin() {
  std::string why = try_to_load();
  std::replace(why.begin(), why.end(), '\n', ' ');
  if (!why.empty()) note_missing(DeviceKind::kCuda, why);
  return why;
}

}  // namespace meshloom::kernels
