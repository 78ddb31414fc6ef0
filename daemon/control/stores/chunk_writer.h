// SPDX-License-Identifier: Apache-2.0
// ChunkWriter: the one stream that fills an upload, whatever becomes of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace meshloom::control {

/// Largest chunk that append() takes.
inline constexpr std::size_t kLargestChunk = 1 << 20;

/// Used by one thread.
class ChunkWriter {
 public:
  virtual ~ChunkWriter() = default;
  /// OutOfRange (WRONG_OFFSET) unless offset is position(), or if the chunk passes the
  /// declared size; Aborted (CHUNK_CHECKSUM_MISMATCH); InvalidArgument (CHUNK_TOO_LARGE). The
  /// upload and what came before stay.
  virtual void append(std::int64_t offset, std::string data, std::uint32_t crc32c) = 0;
  /// All that came stays if this throws nothing.
  virtual void commit() = 0;
  virtual std::int64_t committed() const = 0;
  /// Bytes that came, committed ones included.
  virtual std::int64_t position() const = 0;
};

/// What append() throws of a chunk for an upload of `size` bytes of which `position` have come.
void check_chunk(const std::string& upload, std::int64_t size, std::int64_t position,
                 std::int64_t offset, const std::string& data, std::uint32_t crc32c);
/// Throws FailedPrecondition (UPLOAD_INCOMPLETE) unless all bytes are committed.
void check_all_committed(const std::string& upload, std::int64_t size, std::int64_t committed);

}  // namespace meshloom::control
