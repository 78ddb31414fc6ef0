// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/stop_points.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "daemon/comm/agreement/rank_values.h"
#include "daemon/comm/agreement/status_agreement.h"
#include "kernels/base/error.h"

namespace meshloom::train {

void StopPoints::before(std::size_t micro_batch) {
  if (micro_batch < next_) return;
  std::array<double, 2> told = {0.0, 0.0};
  if (world_.rank() == 0)
    told = {stopped_ && stopped_(false) ? 1.0 : 0.0, next_interval(micro_batch)};
  all_reduce(world_, told, comm::ReduceOp::kSum);
  if (told[0] > 0) run_agreed(world_, [&] { leave(micro_batch); });
  next_ = micro_batch + static_cast<std::size_t>(told[1]);
}

double StopPoints::next_interval(std::size_t micro_batch) {
  constexpr std::chrono::duration<double> kBetween{0.25};
  const auto now = Clock::now();
  const std::chrono::duration<double> each =
      (now - std::exchange(met_at_, now)) / static_cast<double>(micro_batch - met_);
  const double before = static_cast<double>(micro_batch - std::exchange(met_, micro_batch));
  const double wanted = kBetween / std::max(each, std::chrono::duration<double>(1e-6));
  // Twice as many as before at most: the first may have been short ones.
  return std::clamp(std::floor(wanted), 1.0, 2 * before);
}

void StopPoints::check_last() const {
  if (stopped_ && stopped_(true)) leave(micro_batches_);
}

void StopPoints::leave(std::size_t computed) const {
  throw Cancelled(
      fmt::format("it was stopped behind {} of {} micro batches", computed, micro_batches_),
      kVerbStopped);
}

}  // namespace meshloom::train
