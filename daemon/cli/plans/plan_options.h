// SPDX-License-Identifier: Apache-2.0
// PlanOptions are the options of `meshloom plan`, which become the queries that they mean.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/yaml_reader.h"
#include "planner/plan/mesh_sizes.h"
#include "v1/plan.pb.h"

namespace meshloom::cli {

/// PlanOptions holds what the command line says. An option that is not given is nothing, false or
/// an empty text.
struct PlanOptions {
  std::string model;
  bool server_side = false;
  std::string mesh;
  std::string plan_file;
  std::string dtype;
  std::string activation_checkpoint;
  std::string optimizer;
  bool sequence_parallel = false;
  std::string fusion;
  std::string shard_policy;
  bool no_reshard = false;
  std::optional<std::int64_t> sequence, micro_batch, global_batch;
  std::string cluster;
  std::optional<double> flops, bandwidth, link_bandwidth;
  std::optional<std::uint64_t> memory;
};

void add_model_option(CLI::App& command, PlanOptions& options);
/// Adds --server-side, for what the client and the daemon can both compute.
void add_server_option(CLI::App& command, PlanOptions& options);
void add_mesh_options(CLI::App& command, PlanOptions& options);
void add_work_options(CLI::App& command, PlanOptions& options);
void add_machine_options(CLI::App& command, PlanOptions& options);

/// Reads a file for --plan. Throws CliError (kUsage) naming file and line of what is wrong. `lines`
/// gets the lines of its fields if given.
v1::PlanFile read_plan_file(const std::string& path, base::SourceLines* lines = nullptr);

/// Parses "dp=2,tp=2". Throws CliError (kUsage) naming what is wrong.
planner::MeshSizes parse_mesh(const std::string& text);

/// Reads the styles of a file as for --plan that says nothing else. Throws CliError (kUsage).
v1::ParallelPlan read_styles(const std::string& path);

/// Returns what the flags and the plan file ask for; flags win. The cluster is there in full.
/// Throws CliError (kUsage).
v1::PlanQuery make_query(const PlanOptions& options);

}  // namespace meshloom::cli
