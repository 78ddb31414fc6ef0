// SPDX-License-Identifier: Apache-2.0
// The CUDA backend of a test's program, from a library that is opened at run time: on a GPU, or on
// the emulated device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/cuda_emulator/kernel_record.h"

namespace meshloom::testing {

/// Adds the devices of "cuda" or "cuda-emulated" to the table: of the library that
/// MESHLOOM_TEST_BACKEND of the environment names, else of the CUDA backend where programs find it
/// (kernels/plugin), or of libmeshloom_cuda_emulated.so beside the program. Called once, at a
/// program's start. Throws FailedPrecondition, in one line, where there is none.
void load_test_backend(std::string_view device);

/// The seed of the order of work on emulated devices; a GPU has its own order.
void set_test_backend_seed(std::uint64_t seed);
/// The texts of the faults that emulated devices met since the last call.
std::vector<std::string> take_test_backend_faults();
/// From here on an emulated device records its launches, if it does not yet. False on others.
bool record_launches();
/// What ran since then, by kernel.
std::vector<emulator::KernelRecord> recorded_launches();

}  // namespace meshloom::testing
