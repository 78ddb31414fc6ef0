// SPDX-License-Identifier: Apache-2.0
// What an example prints, and whether all that it checked holds on all ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "daemon/comm/mesh/mpi_runtime.h"
#include "kernels/base/error.h"
#include "kernels/cpu/cpu_device.h"

namespace meshloom::examples {

/// One per rank; the same checks are made in the same order on all. Rank 0 prints.
class Report {
 public:
  explicit Report(comm::RankRuntime& runtime) : runtime_(runtime) {}

  /// A line of rank 0.
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    if (runtime_.rank() == 0) fmt::print("{}\n", fmt::format(format, std::forward<Args>(args)...));
  }

  /// Every rank calls it; holds where it holds on all of them.
  void check(const std::string& what, bool holds) {
    const std::vector<std::string> all = runtime_.bootstrap().exchange(holds ? "yes" : "no");
    bool on_all = true;
    for (const std::string& answer : all) on_all = on_all && answer == "yes";
    say("  {} {}", on_all ? "ok    " : "FAILED", what);
    passed_ = passed_ && on_all;
  }

  /// Values of this rank against those of one rank that computed everything.
  void check_near(const std::string& what, const std::vector<double>& mine,
                  const std::vector<double>& wanted, double tolerance) {
    double difference = mine.size() == wanted.size() ? 0.0 : INFINITY;
    for (std::size_t i = 0; i < mine.size() && i < wanted.size(); ++i)
      difference = std::max(difference, std::abs(mine[i] - wanted[i]));
    check(fmt::format("{} (rank 0 differs by {:.1e})", what, difference), difference <= tolerance);
  }

  bool passed() const { return passed_; }

 private:
  comm::RankRuntime& runtime_;
  bool passed_ = true;
};

/// The main of an example: `body(runtime, report)` on every rank that mpirun started. Exit code 0
/// if all that was checked holds.
template <typename Body>
int run_ranks(const Body& body) try {
  kernels::cpu::add_cpu_device();
  comm::MpiRuntime runtime;
  Report report(runtime);
  body(static_cast<comm::RankRuntime&>(runtime), report);
  report.say("{}", report.passed() ? "PASSED" : "FAILED");
  runtime.bootstrap().barrier();  // nobody ends while a peer may still need it
  runtime.finish();
  return report.passed() ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return EXIT_FAILURE;
}

}  // namespace meshloom::examples
