// SPDX-License-Identifier: Apache-2.0
// CRC32C (Castagnoli, RFC 3720 appendix B.4): the checksum of chunks on the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace meshloom::base {

/// Of all bytes. With the CPU's instruction if it has one.
std::uint32_t crc32c(std::span<const std::byte> bytes);

/// The same by tables, on any CPU.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes);

}  // namespace meshloom::base
