// SPDX-License-Identifier: Apache-2.0
// What the emulated devices are: their number, compute capability and limits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace meshloom::emulator {

/// From the environment, when it is first asked for:
///   MESHLOOM_EMULATED_DEVICES  how many there are, 0 to 16; 4
///   MESHLOOM_EMULATED_SM       75, 80, 90 or 100; 90
///   MESHLOOM_EMULATED_DRIVER   the newest CUDA of the driver, 1000 * major + 10 * minor; that of
///                              CUDA's headers
/// Another value ends the process with a line that says what was expected.
struct Architecture {
  int devices = 4;
  int sm = 90;
  int driver = CUDART_VERSION;
  std::size_t shared_bytes = 0;  ///< of a block, with cudaFuncSetAttribute
};

const Architecture& architecture();

}  // namespace meshloom::emulator
