// SPDX-License-Identifier: Apache-2.0
// Finds out that ranks were given different things before they start to wait for each other.
#pragma once

#include <string>

#include "daemon/comm/process_group.h"

namespace meshloom::comm {

/// A rank was given this, in words.
struct Given {
  std::string text;   ///< compared as a whole
  std::string error;  ///< what is wrong with it; empty if nothing is
};

/// Called by all ranks of the group: one all_gather of 512 bytes each. Throws the same
/// InvalidArgument on all of them, naming `call` and the ranks, if one has an error or their
/// texts differ (of which the first 488 characters are shown).
void check_agreement(const char* call, const Given& mine, ProcessGroup& group);

/// Called by all ranks of the group with what each takes something to be, as text (a resolved
/// config, a description of the sharding). Throws FailedPrecondition (PLAN_MISMATCH) on every rank
/// naming the ranks whose text differs from rank 0's; `what` begins the message.
void check_same_text(ProcessGroup& group, const std::string& what, const std::string& text);

}  // namespace meshloom::comm
