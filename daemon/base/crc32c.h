// SPDX-License-Identifier: Apache-2.0
// CRC32C (Castagnoli, RFC 3720 appendix B.4): the checksum of chunks on the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace meshloom::base {

/// Returns the CRC-32C of all bytes. It uses the CPU's instruction if there is one.
std::uint32_t crc32c(std::span<const std::byte> bytes);

/// Returns the CRC-32C of all bytes, by tables and on any CPU.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes);

}  // namespace meshloom::base
