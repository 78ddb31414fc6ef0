// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/describe_parameters.h"

#include <fmt/ranges.h>

#include <charconv>
#include <map>

#include "daemon/parallel/fully_shard/shard_plan.h"

namespace meshloom::train {
namespace {

const std::string& name_of(const planner::DTensorSpec& spec, int mesh_dim) {
  return spec.mesh().dims()[static_cast<std::size_t>(mesh_dim)].name;
}

/// What a sharding keeps together, if not single rows or columns.
std::string units_text(const planner::DimOrderPtr& order) {
  if (!order) return "";
  if (order->groups() == 0) return " in an order of its own";
  if (order->groups() > 1) return fmt::format(" by heads, {} x {}", order->groups(), order->unit());
  return fmt::format(" by heads of {}", order->unit());
}

std::string layout_text(const planner::DTensorSpec& spec, const std::string& reason) {
  std::vector<std::string> parts;
  for (int d = 0; d < spec.mesh().ndim(); ++d) {
    if (spec.mesh().dims()[static_cast<std::size_t>(d)].size == 1) continue;
    // "fsdp", or "fsdp_cp" where both are one dim.
    const bool fsdp = name_of(spec, d).starts_with("fsdp") && !reason.empty();
    if (!spec.placement(d).is_replicate())
      parts.push_back(fmt::format("{} {}{}{}", name_of(spec, d), to_string(spec.placement(d)),
                                  units_text(spec.dim_order(d)),
                                  fsdp ? fmt::format(" ({})", reason) : std::string()));
    else if (fsdp)
      parts.push_back(fmt::format("{} whole ({})", name_of(spec, d), reason));
  }
  for (const planner::DimShardOrder& sharding : spec.shard_order()) {
    std::vector<std::string> names;
    for (const int d : sharding.mesh_dims)
      if (spec.mesh().dims()[static_cast<std::size_t>(d)].size > 1)
        names.push_back(name_of(spec, d));
    if (names.size() > 1) parts.push_back(fmt::format("{}", fmt::join(names, " before ")));
  }
  return parts.empty() ? "whole on every rank" : fmt::format("{}", fmt::join(parts, ", "));
}

/// A line, for the blocks that share it.
struct Line {
  std::string before, after;  ///< of the block's number; `after` alone if there is no block
  std::string layout;
  std::vector<int> blocks;
};

/// {0, 1, 2, 5} -> "[0-2,5]", {4} -> "4".
std::string blocks_text(const std::vector<int>& blocks) {
  if (blocks.size() == 1) return std::to_string(blocks[0]);
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < blocks.size();) {
    std::size_t end = i + 1;
    while (end < blocks.size() && blocks[end] == blocks[end - 1] + 1) ++end;
    runs.push_back(end == i + 1 ? std::to_string(blocks[i])
                                : fmt::format("{}-{}", blocks[i], blocks[end - 1]));
    i = end;
  }
  return fmt::format("[{}]", fmt::join(runs, ","));
}

}  // namespace

std::string describe_parameters(const std::vector<DescribedParameter>& parameters) {
  std::vector<Line> lines;
  std::map<std::string, std::size_t> known;
  for (const DescribedParameter& p : parameters) {
    const std::string_view unit = parallel::unit_of(p.name);
    const std::size_t dot = unit.empty() ? 0 : unit.rfind('.') + 1;  // 0 if the number leads
    Line line;
    line.before = unit.substr(0, dot);
    line.after = p.name.substr(unit.size());
    line.layout =
        fmt::format("{}  {}", to_string(p.spec->shape()), layout_text(*p.spec, p.shard_reason));
    const auto [found, fresh] = known.try_emplace(
        fmt::format("{}\n{}\n{}\n{}", unit.empty(), line.before, line.after, line.layout),
        lines.size());
    if (fresh) lines.push_back(std::move(line));
    if (unit.empty()) continue;
    int block = 0;
    std::from_chars(unit.data() + dot, unit.data() + unit.size(), block);
    lines[found->second].blocks.push_back(block);
  }
  std::string text;
  for (const Line& line : lines)
    text += fmt::format("{}{}{} {}\n", line.before,
                        line.blocks.empty() ? std::string() : blocks_text(line.blocks), line.after,
                        line.layout);
  return text;
}

}  // namespace meshloom::train
