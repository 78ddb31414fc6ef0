// SPDX-License-Identifier: Apache-2.0
// Resolved configs for another number of ranks.
#pragma once

#include <string>

#include "daemon/train/config/config_place.h"
#include "kernels/base/error.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// The error says that what a config asks for does not fit the ranks that there are.
class NeedsOtherRanks : public FailedPrecondition {
 public:
  NeedsOtherRanks(const std::string& message, Metadata metadata)
      : FailedPrecondition(message, "NEEDS_OTHER_RANKS", std::move(metadata)) {}
};

/// Makes a resolved config for another number of ranks: mesh, plan and micro batch are resolved
/// again from what the user gave; everything else stays, the dtype too. So does the device, unless
/// the user left it open and a rank does not have it. `resolved` itself if its mesh has world_size
/// ranks and these have its device. Throws NeedsOtherRanks and NeedsOtherDevices if what was given
/// does not fit the ranks.
v1::RunConfig refit_run_config(const v1::RunConfig& given, const v1::RunConfig& resolved,
                               const ConfigPlace& place);

}  // namespace meshloom::train
