// SPDX-License-Identifier: Apache-2.0
// meshloomd-fenced: the daemon on two fenced devices beside the CPU, which it takes for GPUs. With
// MESHLOOM_FENCED_DEVICES_DIFFER in the environment the second is of a class of its own.
#include <cstdlib>

#include "daemon/control/daemon_main.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/support/fenced_device/fenced_device.h"

int main(int argc, char** argv) {
  meshloom::kernels::cpu::add_cpu_device();
  meshloom::testing::add_fenced_devices(2);
  if (std::getenv("MESHLOOM_FENCED_DEVICES_DIFFER") != nullptr)
    meshloom::testing::fenced_device(1).set_compute_class("fenced_other");
  return meshloom::control::daemon_main(argc, argv);
}
