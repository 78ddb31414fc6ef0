// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/retention.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {

using namespace std::chrono_literals;

Retention::Retention(JobStore& store, JobStore::Keep keep) : store_(store), keep_(keep) {
  if (keep_.most_ended > 0 || keep_.longest.count() > 0) thread_ = std::thread([this] { run(); });
}

Retention::~Retention() {
  store_.close();
  if (thread_.joinable()) thread_.join();
}

void Retention::run() {
  // An age of a few seconds is kept to the second, one of days to the minute.
  const auto period = keep_.longest.count() > 0
                          ? std::clamp<std::chrono::milliseconds>(keep_.longest, 1s, 60s)
                          : std::chrono::milliseconds(60s);
  std::int64_t seen = 0;
  do {
    for (const std::string& id : store_.expired(keep_, std::chrono::system_clock::now())) {
      try {
        store_.remove(id, {});
        spdlog::info("job {}: deleted, as retention says", id);
      } catch (const JobInUse&) {
        // It goes once the other one has ended.
      } catch (const Error& error) {
        spdlog::warn("job {}: not deleted: {}", id, error.what());
      }
    }
  } while (store_.wait_for_ends(&seen, period));
}

}  // namespace meshloom::control
