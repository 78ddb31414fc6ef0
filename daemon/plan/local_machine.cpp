// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/local_machine.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "daemon/base/memory_limit.h"
#include "daemon/base/usable_cores.h"

namespace meshloom::plan {
namespace {

constexpr double kMeasuredCores = 2.0;
// A host's memory moves no more than this however many cores read it.
constexpr double kMostMemoryRate = 2.0e11;

bool has_flag(const std::string& flags, const std::string& wanted) {
  std::istringstream words(flags);
  for (std::string word; words >> word;)
    if (word == wanted) return true;
  return false;
}

/// Rate of float32 products of a core over that of one with AVX-512.
double float32_factor(const std::string& flags) {
  if (has_flag(flags, "avx512f")) return 1.0;
  if (has_flag(flags, "avx2")) return 0.6;
  return has_flag(flags, "asimd") ? 0.4 : 0.25;
}

/// Rate of bfloat16 over that of float32.
double bfloat16_factor(const std::string& flags) {
  if (has_flag(flags, "amx_bf16")) return 3.5;
  return has_flag(flags, "avx512_bf16") ? 1.6 : 1.0;
}

}  // namespace

LocalHost read_local_host(const std::filesystem::path& proc, const std::filesystem::path& cgroups) {
  LocalHost host;
  host.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (const int quota = base::core_quota(cgroups); quota > 0)
    host.cores = std::min(host.cores, quota);
  host.memory_bytes = base::memory_limit(proc, cgroups).bytes;
  std::ifstream file(proc / "cpuinfo");
  for (std::string line; host.flags.empty() && std::getline(file, line);)
    if (line.starts_with("flags") || line.starts_with("Features"))  // of x86, and of ARM
      host.flags = line.substr(std::min(line.find(':'), line.size()));
  return host;
}

void fit_to_host(const LocalHost& host, v1::Cluster* cluster) {
  const double cores = host.cores / kMeasuredCores;
  const double rate = cluster->float32_flops() * cores * float32_factor(host.flags);
  cluster->set_float32_flops(rate);
  cluster->set_bfloat16_flops(rate * bfloat16_factor(host.flags));
  cluster->set_memory_bytes_per_second(
      std::min(cluster->memory_bytes_per_second() * cores, kMostMemoryRate));
  if (host.memory_bytes > 0) cluster->set_memory_bytes(host.memory_bytes);
}

}  // namespace meshloom::plan
