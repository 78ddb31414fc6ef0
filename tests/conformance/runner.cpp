// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/runner.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

constexpr std::chrono::seconds kCollectiveTimeout{30};

bool contains_ignoring_case(const std::string& text, const std::string& part) {
  const auto same = [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

bool is_not_built(const std::string& error) {
  return error.find("is not built yet") != std::string::npos;
}

std::filesystem::path tensor_path(const Case& c) {
  const std::string own = c.file.stem().string() + ".safetensors";
  ObjectReader reader(c.keys, "case");
  return c.file.parent_path() / reader.string_or("tensors", own);
}

/// What `body` throws as text; nothing where it does not.
template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
    return {};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.empty() ? "an error without text" : text;
  }
}

bool all_empty(const std::vector<std::string>& texts) {
  return std::all_of(texts.begin(), texts.end(),
                     [](const std::string& text) { return text.empty(); });
}

std::string errors_text(const std::vector<std::string>& errors) {
  const auto first =
      std::find_if(errors.begin(), errors.end(), [](const auto& e) { return !e.empty(); });
  const bool same =
      std::all_of(errors.begin(), errors.end(), [&](const auto& e) { return e == *first; });
  return same ? *first : fmt::format("rank {}: {}", first - errors.begin(), *first);
}

}  // namespace

Runner::Runner(comm::RankRuntime& runtime, std::span<const Kind> kinds,
               const RunnerOptions& options)
    : runtime_(runtime),
      kinds_(kinds),
      options_(options),
      stream_(kernels::backend_for(options.device).make_stream(options.device)) {}

const char* status_name(Status status) {
  switch (status) {
    case Status::kPass: return "PASS";
    case Status::kFail: return "FAIL";
    case Status::kSkip: return "SKIP";
  }
  return "?";
}

std::vector<std::string> Runner::exchange_errors(const std::string& mine) {
  if (runtime_.world_size() == 1) return {mine};
  return runtime_.bootstrap().exchange(mine);
}

std::vector<std::string> Runner::run_kind(const Kind& kind, const Case& c,
                                          ExecutionContext& context,
                                          std::optional<TensorFile>& file, CaseResults& results) {
  std::vector<std::string> errors = exchange_errors(error_of([&] {
    kind.needs_ranks ? file.emplace(tensor_path(c)) : file.emplace();
    kind.validate(c, *file);
  }));
  if (!all_empty(errors)) return errors;
  if (!world_) {
    comm::GroupOptions group{"world", kCollectiveTimeout, nullptr, options_.threads};
    if (options_.device != kCpuDevice)
      group.device = {options_.device, &kernels::backend_for(options_.device), stream_};
    world_ = runtime_.make_world_group(group);
  }
  return run_in_step([&] {
    RankContext rank{context, *world_, c.mesh, options_.fusion};
    kind.run(c, *file, rank, results);
  });
}

std::vector<std::string> Runner::run_in_step(const std::function<void()>& body) {
  comm::FailureDomain* const failures = world_->failures();
  if (failures == nullptr) return {error_of(body)};
  std::string error;
  try {
    body();
    // Whoever is done waits here for the others, or hears that one of them failed.
    world_->barrier()->wait_host();
    return std::vector<std::string>(static_cast<std::size_t>(world_->size()));
  } catch (const comm::PeerFailed& failed) {
    error = failed.what();
  } catch (...) {
    error = error_of([] { throw; });
    failures->raise(error);
  }
  return failures->recover(error).reports;
}

void Runner::run(const CaseEntry& entry, const std::function<void(const Outcome&)>& use) {
  Outcome outcome;
  outcome.name = entry.name;
  if (!entry.value) {
    outcome.message = entry.error;
    use(outcome);
    return;
  }
  const Case& c = *entry.value;
  const Kind& kind =
      *std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& k) { return k.name == c.kind; });
  if (kind.needs_ranks && c.mesh.size() != runtime_.world_size()) {
    outcome.status = Status::kSkip;
    outcome.message = fmt::format("needs {} rank{}", c.mesh.size(), c.mesh.size() == 1 ? "" : "s");
    use(outcome);
    return;
  }
  // Tensors of the results live in this context.
  ExecutionContext::Options context_options{options_.device, options_.threads, 0, nullptr};
  context_options.stream = stream_;
  ExecutionContext context(context_options);
  const auto start = std::chrono::steady_clock::now();
  std::optional<TensorFile> file;
  const std::vector<std::string> errors = run_kind(kind, c, context, file, outcome.results);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!all_empty(errors)) {
    judge_error(c, errors, outcome);
  } else {
    judge_results(c, *file, context, outcome);
  }
  use(outcome);
  outcome.results = {};
}

void Runner::judge_error(const Case& c, const std::vector<std::string>& errors,
                         Outcome& outcome) const {
  if (!c.expect.error_contains || is_not_built(errors_text(errors))) {
    outcome.message = errors_text(errors);
    return;
  }
  for (std::size_t r = 0; r < errors.size(); ++r) {
    if (contains_ignoring_case(errors[r], *c.expect.error_contains)) continue;
    outcome.message = errors[r].empty()
                          ? fmt::format("rank {} got no error, expected one with '{}'", r,
                                        *c.expect.error_contains)
                          : fmt::format("rank {}: error '{}', expected one with '{}'", r, errors[r],
                                        *c.expect.error_contains);
    return;
  }
  outcome.status = Status::kPass;
}

void Runner::judge_results(const Case& c, const TensorFile& file, ExecutionContext& context,
                           Outcome& outcome) {
  if (c.expect.error_contains) {
    outcome.message = fmt::format("no error, expected one with '{}'", *c.expect.error_contains);
    return;
  }
  for (const std::string& facts : exchange_errors(pack_facts(outcome.results)))
    outcome.ranks.push_back(unpack_facts(facts));
  std::string verdict;
  if (runtime_.rank() == 0) {
    verdict = error_of([&] {
      std::string difference = compare_tensors(c, file, context, outcome.results);
      const std::string facts = compare_facts(c.expect, outcome.results, outcome.ranks);
      if (!difference.empty() && !facts.empty()) difference += "; ";
      difference += facts;
      if (!difference.empty()) throw InvalidArgument(difference);
    });
  }
  if (runtime_.world_size() > 1) verdict = runtime_.bootstrap().broadcast(verdict, 0);
  outcome.status = verdict.empty() ? Status::kPass : Status::kFail;
  outcome.message = verdict;
}

}  // namespace meshloom::conformance
