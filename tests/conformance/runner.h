// SPDX-License-Identifier: Apache-2.0
// Runner: runs cases on all ranks, which stay in step whatever a case does.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/comm/mesh/rank_runtime.h"
#include "tests/conformance/case_reader.h"
#include "tests/conformance/compare.h"

namespace meshloom::conformance {

enum class Status { kPass, kFail, kSkip };

const char* status_name(Status status);  ///< "PASS", "FAIL", "SKIP"

struct Outcome {
  std::string name;
  Status status = Status::kFail;
  std::string message;
  double seconds = 0.0;
  CaseResults results;           ///< tensors on rank 0
  std::vector<RankFacts> ranks;  ///< on rank 0; empty where the case did not get to its end
};

struct RunnerOptions {
  Device device;
  Threads threads;
  planner::FusionMode fusion = planner::FusionMode::kAuto;  ///< as in RankContext
};

/// Every rank makes one and runs the same cases in the same order.
class Runner {
 public:
  Runner(comm::RankRuntime& runtime, std::span<const Kind> kinds, const RunnerOptions& options);

  /// Never throws for what a case does. Status and message are rank 0's on every rank.
  /// Results are for `use`, which is called before their memory goes.
  void run(const CaseEntry& entry, const std::function<void(const Outcome&)>& use);

 private:
  /// Everyone's texts, in rank order; each rank brings its own, empty where it is well.
  std::vector<std::string> exchange_errors(const std::string& mine);
  /// Opens the tensor file, validates and runs the case. Returns every rank's error.
  std::vector<std::string> run_kind(const Kind& kind, const Case& c, ExecutionContext& context,
                                    std::optional<TensorFile>& file, CaseResults& results);
  /// Returns every rank's error. One that fails alone ends what the others wait for: theirs hold
  /// its text. Groups that `body` made are of no use afterwards, the world is.
  std::vector<std::string> run_in_step(const std::function<void()>& body);
  void judge_error(const Case& c, const std::vector<std::string>& errors, Outcome& outcome) const;
  void judge_results(const Case& c, const TensorFile& file, ExecutionContext& context,
                     Outcome& outcome);

  comm::RankRuntime& runtime_;
  std::span<const Kind> kinds_;
  RunnerOptions options_;
  std::shared_ptr<OwnedStream> stream_;  ///< of the contexts of all cases, and of the world
  std::unique_ptr<comm::ProcessGroup> world_;
};

}  // namespace meshloom::conformance
