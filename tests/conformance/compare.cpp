// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

/// The tolerance of an expected tensor, or nothing where the name is not one.
const Tolerance* tolerance_of(const Case& c, const std::string& name) {
  if (name.starts_with("out.")) return &c.out;
  if (name.starts_with("grad.")) return &c.grad;
  if (name.starts_with("param_after.")) return &c.param_after;
  return nullptr;
}

std::string index_text(std::size_t flat, const Shape& shape) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.size()));
  auto rest = static_cast<std::int64_t>(flat);
  for (int d = shape.size() - 1; d >= 0; --d) {
    index[static_cast<std::size_t>(d)] = rest % shape[d];
    rest /= shape[d];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

std::string compare_values(const std::string& name, const Tensor& got, const Tensor& expected,
                           const Tolerance& tolerance) {
  if (got.shape() != expected.shape())
    return fmt::format("{}: shape {}, expected {}", name, to_string(got.shape()),
                       to_string(expected.shape()));
  const std::vector<double> a = got.to_vector(), b = expected.to_vector();
  std::size_t outside = 0, worst = 0;
  double largest = -1.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const double error = std::abs(a[i] - b[i]);
    if (error <= tolerance.absolute + tolerance.relative * std::abs(b[i])) continue;
    ++outside;
    // A NaN is worse than any number.
    const double size = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    if (size <= largest) continue;
    largest = size;
    worst = i;
  }
  if (outside == 0) return {};
  return fmt::format(
      "{}: largest error {:.3g} at {} (got {:.9g}, expected {:.9g}), {} of {} elements outside "
      "[{:g}, {:g}]",
      name, std::abs(a[worst] - b[worst]), index_text(worst, got.shape()), a[worst], b[worst],
      outside, a.size(), tolerance.absolute, tolerance.relative);
}

std::string counts_text(const CommCounts& counts) {
  std::vector<std::string> texts;
  for (const auto& [name, count] : counts) texts.push_back(fmt::format("{}: {}", name, count));
  return fmt::format("{{{}}}", fmt::join(texts, ", "));
}

CommCounts phase_counts(const RankFacts& facts, const std::string& phase) {
  const auto found = facts.comm.find(phase);
  return found == facts.comm.end() ? CommCounts{} : found->second;
}

std::string compare_comm(const Expect& expect, std::span<const RankFacts> ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [phase, expected] : expect.comm) {
      const CommCounts seen = phase_counts(ranks[r], phase);
      if (seen != expected)
        return fmt::format("{} on rank {}: collectives {}, expected {}", phase, r,
                           counts_text(seen), counts_text(expected));
    }
    for (const auto& [phase, most] : expect.comm_max) {
      std::int64_t seen = 0;
      for (const auto& [name, count] : phase_counts(ranks[r], phase)) seen += count;
      if (seen > most)
        return fmt::format("{} on rank {}: {} collectives, expected at most {}", phase, r, seen,
                           most);
    }
    for (const auto& [phase, most] : expect.bytes_max) {
      const auto found = ranks[r].bytes_sent.find(phase);
      const std::int64_t seen = found == ranks[r].bytes_sent.end() ? 0 : found->second;
      if (seen > most)
        return fmt::format("{} on rank {}: {} bytes sent, expected at most {}", phase, r, seen,
                           most);
    }
  }
  return {};
}

std::string compare_layouts(const Expect& expect, const CaseResults& results,
                            std::span<const RankFacts> ranks) {
  for (const auto& [output, expected] : expect.placements) {
    const auto found = results.placements.find(output);
    if (found == results.placements.end())
      return fmt::format("placements: there is no output '{}'", output);
    if (found->second != expected)
      return fmt::format("{}: placements {}, expected {}", output,
                         planner::to_string(found->second), planner::to_string(expected));
  }
  for (const auto& [output, expected] : expect.local_shapes) {
    if (expected.size() != ranks.size())
      return fmt::format("local_shapes.{}: {} shapes for {} ranks", output, expected.size(),
                         ranks.size());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const auto found = ranks[r].local_shapes.find(output);
      if (found == ranks[r].local_shapes.end())
        return fmt::format("local_shapes: there is no output '{}'", output);
      if (found->second != expected[r])
        return fmt::format("{} on rank {}: local shape {}, expected {}", output, r,
                           to_string(found->second), to_string(expected[r]));
    }
  }
  return {};
}

}  // namespace

std::string compare_tensors(const Case& c, const TensorFile& file, ExecutionContext& context,
                            const CaseResults& results) {
  std::vector<std::string> differences;
  for (const std::string& name : file.names()) {
    const Tolerance* tolerance = tolerance_of(c, name);
    if (tolerance == nullptr) continue;
    const auto found = results.tensors.find(name);
    if (found == results.tensors.end()) {
      differences.push_back(fmt::format("{}: expected, but there is no such result", name));
      continue;
    }
    const std::string difference =
        compare_values(name, found->second, file.load(context, name), *tolerance);
    if (!difference.empty()) differences.push_back(difference);
  }
  // The first few say what is wrong; a model can have hundreds.
  constexpr std::size_t kMost = 4;
  const std::size_t left = differences.size() > kMost ? differences.size() - kMost : 0;
  differences.resize(std::min(differences.size(), kMost));
  std::string text = fmt::format("{}", fmt::join(differences, "; "));
  if (left > 0) text += fmt::format("; and {} more", left);
  return text;
}

std::string compare_facts(const Expect& expect, const CaseResults& results,
                          std::span<const RankFacts> ranks) {
  std::string difference = compare_comm(expect, ranks);
  if (difference.empty()) difference = compare_layouts(expect, results, ranks);
  if (difference.empty() && expect.cost && results.cost != expect.cost)
    difference = results.cost ? fmt::format("cost {:g}, expected {:g}", *results.cost, *expect.cost)
                              : "a cost is expected, but there is none";
  return difference;
}

std::string pack_facts(const CaseResults& results) {
  Json shapes = Json::object();
  for (const auto& [name, shape] : results.local_shapes)
    shapes[name] = std::vector<std::int64_t>(shape.begin(), shape.end());
  return Json{{"shapes", shapes}, {"comm", results.comm}, {"bytes", results.bytes_sent}}.dump();
}

RankFacts unpack_facts(const std::string& bytes) {
  const Json json = Json::parse(bytes);
  RankFacts facts;
  for (const auto& [name, sizes] : json.at("shapes").items()) {
    const auto values = sizes.get<std::vector<std::int64_t>>();
    facts.local_shapes[name] = Shape(std::span<const std::int64_t>(values));
  }
  for (const auto& [phase, counts] : json.at("comm").items())
    facts.comm[phase] = counts.get<CommCounts>();
  for (const auto& [phase, sent] : json.at("bytes").items())
    facts.bytes_sent[phase] = sent.get<std::int64_t>();
  return facts;
}

}  // namespace meshloom::conformance
