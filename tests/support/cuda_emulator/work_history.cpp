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

const WorkHistory::Work& WorkHistory::find(Epoch epoch) {
  const auto after = std::upper_bound(work_.begin(), work_.end(), epoch,
                                      [](Epoch e, const Work& work) { return e < work.first; });
  const auto index = static_cast<std::uint32_t>(after - work_.begin() - 1);
  found_[epoch % kKnown] = {epoch, index};
  return work_[index];
}

}  // namespace meshloom::emulator
