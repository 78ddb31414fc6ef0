// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/verb_sequence.h"

namespace meshloom::control {

VerbSequence::VerbPtr VerbSequence::take() {
  if (!ready()) return nullptr;
  VerbPtr verb = std::move(waiting_.begin()->second);
  waiting_.erase(waiting_.begin());
  ++next_;
  return verb;
}

std::optional<std::int64_t> VerbSequence::missing() const {
  if (waiting_.empty() || ready()) return std::nullopt;
  return next_;
}

std::optional<VerbSequence::Clock::time_point> VerbSequence::gap_ends() const {
  if (!missing()) return std::nullopt;
  return last_arrival_ + gap_timeout_;
}

std::vector<VerbSequence::VerbPtr> VerbSequence::give_up_gap() {
  std::vector<VerbPtr> verbs;
  next_ = next_new();
  for (auto& [seq, verb] : waiting_) verbs.push_back(std::move(verb));
  waiting_.clear();
  return verbs;
}

}  // namespace meshloom::control
