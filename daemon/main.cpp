// SPDX-License-Identifier: Apache-2.0
// meshloomd: one rank of the daemon, on the CPU and on the GPUs that its plugin finds.
#include "daemon/control/daemon_main.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/plugin/cuda_plugin.h"

int main(int argc, char** argv) {
  meshloom::kernels::cpu::add_cpu_device();
  // Why there is no GPU is noted, and told by the log and to jobs that want one.
  return meshloom::control::daemon_main(argc, argv, [] { meshloom::kernels::load_cuda_plugin(); });
}
