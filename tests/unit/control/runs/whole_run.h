// SPDX-License-Identifier: Apache-2.0
// A run with all its parts and its lifecycle, without a daemon.
#pragma once

#include <cstdint>

#include "daemon/control/runs/run_lifecycle.h"
#include "tests/unit/control/runs/stored_runs.h"

namespace meshloom::control {

class NoWaits final : public RanksWaits {
 public:
  v1::RanksWait wait_of(const std::string&) const override { return {}; }
};

/// The run of StoredRunTest, which nobody drives yet.
class WholeRunTest : public StoredRunTest {
 protected:
  v1::Run run() { return life_.lock().run(); }
  v1::Run stored() { return store_.all().at("r").run(); }
  template <typename Request>
  v1::Operation submit(Request request, std::int64_t seq) {
    request.mutable_id()->set_epoch(1);
    request.mutable_id()->set_seq(seq);
    return parts_.queue.submit(VerbQueue::Arrival(request));
  }
  v1::Operation submit_step(std::int64_t seq) { return submit(v1::OptimStepRequest(), seq); }

  RanksTurn turn_;
  Operations operations_{1 << 20};
  SampleScheduler scheduler_{executor_, 0.5, training_};
  TransientUploads uploads_{folder_ / "uploads"};
  NoWaits waits_;
  const SetClock clock_;
  RunContext context_{{.executor = executor_,
                       .turn = turn_,
                       .store = store_,
                       .scheduler = scheduler_,
                       .resolver = admission_,
                       .folders = admission_,
                       .tokenization = admission_,
                       .budget = admission_,
                       .state = dir_,
                       .data_dir = folder_ / "data",
                       .uploads = uploads_,
                       .waits = waits_,
                       .clock = clock_,
                       .most_upload_bytes = 1 << 20},
                      operations_,
                      WaitingMemory({})};
  RunParts parts_{context_, record().run()};
  RunLifecycle life_{parts_, record()};
};

}  // namespace meshloom::control
