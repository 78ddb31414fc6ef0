// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/refit.h"

#include <algorithm>
#include <cstdint>

#include "daemon/train/config/config_place.h"
#include "daemon/train/config/micro_batch.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resolve_plan.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

/// Dims that are left open count as one rank.
std::int64_t named_ranks(const v1::Mesh& mesh) {
  const auto size = [](std::int32_t n) { return std::max<std::int64_t>(n, 1); };
  return size(mesh.dp()) * size(mesh.fsdp()) * size(mesh.cp()) * size(mesh.tp());
}

std::string why_unfit(const v1::RunConfig& given, int world_size, const std::string& refusal) {
  const std::int64_t named = named_ranks(given.mesh());
  // A dim that was left open takes the ranks that the others leave.
  const bool takes_more =
      !given.mesh().has_dp() || (given.plan().fully_shard() && !given.mesh().has_fsdp());
  if (takes_more ? world_size % named != 0 : world_size != named)
    return fmt::format("needs {}{} ranks, the daemon has {}", takes_more ? "a multiple of " : "",
                       named, world_size);
  return fmt::format("does not fit the daemon's {} ranks: {}", world_size, refusal);
}

/// If it was left open, ranks hold the tokens that they held before. A job that an older daemon
/// resolved, and one without windows, says auto: by documents, else head and tail.
void keep_balancer(const v1::RunConfig& given, const v1::RunConfig& resolved,
                   v1::ParallelPlan* plan) {
  if (!balancer_is_auto(given.plan()) || resolved.mesh().cp() <= 1) return;
  if (!balancer_is_auto(resolved.plan()))
    plan->mutable_context_parallel()->set_load_balancer(
        resolved.plan().context_parallel().load_balancer());
  else if (!resolved.data().document_mask())
    plan->mutable_context_parallel()->set_load_balancer("head_tail");
}

/// If it was left open, keys travel as before, since cp has as many ranks as before. A job that an
/// older daemon resolved names no way: it pulled its keys.
void keep_rotate(const v1::RunConfig& given, const v1::RunConfig& resolved,
                 v1::ParallelPlan* plan) {
  if (!rotate_is_auto(given.plan()) || resolved.mesh().cp() <= 1) return;
  const v1::ContextParallelPlan& before = resolved.plan().context_parallel();
  v1::ContextParallelPlan& kept = *plan->mutable_context_parallel();
  kept.set_rotate(rotate_is_auto(resolved.plan()) ? "pull" : before.rotate());
  if (before.has_ulysses_degree()) kept.set_ulysses_degree(before.ulysses_degree());
}

/// It stays, unless it was left open and a rank does not have it. A job that an older daemon
/// resolved names none: it computes on the CPU.
void keep_device(const v1::RunConfig& given, const WorldDevices& devices, v1::RunConfig* config) {
  if (config->device().empty()) config->set_device(to_string(kCpuDevice));
  if (device_is_auto(given) && !has_device(devices, config->device())) config->clear_device();
  resolve_device(*config, devices);
}

}  // namespace

v1::RunConfig refit_run_config(const v1::RunConfig& given, const v1::RunConfig& resolved,
                               const ConfigPlace& place) {
  v1::RunConfig config = resolved;
  keep_device(given, place.devices, &config);
  if (named_ranks(resolved.mesh()) == place.world_size)
    return has_device(place.devices, resolved.device()) ? resolved : config;
  *config.mutable_mesh() = given.mesh();
  *config.mutable_plan() = given.plan();
  config.mutable_plan()->set_dtype(resolved.plan().dtype());
  keep_rotate(given, resolved, config.mutable_plan());
  keep_balancer(given, resolved, config.mutable_plan());
  // Said, since a job that an older daemon resolved means false if it says nothing.
  config.mutable_checkpoint()->set_fallback(resolved.checkpoint().fallback());
  config.mutable_training()->clear_micro_batch_size();
  if (given.training().has_micro_batch_size())
    config.mutable_training()->set_micro_batch_size(given.training().micro_batch_size());
  try {
    config = resolve_run_config(config, place);
    if (!given.training().has_micro_batch_size()) keep_micro_batch(resolved, &config);
    return config;
  } catch (const InvalidArgument& error) {
    const auto found = error.metadata().find("field");
    const std::string field = found == error.metadata().end() ? "" : found->second;
    const bool depends_on_ranks = field.starts_with("run.mesh") || field.starts_with("run.plan") ||
                                  field == "run.training.micro_batch_size";
    if (!depends_on_ranks) throw;
    throw NeedsOtherRanks(why_unfit(given, place.world_size, error.what()), error.metadata());
  }
}

}  // namespace meshloom::train
