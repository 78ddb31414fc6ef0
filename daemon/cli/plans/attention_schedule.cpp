// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/plans/attention_schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/cli/output/output.h"

namespace meshloom::cli {
namespace {

using Ranges = google::protobuf::RepeatedPtrField<v1::PositionRange>;

std::string range_text(const v1::PositionRange& range) {
  return fmt::format("[{}, {})", range.begin(), range.end());
}

/// The first ranges, and how many more there are.
std::string ranges_text(const Ranges& ranges, int most) {
  std::string text;
  for (int i = 0; i < std::min(most, ranges.size()); ++i)
    text += (i == 0 ? "" : " ") + range_text(ranges[i]);
  if (ranges.size() > most) text += fmt::format(" and {} more", ranges.size() - most);
  return text;
}

std::int64_t keys_of(const v1::AttentionStep& step) {
  std::int64_t keys = 0;
  for (const v1::PositionRange& range : step.keys()) keys += range.end() - range.begin();
  return keys;
}

/// Which part of a step is masked, and for which queries and documents: the first blocks, and how
/// many more there are.
std::string masked_text(const v1::AttentionStep& step, int most) {
  if (step.pairs() == 0) return "nothing";
  std::string text;
  for (int i = 0; i < std::min(most, step.blocks_size()); ++i) {
    const v1::AttentionBlock& block = step.blocks(i);
    text += fmt::format("{}{} x {}", i == 0 ? "" : "; ", range_text(block.queries()),
                        range_text(block.keys()));
    if (block.has_document()) text += fmt::format(" of document {}", block.document());
    text += ": " + block.masked();
  }
  return step.blocks_size() > most ? text + fmt::format("; and {} more", step.blocks_size() - most)
                                   : text;
}

std::string way_text(const v1::RotateCost& way) {
  return way.ulysses_degree() == 0 ? way.rotate()
                                   : fmt::format("{} {}", way.rotate(), way.ulysses_degree());
}

constexpr int kLabel = 90, kWidth = 900, kRow = 34, kTop = 40;

std::string step_box(const v1::AttentionStep& step, const std::string& masked, int ranks, double x,
                     double width, int y) {
  // A colour for each source, the same in every row.
  const std::string colour =
      fmt::format("hsl({}, 60%, 72%)", step.source() * 360 / std::max(1, ranks));
  std::string box = fmt::format(
      R"(<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" fill="{}" stroke="#444"><title>keys of rank {}: {} ({} pairs: {})</title></rect>)",
      x, y, width, kRow - 8, colour, step.source(), ranges_text(step.keys(), 8), step.pairs(),
      masked);
  if (width > 24)
    box += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>)", x + width / 2,
                       y + kRow - 16, step.source());
  return box + "\n";
}

}  // namespace

void print_attention_schedule(const v1::AttentionSchedule& schedule) {
  const std::string tiles = schedule.tile_balance() > 0.0
                                ? fmt::format(", {:.4f} in tiles", schedule.tile_balance())
                                : std::string();
  fmt::print("{} tokens over {} ranks, {}, load balancer {}: balance {:.4f}{}\n",
             schedule.sequence(), schedule.ranks_count(),
             schedule.causal() ? "causal" : "not causal", schedule.load_balancer(),
             schedule.balance(), tiles);
  std::vector<std::vector<std::string>> rows{{"rank", "tokens", "pairs", "step", "keys of", "keys",
                                              "pairs", "positions", "blocks: queries x keys"}};
  for (const v1::AttentionRank& rank : schedule.ranks()) {
    std::vector<std::string> first{std::to_string(rank.rank()), std::to_string(rank.tokens()),
                                   std::to_string(rank.pairs())};
    for (int s = 0; s < rank.steps_size(); ++s) {
      const v1::AttentionStep& step = rank.steps(s);
      rows.push_back({first[0], first[1], first[2], std::to_string(s),
                      std::to_string(step.source()), std::to_string(keys_of(step)),
                      std::to_string(step.pairs()), ranges_text(step.keys(), 4),
                      masked_text(step, 3)});
      first = {"", "", ""};
    }
  }
  print_table(rows);
  if (!schedule.ways().empty()) {
    fmt::print("\nrotate auto is {}; a call costs a rank, forward and backward, by fixed rates\n",
               way_text(schedule.ways(0)));
    rows = {{"rotate", "bytes", "attention", "communication"}};
    for (const v1::RotateCost& way : schedule.ways())
      rows.push_back({way_text(way), bytes_text(way.bytes()), seconds_text(way.attention_seconds()),
                      seconds_text(way.communication_seconds())});
    print_table(rows);
  }
  if (schedule.rotate() != "auto")
    fmt::print("the steps are those of rotate {}\n", schedule.rotate());
}

std::string attention_schedule_svg(const v1::AttentionSchedule& schedule) {
  const int ranks = schedule.ranks_count();
  std::int64_t most = 1;
  for (const v1::AttentionRank& rank : schedule.ranks()) most = std::max(most, rank.pairs());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"12\">\n<text x=\"8\" y=\"20\">{} tokens over {} ranks, {}: who attends to whose "
      "keys, "
      "in order; widths are work; balance {:.4f}</text>\n",
      kLabel + kWidth + 16, kTop + kRow * ranks + 8, schedule.sequence(), ranks,
      schedule.load_balancer(), schedule.balance());
  for (const v1::AttentionRank& rank : schedule.ranks()) {
    const int y = kTop + kRow * rank.rank();
    svg += fmt::format("<text x=\"8\" y=\"{}\">rank {}</text>\n", y + kRow - 16, rank.rank());
    double x = kLabel;
    for (int s = 0; s < rank.steps_size(); ++s) {
      const v1::AttentionStep& step = rank.steps(s);
      const double width = kWidth * static_cast<double>(step.pairs()) / static_cast<double>(most);
      if (step.pairs() > 0) svg += step_box(step, masked_text(step, 12), ranks, x, width, y);
      x += width;
    }
  }
  return svg + "</svg>\n";
}

}  // namespace meshloom::cli
