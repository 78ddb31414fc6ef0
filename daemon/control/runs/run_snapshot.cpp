// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_snapshot.h"

#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {

RunSnapshot::RunSnapshot(const RunClient& ranks, std::string key, SnapshotMemory memory)
    : ranks_(ranks),
      key_(std::move(key)),
      memory_(std::move(memory)),
      kept_(ranks_.keep_snapshot(key_)) {}

RunSnapshot::~RunSnapshot() {
  try {
    ranks_.drop_snapshot(key_);
  } catch (const Error& error) {
    spdlog::debug("weights {} are not dropped: {}", key_, error.what());  // they go with the run
  }
}

}  // namespace meshloom::control
