// SPDX-License-Identifier: Apache-2.0
// LocalResources: the ranks, hosts, devices and folders of this daemon, with which requests are
// compared.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "daemon/control/jobs/memory_admission.h"
#include "daemon/control/stores/model_store.h"
#include "daemon/control/stores/plan_store.h"
#include "daemon/train/config/device_choice.h"
#include "v1/config.pb.h"

namespace meshloom::control {

/// The stores outlive it.
struct LocalResources {
  int world_size = 1;
  int threads = 1;  ///< of a rank, and of a model that is loaded for generation
  std::filesystem::path data_dir;
  std::chrono::milliseconds resolve_timeout{10'000};  ///< of a call into the file systems
  std::vector<HostMemory> hosts;                      ///< that of rank 0 first
  train::WorldDevices devices = {};                   ///< the same hosts, or nothing
  ModelStore* models = nullptr;                       ///< null: no job names one
  PlanStore* plans = nullptr;                         ///< null: no job names one
  std::int64_t token_cache_bytes = std::int64_t{64} << 30;

  /// Threads of all ranks of rank 0's host, for what they wait for.
  int threads_of_host() const { return threads * std::max(1, hosts.front().ranks); }
};

/// Returns how much a rank may use of its host, where that is least; 0: not known.
std::int64_t host_memory_of_rank(const std::vector<HostMemory>& hosts);
/// Returns how much a rank may use of the memory that holds the tensors of a resolved config, where
/// that is least; 0: not known.
std::int64_t tensor_memory_of_rank(const LocalResources& resources, const v1::RunConfig& resolved);

}  // namespace meshloom::control
