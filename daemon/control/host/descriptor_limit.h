// SPDX-License-Identifier: Apache-2.0
// How many files and sockets this process may have open.
#pragma once

namespace meshloom::control {

/// Raises the soft limit to the hard one, 65,536 at most: some libraries visit every number below
/// it. Returns the limit.
int raise_descriptor_limit();

/// How many connections may be open at once beside what is open now, `promised` descriptors more
/// and 256 for files, 1,024 at most. Throws FailedPrecondition (DESCRIPTOR_LIMIT) if it is not
/// enough to serve.
int connection_capacity(int promised);

}  // namespace meshloom::control
