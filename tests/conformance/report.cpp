// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/report.h"

#include <cstdio>
#include <fstream>

#include "daemon/tensor/ops/shape.h"
#include "daemon/train/files/safetensors.h"
#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

void write_json(const std::filesystem::path& file, const Json& json) {
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  std::ofstream stream(file);
  stream << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  stream.flush();
  if (!stream) throw IoError(fmt::format("{} cannot be written", file.string()));
}

/// The busiest rank's bytes, by phase.
Json most_bytes(const std::vector<RankFacts>& ranks) {
  std::map<std::string, std::int64_t> most;
  for (const RankFacts& facts : ranks)
    for (const auto& [phase, sent] : facts.bytes_sent) most[phase] = std::max(most[phase], sent);
  return most;
}

Json describe(const Outcome& outcome) {
  Json json{{"name", outcome.name},
            {"status", status_name(outcome.status)},
            {"message", outcome.message},
            {"seconds", outcome.seconds}};
  if (outcome.ranks.empty()) return json;
  json["comm"] = outcome.ranks[0].comm;
  json["bytes"] = most_bytes(outcome.ranks);
  Json placements = Json::object();
  for (const auto& [name, list] : outcome.results.placements) {
    placements[name] = Json::array();
    for (const planner::Placement& placement : list)
      placements[name].push_back(to_string(placement));
  }
  json["placements"] = placements;
  json["plan"] = outcome.results.plan;
  if (outcome.results.cost) json["cost"] = *outcome.results.cost;
  return json;
}

}  // namespace

void Report::add(const Outcome& outcome) {
  const char* separator = outcome.message.empty() ? "" : ": ";
  // A message may quote what was read; one line per case holds all the same.
  std::string message = outcome.message;
  for (char& character : message)
    if (character == '\n' || character == '\r') character = ' ';
  std::printf("%s %s%s%s\n", status_name(outcome.status), outcome.name.c_str(), separator,
              message.c_str());
  std::fflush(stdout);
  if (outcome.status == Status::kPass) ++passed_;
  if (outcome.status == Status::kFail) ++failed_;
  if (outcome.status == Status::kSkip) ++skipped_;
  cases_.push_back({{"name", outcome.name},
                    {"status", status_name(outcome.status)},
                    {"message", outcome.message},
                    {"seconds", outcome.seconds}});
  if (out_ && outcome.status != Status::kSkip) write_outputs(outcome);
}

void Report::write_outputs(const Outcome& outcome) const {
  const std::filesystem::path base = *out_ / outcome.name;
  write_json(base.string() + ".out.json", describe(outcome));
  std::vector<Tensor> kept;
  std::vector<train::NamedView> views;
  for (const auto& [name, tensor] : outcome.results.tensors) {
    kept.push_back(ops::contiguous(tensor.detach()));
    views.push_back({name, kept.back().view()});
  }
  train::write_safetensors(base.string() + ".out.safetensors", views);
}

void Report::print_totals() const {
  std::printf("%d passed, %d failed, %d skipped\n", passed_, failed_, skipped_);
  std::fflush(stdout);
}

void Report::write(const std::filesystem::path& file) const {
  write_json(file,
             {{"passed", passed_}, {"failed", failed_}, {"skipped", skipped_}, {"cases", cases_}});
}

}  // namespace meshloom::conformance
