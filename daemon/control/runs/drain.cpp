// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/drain.h"

#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {

Drain::Drain(DrainStore& store, RanksTurn& turn, JobStore& jobs, RunManager& runs)
    : store_(store), turn_(turn), jobs_(jobs), runs_(runs) {
  if (!store_.get().drained()) {
    jobs_.end_drain();  // a daemon may have ended in the middle of that
    return;
  }
  turn_.set_open(false);
  spdlog::warn("the daemon is drained ({}): nothing begins before `meshloom undrain`",
               store_.get().reason());
}

void Drain::begin(const std::string& reason) {
  const std::lock_guard one(changing_);
  v1::StoredDrain drain;
  drain.set_drained(true);
  drain.set_reason(reason);
  store_.put(drain);
  turn_.set_open(false);
  const std::string holder = turn_.holder();
  if (holder.starts_with("runs/")) runs_.drain();
  if (!holder.starts_with("jobs/")) return;
  try {
    jobs_.pause(parse_job_name(holder), v1::PAUSE_CODE_DRAIN, {});
  } catch (const FailedPrecondition& error) {
    spdlog::info("drain: {}", error.what());  // it ends by itself
  } catch (const NotFound& error) {
    spdlog::info("drain: {}", error.what());  // it has ended, and was deleted
  }
}

std::vector<std::string> Drain::end() {
  const std::lock_guard one(changing_);
  store_.put({});
  // They are the first of the jobs before anybody gets the ranks.
  std::vector<std::string> resumed = jobs_.end_drain();
  turn_.set_open(true);
  return resumed;
}

Drain::State Drain::state() const {
  const v1::StoredDrain drain = store_.get();
  State state{v1::DRAIN_STATE_ACTIVE, drain.reason(), turn_.holder()};
  if (drain.drained())
    state.state = state.has_ranks.empty() ? v1::DRAIN_STATE_DRAINED : v1::DRAIN_STATE_DRAINING;
  return state;
}

}  // namespace meshloom::control
