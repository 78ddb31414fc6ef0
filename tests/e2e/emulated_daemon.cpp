// SPDX-License-Identifier: Apache-2.0
// meshloomd-emulated: the daemon with the CUDA backend on emulated GPUs, or with the library that
// MESHLOOM_TEST_BACKEND names.
#include <cstdio>

#include "daemon/control/daemon_main.h"
#include "kernels/base/error.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/support/test_backend.h"

int main(int argc, char** argv) {
  meshloom::kernels::cpu::add_cpu_device();
  try {
    meshloom::testing::load_test_backend("cuda-emulated");
  } catch (const meshloom::Error& error) {
    std::fprintf(stderr, "meshloomd-emulated: %s\n", error.what());
    return 2;
  }
  return meshloom::control::daemon_main(argc, argv);
}
