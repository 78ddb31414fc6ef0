// SPDX-License-Identifier: Apache-2.0
// Options of `meshloom plan`, and the values of the planner that they mean.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "daemon/base/yaml_reader.h"
#include "planner/estimate/machine.h"
#include "planner/estimate/workload.h"
#include "v1/plan.pb.h"

namespace meshloom::cli {

/// As given; 0 and "" if not.
struct PlanOptions {
  std::string model;
  std::string mesh;
  std::string plan_file;
  std::string dtype;
  std::string activation_checkpoint;
  std::string optimizer = "adamw";
  bool sequence_parallel = false;
  std::string shard_policy;
  bool no_reshard = false;
  std::int64_t sequence = 0;
  std::int64_t micro_batch = 0;
  std::int64_t global_batch = 0;
  std::string cluster = "local_cpu";
  double flops = 0.0;
  double bandwidth = 0.0;
  double link_bandwidth = 0.0;
  std::uint64_t memory = 0;
};

void add_model_option(CLI::App& command, PlanOptions& options);
void add_mesh_options(CLI::App& command, PlanOptions& options);
void add_work_options(CLI::App& command, PlanOptions& options);
void add_machine_options(CLI::App& command, PlanOptions& options);

/// A file for --plan. Throws CliError (kUsage) naming file and line of what is wrong.
/// `lines` gets the lines of its fields if given.
v1::PlanFile read_plan_file(const std::string& path, base::SourceLines* lines = nullptr);

/// "dp=2,tp=2". Throws CliError (kUsage) naming what is wrong.
planner::MeshSizes parse_mesh(const std::string& text);

/// The styles of a file as for --plan that says nothing else. Throws CliError (kUsage).
planner::StylePlan read_styles(const std::string& path, const planner::ModelShape& model);

struct MeshAndPlan {
  planner::MeshSizes mesh;
  planner::ParallelPlan plan;
};
/// From the plan file, then the flags, which win; tensor_parallel and fully_shard are on if the
/// mesh has such ranks. `machine` decides what "auto" means. Throws CliError (kUsage).
MeshAndPlan make_mesh_and_plan(const PlanOptions& options, const planner::ModelShape& model,
                               const planner::Machine& machine);

DType make_dtype(const std::string& name, const planner::Machine& machine);
planner::ActivationCheckpoint make_checkpointing(const std::string& name);
planner::OptimizerState make_optimizer_state(const std::string& name);
/// Defaults: the model's context, one sample a micro batch, one micro batch a rank.
planner::Workload make_workload(const PlanOptions& options, const planner::ModelShape& model,
                                const planner::MeshSizes& mesh);
/// The cluster with the numbers that flags replace.
planner::Machine make_machine(const PlanOptions& options);

}  // namespace meshloom::cli
