// SPDX-License-Identifier: Apache-2.0
// Whether a limit on address space leaves room for a daemon.
#pragma once

#include <cstdint>

namespace meshloom::control {

/// What a daemon that does nothing reserves, which is much more than it uses: stacks of threads,
/// and a part of memory for each thread that allocates.
inline constexpr std::uint64_t kLeastAddressSpace = std::uint64_t{2} << 30;

/// Throws ResourceExhausted (ADDRESS_SPACE_LIMIT) if fewer bytes are allowed (ulimit -v). With
/// less, threads of libraries do not start and others wait for them without end, so that it is to
/// be asked before any of them is used.
void check_address_space(std::uint64_t allowed);
/// The same of this process's limit.
void check_address_space();

}  // namespace meshloom::control
