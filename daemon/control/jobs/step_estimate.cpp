// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/step_estimate.h"

#include <fmt/format.h>

#include "daemon/plan/job_memory.h"
#include "daemon/plan/plan_messages.h"
#include "daemon/plan/plan_query.h"
#include "daemon/train/config/device_choice.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

/// Puts what lies on the device in place of the memory of a rank on a CPU.
void move_memory(const planner::MemoryEstimate& rank, const MemoryShares& shares,
                 v1::PlanEstimate* estimate) {
  const auto fits = [](const planner::MemoryEstimate& part, std::int64_t share) {
    return share == 0 || part.total() <= share;
  };
  const planner::MemoryEstimate tensors = plan::on_device(rank);
  *estimate->mutable_memory() = plan::to_message(tensors);
  estimate->clear_memory_limit_bytes();
  if (shares.tensors > 0) estimate->set_memory_limit_bytes(shares.tensors);
  estimate->set_fits(fits(tensors, shares.tensors) && fits(plan::beside_device(rank), shares.host));
}

void set_memory(const planner::MemoryEstimate& rank, bool device, const MemoryShares& shares,
                v1::PlanEstimate* estimate) {
  if (device)
    move_memory(rank, shares, estimate);
  else
    *estimate->mutable_memory() = plan::to_message(rank);
}

/// Takes out what holds for the machine that plans are estimated for, which computes on its CPU.
void leave_machine(const v1::RunConfig& resolved, v1::PlanEstimate* estimate,
                   std::vector<std::string>* warnings) {
  warnings->push_back(
      fmt::format("run.device: there is no estimate of a step's time on {}", resolved.device()));
  estimate->clear_seconds();
  estimate->clear_cluster();
}

v1::PlanQuery query_of(const v1::RunConfig& resolved, std::int64_t host_share) {
  const v1::TrainingConfig& training = resolved.training();
  v1::PlanQuery query;
  *query.mutable_mesh() = resolved.mesh();
  *query.mutable_plan() = resolved.plan();
  query.mutable_plan()->clear_name();
  query.set_seq_len(training.seq_len());
  query.set_micro_batch_size(training.micro_batch_size());
  query.set_global_batch_size(training.global_batch_size());
  const v1::OptimizerConfig& optimizer = resolved.optimizer();
  if (optimizer.type() == v1::OPTIMIZER_TYPE_SGD)
    query.set_optimizer(optimizer.momentum() > 0 ? "sgd_momentum" : "sgd");
  if (host_share > 0) query.set_memory_limit_bytes(host_share);
  return query;
}

}  // namespace

v1::PlanEstimate estimate_step(const v1::RunConfig& resolved, const nn::ModelConfig& model,
                               const MemoryShares& shares, std::vector<std::string>* warnings) {
  const bool device = train::has_device_memory(resolved.device());
  try {
    v1::PlanEstimate estimate = plan::estimate_plan(model, query_of(resolved, shares.host));
    // A query knows nothing of frozen parameters.
    if (device || !resolved.training().frozen().empty())
      set_memory(plan::estimate_job_memory(resolved, model), device, shares, &estimate);
    if (device) leave_machine(resolved, &estimate, warnings);
    return estimate;
  } catch (const Unimplemented& error) {
    warnings->push_back(
        fmt::format("run.plan: the memory is an upper bound, and there is no "
                    "estimate of time and bytes: {}",
                    error.what()));
    v1::PlanEstimate memory;
    set_memory(plan::estimate_job_memory(resolved, model), device, shares, &memory);
    return memory;
  }
}

}  // namespace meshloom::control
