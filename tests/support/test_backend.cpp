// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_backend.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "kernels/base/error.h"
#include "kernels/plugin/cuda_plugin.h"
#include "kernels/plugin/load_plugin.h"
#include "tests/support/cuda_emulator/exported_functions.h"

namespace meshloom::testing {
namespace {

// The library that is loaded has them, or they are null, as on a GPU.
emulator::SetSeed g_set_seed = nullptr;
emulator::TakeFaults g_take_faults = nullptr;
emulator::RecordLaunches g_record_launches = nullptr;
emulator::RecordedLaunches g_recorded_launches = nullptr;

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

void load(const std::filesystem::path& file) {
  kernels::load_plugin(file);
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  check_internal(library != nullptr, "plugin {} is loaded, and cannot be opened again",
                 file.string());
  find(library, emulator::kSetSeedName, g_set_seed);
  find(library, emulator::kTakeFaultsName, g_take_faults);
  find(library, emulator::kRecordLaunchesName, g_record_launches);
  find(library, emulator::kRecordedLaunchesName, g_recorded_launches);
}

}  // namespace

void load_test_backend(std::string_view device) {
  if (const char* const file = std::getenv("MESHLOOM_TEST_BACKEND")) return load(file);
  if (device == "cuda-emulated")
    return load(std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                "libmeshloom_cuda_emulated.so");
  const std::string missing = kernels::load_cuda_plugin();
  if (!missing.empty()) throw FailedPrecondition(missing, "NO_DEVICE");
}

void set_test_backend_seed(std::uint64_t seed) {
  if (g_set_seed != nullptr) g_set_seed(seed);
}

std::vector<std::string> take_test_backend_faults() {
  std::vector<std::string> faults;
  const auto take = [](void* into, const char* text) {
    static_cast<std::vector<std::string>*>(into)->emplace_back(text);
  };
  if (g_take_faults != nullptr) g_take_faults(take, &faults);
  return faults;
}

bool record_launches() {
  if (g_record_launches == nullptr) return false;
  g_record_launches();
  return true;
}

std::vector<emulator::KernelRecord> recorded_launches() {
  std::vector<emulator::KernelRecord> kernels;
  const auto take = [](void* into, const emulator::KernelRecord& kernel) {
    static_cast<std::vector<emulator::KernelRecord>*>(into)->push_back(kernel);
  };
  if (g_recorded_launches != nullptr) g_recorded_launches(take, &kernels);
  return kernels;
}

}  // namespace meshloom::testing
