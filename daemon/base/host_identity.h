// SPDX-License-Identifier: Apache-2.0
// The name of this host, and the identity of its kernel's boot, which is another one after each.
#pragma once

#include <string>

namespace meshloom::base {

/// Returns the name that gethostname(2) gives; "unknown" where it gives none.
std::string host_name();

/// Returns a text that another boot of a kernel never has; "unknown" where /proc does not say it.
std::string boot_id();

}  // namespace meshloom::base
