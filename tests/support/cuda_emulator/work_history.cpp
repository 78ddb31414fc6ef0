// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/work_history.h"

#include <algorithm>

#include "tests/support/cuda_emulator/source_place.h"

namespace meshloom::emulator {
namespace {

Epoch g_epoch = 0;

}  // namespace

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

std::string WorkName::text() const { return kernel == nullptr ? call : function_name(kernel); }

Epoch current_epoch() { return g_epoch; }
Epoch begin_epoch() { return ++g_epoch; }

void WorkHistory::begin(WorkName name, std::uint32_t stream, const Clock& clock,
                        Position position) {
  work_.push_back({begin_epoch(), stream, clock[stream], position, name});
  clock_ = clock;
}

bool WorkHistory::is_before_current(Epoch epoch) {
  const Work& work = work_of(epoch);
  return work.stream < clock_.size() && clock_[work.stream] >= work.number;
}

const WorkHistory::Work& WorkHistory::work_of(Epoch epoch) {
  const bool same = found_ < work_.size() && work_[found_].first <= epoch &&
                    (found_ + 1 == work_.size() || epoch < work_[found_ + 1].first);
  if (!same) {
    const auto after = std::upper_bound(work_.begin(), work_.end(), epoch,
                                        [](Epoch e, const Work& work) { return e < work.first; });
    found_ = static_cast<std::size_t>(after - work_.begin()) - 1;
  }
  return work_[found_];
}

}  // namespace meshloom::emulator
