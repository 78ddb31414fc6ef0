// SPDX-License-Identifier: Apache-2.0
// plan attention: who computes what, when, of attention over a sequence that ranks share.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <numeric>

#include "daemon/cli/output/output.h"
#include "daemon/cli/plans/attention_schedule.h"
#include "daemon/cli/plans/plan_commands.h"
#include "daemon/command_line/number_checks.h"
#include "kernels/base/error.h"
#include "planner/attention/balance.h"
#include "planner/attention/head_lists.h"
#include "planner/attention/rotate.h"
#include "planner/attention/schedule.h"
#include "planner/attention/schedule_blocks.h"
#include "planner/attention/tile_area.h"
#include "planner/estimate/rotate_choice.h"
#include "planner/limits.h"

namespace meshloom::cli {
namespace {

using planner::IndexRanges;
using planner::RowMask;
using planner::SequencePart;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
constexpr int kMostRanks = 4096;
/// Tiles are looked at one by one.
constexpr std::int64_t kMostTiledTokens = 32768;

struct AttentionOptions {
  std::int64_t sequence = 0;
  int ranks = 0;
  bool full = false;
  std::int64_t window = -1;
  std::vector<std::int64_t> documents;
  std::string balancer = "auto";
  std::int64_t heads = 32, kv_heads = 0, head_dim = 128;
  std::string dtype = "bfloat16";
  int ranks_per_host = 0;
  std::string rotate = "auto";
  int ulysses_degree = 0;
  std::string svg;
};

RowMask row_of(AttentionOptions& options) {
  RowMask row{{.is_causal = !options.full, .window_left = options.window}, nullptr};
  if (options.full && options.window >= 0) row.mask.window_right = options.window;
  if (options.documents.empty()) return row;
  const std::int64_t sum =
      std::accumulate(options.documents.begin(), options.documents.end(), std::int64_t{0});
  if (options.sequence == 0) options.sequence = sum;
  if (sum != options.sequence)
    throw CliError(kUsage,
                   fmt::format("--documents have {} tokens, --seq is {}", sum, options.sequence));
  std::vector<std::int64_t> ids;
  for (std::size_t d = 0; d < options.documents.size(); ++d)
    ids.insert(ids.end(), static_cast<std::size_t>(options.documents[d]),
               static_cast<std::int64_t>(d));
  row.documents = std::make_shared<const planner::SequenceDocuments>(ids);
  return row;
}

void set_range(const planner::ShardRange& range, v1::PositionRange& message) {
  message.set_begin(range.begin);
  message.set_end(range.end);
}

template <typename Message>
void add_ranges(const IndexRanges& ranges, Message* messages) {
  for (const planner::ShardRange& range : ranges) set_range(range, *messages->Add());
}

/// What every way of moving keys costs, given what the ranks' queries see.
void add_ways(const AttentionOptions& options, const std::vector<SequencePart>& parts,
              const RowMask& row, v1::AttentionSchedule& schedule) {
  planner::AttentionSizes sizes{
      .tokens = options.sequence,
      .heads = options.heads,
      .kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads,
      .dims = options.head_dim,
      .dims_v = options.head_dim,
      .element_bytes = options.dtype == "float32" ? 4 : 2,
      .ranks = options.ranks,
      .balance = schedule.balance()};
  std::int64_t seen = 0, others = 0, pairs = 0;
  for (int r = 0; r < options.ranks; ++r) {
    const auto steps = planner::attention_schedule(r, parts, row);
    seen += planner::remote_keys(r, steps);
    others += options.sequence - total_size(parts[static_cast<std::size_t>(r)].keys);
    for (const planner::AttentionStep& step : steps) pairs += step.area;
  }
  sizes.pairs = static_cast<double>(pairs);
  sizes.seen_share = others == 0 ? 0.0 : static_cast<double>(seen) / static_cast<double>(others);
  const planner::SequencePlace place{
      1, options.ranks_per_host == 0 ? options.ranks : options.ranks_per_host};
  for (const planner::RotateCost& cost : planner::rotate_costs(sizes, place)) {
    v1::RotateCost& way = *schedule.add_ways();
    way.set_rotate(planner::to_string(cost.rotate));
    way.set_ulysses_degree(cost.ulysses_degree);
    way.set_attention_seconds(cost.attention_seconds);
    way.set_communication_seconds(cost.communication_seconds);
    way.set_bytes(cost.bytes);
  }
}

/// How many neighbours exchange heads.
int neighbours_of(const AttentionOptions& options) {
  const auto rotate = planner::find_rotate(options.rotate);
  if (!rotate)
    throw CliError(kUsage, fmt::format("--rotate is '{}', expected {}", options.rotate,
                                       planner::kRotateNames));
  if (*rotate != planner::Rotate::kUlysses) {
    if (options.ulysses_degree > 0)
      throw CliError(kUsage, fmt::format("--ulysses is {}, but --rotate is {}",
                                         options.ulysses_degree, options.rotate));
    return 1;
  }
  const int degree = options.ulysses_degree == 0 ? options.ranks : options.ulysses_degree;
  if (options.ranks % degree != 0)
    throw CliError(kUsage,
                   fmt::format("--ulysses {} does not divide --ranks {}", degree, options.ranks));
  return degree;
}

/// What neighbours hold together, each of whom attends to all of it with some of the heads.
std::vector<SequencePart> joined_neighbours(const std::vector<SequencePart>& parts,
                                            int neighbours) {
  std::vector<SequencePart> joined(parts.size() / static_cast<std::size_t>(neighbours));
  for (std::size_t r = 0; r < parts.size(); ++r)
    for (const planner::ShardRange& range : parts[r].keys) {
      SequencePart& part = joined[r / static_cast<std::size_t>(neighbours)];
      append_range(part.queries, range);
      append_range(part.keys, range);
    }
  return joined;
}

/// The steps of a rank; of neighbours that exchange heads each reads the keys of those at its
/// place, and `pairs` are those of its share of the heads.
void add_steps(const AttentionOptions& options, const std::vector<SequencePart>& members,
               int neighbours, const RowMask& row, v1::AttentionRank& rank) {
  const int member = rank.rank() / neighbours, place = rank.rank() % neighbours;
  const auto heads = static_cast<std::int64_t>(
      planner::query_heads_of(options.heads, neighbours)[static_cast<std::size_t>(place)].size());
  const auto steps = planner::attention_schedule(member, members, row);
  rank.set_remote_keys(planner::remote_keys(member, steps));
  for (const planner::AttentionStep& step : steps) {
    v1::AttentionStep& message = *rank.add_steps();
    message.set_source(step.source * neighbours + place);
    add_ranges(step.keys, message.mutable_keys());
    message.set_pairs(step.area * heads / options.heads);
    rank.set_pairs(rank.pairs() + message.pairs());
    for (const planner::AttentionBlock& block : planner::attention_blocks(
             row, members[static_cast<std::size_t>(member)].queries, step.keys)) {
      v1::AttentionBlock& part = *message.add_blocks();
      set_range(block.queries, *part.mutable_queries());
      set_range(block.keys, *part.mutable_keys());
      if (block.document >= 0) part.set_document(block.document);
      part.set_masked(planner::to_string(block.hidden));
      part.set_pairs(block.area);
    }
  }
}

v1::AttentionSchedule make_schedule(AttentionOptions& options) {
  const auto balancer = planner::find_load_balancer(options.balancer);
  if (!balancer)
    throw CliError(kUsage, fmt::format("--balancer is '{}', expected {}", options.balancer,
                                       planner::kLoadBalancerNames));
  const int neighbours = neighbours_of(options);
  if (options.kv_heads > 0 && options.heads % options.kv_heads != 0)
    throw CliError(kUsage, fmt::format("--kv-heads {} does not divide --heads {}", options.kv_heads,
                                       options.heads));
  const RowMask row = row_of(options);
  if (options.sequence < 1 || options.sequence > kMostTokens)
    throw CliError(kUsage,
                   fmt::format("--seq is {}, expected 1 to {}", options.sequence, kMostTokens));
  const planner::LoadBalancer taken =
      *balancer == planner::LoadBalancer::kAuto
          ? planner::chosen_balancer(options.sequence, options.ranks, row)
          : *balancer;
  const auto held = planner::balanced_parts(taken, options.sequence, options.ranks, row);
  std::vector<SequencePart> parts;
  for (const IndexRanges& part : held) parts.push_back({part, part});
  const std::vector<SequencePart> members = joined_neighbours(parts, neighbours);
  v1::AttentionSchedule schedule;
  schedule.set_sequence(options.sequence);
  schedule.set_ranks_count(options.ranks);
  schedule.set_load_balancer(planner::to_string(taken));
  schedule.set_causal(!options.full);
  schedule.set_rotate(options.rotate);
  if (neighbours > 1) schedule.set_ulysses_degree(neighbours);
  schedule.set_balance(planner::balance_of(held, row));
  if (options.sequence <= kMostTiledTokens)
    schedule.set_tile_balance(planner::tile_balance_of(held, row));
  for (int r = 0; r < options.ranks; ++r) {
    v1::AttentionRank& rank = *schedule.add_ranks();
    rank.set_rank(r);
    rank.set_tokens(total_size(held[static_cast<std::size_t>(r)]));
    add_ranges(held[static_cast<std::size_t>(r)], rank.mutable_positions());
    add_steps(options, members, neighbours, row, rank);
  }
  if (options.ranks > 1) add_ways(options, parts, row, schedule);
  return schedule;
}

ExitCode run(bool json, AttentionOptions& options) {
  v1::AttentionSchedule schedule;
  try {
    schedule = make_schedule(options);
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
  if (!options.svg.empty()) {
    std::ofstream file(options.svg);
    file << attention_schedule_svg(schedule);
    file.close();
    if (!file) throw CliError(kFailed, fmt::format("{} could not be written", options.svg));
  }
  if (json) {
    print_json(schedule);
  } else {
    print_attention_schedule(schedule);
    if (!options.svg.empty()) fmt::print("drawn in {}\n", options.svg);
  }
  return kOk;
}

}  // namespace

void add_plan_attention(CLI::App& plan, CommandContext& context) {
  auto* command = plan.add_subcommand(
      "attention", "Who attends to whose keys when, for a sequence that ranks of cp share");
  auto options = std::make_shared<AttentionOptions>();
  command->add_option("--seq", options->sequence, "Tokens; default: those of --documents")
      ->check(command_line::positive());
  command->add_option("--ranks", options->ranks, "Ranks of cp")
      ->required()
      ->check(CLI::Range(1, kMostRanks));
  command->add_flag("--full", options->full, "Every query sees all keys; default: causal");
  command->add_option("--window", options->window, "Keys that a query sees before itself")
      ->check(command_line::not_negative());
  command->add_option("--documents", options->documents, "Lengths of packed documents")
      ->delimiter(',')
      ->check(command_line::positive());
  command->add_option("--balancer", options->balancer, planner::kLoadBalancerNames)
      ->capture_default_str();
  command->add_option("--heads", options->heads, "Query heads, by which ways of moving keys cost")
      ->check(CLI::Range(std::int64_t{1}, planner::kMostHeads))
      ->capture_default_str();
  command->add_option("--kv-heads", options->kv_heads, "Key-value heads; default: --heads")
      ->check(CLI::Range(std::int64_t{1}, planner::kMostHeads));
  command->add_option("--head-dim", options->head_dim, "Channels of a head")
      ->check(CLI::Range(std::int64_t{1}, planner::kMostHeadDim))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "float32 or bfloat16")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  command->add_option("--ranks-per-host", options->ranks_per_host, "Default: one host")
      ->check(command_line::positive());
  command->add_option("--rotate", options->rotate, planner::kRotateNames)->capture_default_str();
  command
      ->add_option("--ulysses", options->ulysses_degree,
                   "With --rotate ulysses: neighbours that exchange heads; default: all ranks")
      ->check(command_line::positive());
  command->add_option("--svg", options->svg, "Draws it to this file, too");
  command->footer(
      "Example: meshloom plan attention --ranks 4 --documents 9000,3000,4000 --svg plan.svg");
  command->callback([&context, options] {
    context.action = [&context, options](Client&) { return run(context.json, *options); };
  });
}

}  // namespace meshloom::cli
