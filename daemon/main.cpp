// SPDX-License-Identifier: Apache-2.0
// meshloomd: one rank of the daemon, on the devices that this program was built for.
#include "daemon/control/daemon_main.h"
#include "kernels/cpu/cpu_device.h"

int main(int argc, char** argv) {
  meshloom::kernels::cpu::add_cpu_device();
  return meshloom::control::daemon_main(argc, argv);
}
