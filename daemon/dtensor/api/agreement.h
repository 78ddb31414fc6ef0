// SPDX-License-Identifier: Apache-2.0
// Finds out that ranks were given different things before they start to wait for each other.
#pragma once

#include <string>

#include "daemon/comm/process_group.h"

namespace meshloom::dtensor {

/// What one rank was given, in words.
struct Given {
  std::string text;   ///< compared as a whole
  std::string error;  ///< what is wrong with it; empty if nothing is
};

/// Called by all ranks of the group: one all_gather of 512 bytes each. Throws the same
/// InvalidArgument on all of them, naming `call` and the ranks, if one has an error or their
/// texts differ (of which the first 488 characters are shown).
void check_agreement(const char* call, const Given& mine, comm::ProcessGroup& group);

}  // namespace meshloom::dtensor
