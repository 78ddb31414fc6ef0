// SPDX-License-Identifier: Apache-2.0
// MemoryAdmission: whether what clients ask for fits the memory of the hosts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/memory_limit.h"
#include "daemon/control/host/memory_units.h"
#include "daemon/nn/models/model_config.h"
#include "daemon/train/config/device_choice.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/run/run.h"
#include "planner/estimate/memory.h"
#include "v1/config.pb.h"
#include "v1/job.pb.h"

namespace meshloom::control {

/// A host and the ranks that share its memory.
struct HostMemory {
  std::string name;
  int ranks = 1;
  base::MemoryLimit limit;
};

/// Keys and values of the sequences that one request draws.
struct CacheNeed {
  std::int64_t sequences = 0;
  std::int64_t bytes = 0;  ///< of all of them, held once
  int copies = 1;          ///< how often they are held, over all ranks
  int shards = 1;          ///< ranks that share one copy
  /// run.device of the resolved config of what draws them; empty: they are on the host.
  std::string device = {};
};

/// What a job takes of one rank.
struct RankBytes {
  std::int64_t host = 0;
  std::int64_t device = 0;  ///< of the rank's device, where that has memory of its own
};

/// The accounts of a MemoryCount of both.
inline constexpr const char* kHostAccount = "host";
inline constexpr const char* kDeviceAccount = "device";

/// Returns what a model's sequences need that are to be drawn to their ends.
CacheNeed cache_need(const train::PromptLimits& limits,
                     const std::vector<train::SampleStart>& sequences);

/// The reason of a refusal.
inline constexpr const char* kMemoryEstimate = "MEMORY_ESTIMATE";

/// Compares estimates (daemon/plan/job_memory.h), summed over the ranks of a host, with what the
/// host has; of a job on devices with memory of their own what lies there, summed over the ranks
/// that share a device, with what the device has. A host or device whose memory is not known takes
/// everything. Any thread may call it.
class MemoryAdmission {
 public:
  using ReadLimit = std::function<base::MemoryLimit()>;
  /// `hosts`: that of rank 0 first. Its limit is read again for each check by `read_limit`, since
  /// limits change. `devices`: of the same hosts, or nothing.
  explicit MemoryAdmission(
      std::vector<HostMemory> hosts, ReadLimit read_limit = [] { return base::memory_limit(); },
      train::WorldDevices devices = {});

  /// A note for a job that takes most of a host or device, or more with overcommit; nothing for
  /// others. Throws ResourceExhausted (MEMORY_ESTIMATE) for one that takes more than a host or
  /// device has, with the parts of the estimate that lie there and the field to change.
  std::optional<std::string> check_job(const v1::RunConfig& resolved, const nn::ModelConfig& model,
                                       bool overcommit) const;

  /// Counts a model that rank 0 loads for generation as long as there is the result, which may
  /// outlive this. `job_bytes`: what the running job takes of a rank, 0 if none runs. Throws
  /// ResourceExhausted (MEMORY_ESTIMATE) if both, and what is loaded already, are more than the
  /// host has.
  MemoryUnits hold_source(std::int64_t weight_bytes, std::int64_t job_bytes);

  /// The same for the data of a verb that came as an upload: on rank 0 the message, beside it the
  /// bytes that it is read from or sent as, and the message on each other rank of the host.
  MemoryUnits hold_upload(std::int64_t bytes, std::int64_t job_bytes);

  /// The same for the caches of sequences that are drawn together, on the host or on its devices. A
  /// job that needs more than there is by itself, which says `overcommit`, is left out of the sum.
  MemoryUnits hold_cache(const CacheNeed& need, const RankBytes& job);

  /// The same for a copy of a run's weights, of so many bytes on each rank, where the run computes:
  /// `device` is run.device of its resolved config.
  MemoryUnits hold_weights(std::int64_t rank_bytes, const std::string& device,
                           const RankBytes& job);

 private:
  base::MemoryLimit limit_of(std::size_t host) const;
  /// Bytes of the running job on rank 0's host; 0 for one that takes more than there is.
  double job_of(const base::MemoryLimit& limit, std::int64_t job_bytes) const;
  /// `text`: what needs so many bytes of rank 0's host; `job`: those of all ranks there.
  MemoryUnits hold(const std::string& text, std::int64_t bytes, double job,
                   const base::MemoryLimit& limit);
  /// The same of what needs so many bytes of the device of each rank of rank 0's host.
  MemoryUnits hold_on_device(const std::string& text, std::int64_t rank_bytes,
                             const std::string& device, std::int64_t job_bytes);

  std::vector<HostMemory> hosts_;
  ReadLimit read_limit_;
  train::WorldDevices devices_;
  MemoryCount sources_;  ///< what weights and caches take of rank 0's host, and of a rank's device
};

/// Replaces the micro batch of a resolved config, which is a rank's whole share of the global
/// batch, by the largest even part of that share whose estimate (daemon/plan/job_memory.h) is at
/// most `rank_bytes`; by 1 if none is. On a device with memory of its own both are what lies there.
/// Nothing changes if the whole share fits, or `rank_bytes` is 0: not known. Returns what was
/// chosen and why, as a note to the user; nothing if nothing has changed.
std::optional<std::string> choose_micro_batch(v1::RunConfig* resolved, const nn::ModelConfig& model,
                                              std::int64_t rank_bytes);

}  // namespace meshloom::control
