// SPDX-License-Identifier: Apache-2.0
// What every command of the ranks has in common.
#pragma once

#include <string>

#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// "forward_backward", ...; "nothing" for a command without a verb.
std::string verb_name(const v1::RankCommand& command);
/// The run that the verb names; empty: none.
std::string run_of(const v1::RankCommand& command);

}  // namespace meshloom::control
