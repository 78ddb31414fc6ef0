// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_parts.h"

#include <chrono>

#include "daemon/control/stores/names.h"

namespace meshloom::control {
namespace {

std::chrono::seconds gap_timeout_of(const v1::RunSpec& spec) {
  return std::chrono::seconds(spec.has_gap_timeout_seconds() ? spec.gap_timeout_seconds() : 60);
}

std::chrono::seconds lease_of(const v1::RunSpec& spec) {
  return std::chrono::seconds(spec.has_lease_seconds() ? spec.lease_seconds() : 600);
}

/// By which memory is counted: of the admins, who are one owner, each client by itself.
std::string holder_of(const v1::Run& run) {
  return run.owner().empty() ? run.client() : "user:" + run.owner();
}

}  // namespace

RunParts::RunParts(RunContext& shared, const v1::Run& run)
    : context(shared),
      id(parse_run_name(run.name())),
      client(run.client()),
      ranks(shared.executor, id),
      states(shared.store, shared.state, shared.clock, id),
      weights({shared.budget, shared.store, shared.state, *shared.uses, ranks}, id, run.weights()),
      queue({shared.operations, shared.waiting, shared.uploads, states, shared.most_upload_bytes},
            {id, holder_of(run)}, run.next_seq(), gap_timeout_of(run.spec())),
      samples({shared.operations, shared.waiting, shared.scheduler, shared.tokenization,
               shared.budget, weights},
              id, holder_of(run)),
      lease(std::make_shared<RunLease>(lease_of(run.spec()))) {}

}  // namespace meshloom::control
