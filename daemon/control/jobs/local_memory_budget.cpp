// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_memory_budget.h"

#include <algorithm>

#include "daemon/plan/job_memory.h"
#include "daemon/train/config/device_choice.h"
#include "daemon/train/config/dtype_choice.h"
#include "kernels/base/integer_math.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

/// Returns how much a resolved config takes of the fullest rank.
RankBytes rank_bytes(const v1::RunConfig& resolved, const nn::ModelConfig& model) {
  const planner::MemoryEstimate estimate = plan::estimate_job_memory(resolved, model);
  if (!train::has_device_memory(resolved.device())) return {estimate.total()};
  return {plan::beside_device(estimate).total(), plan::on_device(estimate).total()};
}

}  // namespace

MemoryUnits LocalMemoryBudget::hold_run(const v1::RunConfig& resolved) {
  return count_run(calls_.run<RankBytes>([this, resolved] { return bytes_of(resolved); }));
}

MemoryUnits LocalMemoryBudget::hold_evaluation(const v1::RunConfig& resolved,
                                               const std::filesystem::path& folder) {
  return count_run(calls_.run<RankBytes>([this, resolved, folder] {
    return rank_bytes(resolved, folders_.load_config(resolved.model(), folder));
  }));
}

MemoryUnits LocalMemoryBudget::hold_snapshot(const v1::RunConfig& resolved) {
  return calls_.run<MemoryUnits>([this, resolved] {
    const std::int64_t model =
        nn::parameter_count(folders_.load_config(resolved.model())) *
        static_cast<std::int64_t>(dtype_size(train::dtype_of(resolved.plan())));
    const v1::Mesh& mesh = resolved.mesh();
    const std::int64_t shards = std::max(1, mesh.fsdp()) * std::max(1, mesh.tp());
    return memory_.hold_weights(divide_up(model, shards), resolved.device(), job_bytes());
  });
}

MemoryUnits LocalMemoryBudget::hold_upload(std::int64_t bytes) {
  // The drive thread of a run asks, which a file system that hangs must not stop.
  return memory_.hold_upload(bytes, calls_.run<RankBytes>([this] { return job_bytes(); }).host);
}

MemoryUnits LocalMemoryBudget::hold_cache(const CacheNeed& need) {
  return memory_.hold_cache(need, calls_.run<RankBytes>([this] { return job_bytes(); }));
}

MemoryUnits LocalMemoryBudget::count_run(const RankBytes& bytes) {
  return run_bytes_.take({{kHostAccount, bytes.host}, {kDeviceAccount, bytes.device}});
}

RankBytes LocalMemoryBudget::job_bytes() const {
  const auto job = store_.active_job();
  if (job) return bytes_of(job->resolved());
  return {run_bytes_.taken(kHostAccount), run_bytes_.taken(kDeviceAccount)};
}

RankBytes LocalMemoryBudget::bytes_of(const v1::RunConfig& resolved) const {
  try {
    return rank_bytes(resolved, folders_.load_config(resolved.model()));
  } catch (const Error& error) {
    spdlog::warn("the memory of what has the ranks is not counted beside a generation: {}",
                 error.what());
    return {};
  }
}

}  // namespace meshloom::control
