// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/memory.h"

#include <malloc.h>

#include <cstdio>

namespace meshloom::control {

MemoryUse process_memory() {
  MemoryUse use;
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (!file) return use;
  char line[256];
  long long kilobytes = 0;
  while (std::fgets(line, sizeof line, file)) {
    if (std::sscanf(line, "VmRSS: %lld kB", &kilobytes) == 1) use.resident = kilobytes * 1024;
    if (std::sscanf(line, "VmHWM: %lld kB", &kilobytes) == 1) use.peak = kilobytes * 1024;
  }
  std::fclose(file);
  return use;
}

void begin_peak_memory() {
  std::FILE* file = std::fopen("/proc/self/clear_refs", "we");
  if (!file) return;
  std::fputs("5", file);  // "reset the peak resident set size", proc(5)
  std::fclose(file);
}

void give_back_free_memory() { ::malloc_trim(0); }

}  // namespace meshloom::control
