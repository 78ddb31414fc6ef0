// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/exported_functions.h"

#include <string>

#include "tests/support/cuda_emulator/emulator.h"

#define MESHLOOM_EXPORT extern "C" __attribute__((visibility("default")))

MESHLOOM_EXPORT void meshloom_emulator_set_seed(std::uint64_t seed) {
  meshloom::emulator::set_seed(seed);
}

MESHLOOM_EXPORT void meshloom_emulator_take_faults(void (*take)(void* into, const char* text),
                                                   void* into) {
  for (const std::string& text : meshloom::emulator::take_faults()) take(into, text.c_str());
}

MESHLOOM_EXPORT void meshloom_emulator_record_launches() { meshloom::emulator::record_launches(); }

MESHLOOM_EXPORT void meshloom_emulator_recorded_launches(
    void (*take)(void* into, const meshloom::emulator::KernelRecord& kernel), void* into) {
  for (const meshloom::emulator::KernelRecord& kernel : meshloom::emulator::recorded_launches())
    take(into, kernel);
}
