// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace meshloom::emulator {

Shadow::~Shadow() {
  for (Chunk* chunk : chunks_)
    if (chunk != nullptr) ::munmap(chunk, sizeof(Chunk));
}

// Zero bytes are what cells begin with, and pages that nobody touches take no memory.
Shadow::Chunk* Shadow::make_chunk() {
  void* const memory = ::mmap(nullptr, sizeof(Chunk), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<Chunk*>(memory);
}

bool Shadow::is_live(std::size_t offset) {
  const std::size_t at = offset % kChunkBytes;
  return (chunk(offset).live[at / 8] >> (at % 8) & 1) != 0;
}

std::uint32_t Shadow::birth(std::size_t offset) {
  return chunk(offset).birth[offset % kChunkBytes / kGranule];
}

std::size_t Shadow::same_bytes(std::size_t offset, std::size_t bytes, bool live) {
  const std::uint8_t eight = live ? 0xff : 0;
  std::size_t count = 0;
  while (count < bytes) {
    const std::size_t at = offset + count;
    const bool whole = at % 8 == 0 && bytes - count >= 8;
    if (whole && chunk(at).live[at % kChunkBytes / 8] == eight) {
      count += 8;
      continue;
    }
    if (is_live(at) != live) break;
    ++count;
  }
  return count;
}

void Shadow::set_live(std::size_t offset, std::size_t bytes, bool live) {
  const std::size_t end = offset + bytes;
  while (offset < end) {
    Chunk& chunk = this->chunk(offset);
    const std::size_t at = offset % kChunkBytes;
    const std::size_t whole = std::min(end - offset, kChunkBytes - at) / 8 * 8;
    if (at % 8 == 0 && whole > 0) {
      std::memset(chunk.live + at / 8, live ? 0xff : 0, whole / 8);
      offset += whole;
      continue;
    }
    const auto bit = static_cast<std::uint8_t>(1u << (at % 8));
    std::uint8_t& byte = chunk.live[at / 8];
    byte = static_cast<std::uint8_t>(live ? byte | bit : byte & ~bit);
    ++offset;
  }
}

void Shadow::set_birth(std::size_t offset, std::size_t bytes, std::uint32_t position) {
  for (std::size_t at = offset / kGranule * kGranule; at < offset + bytes; at += kGranule)
    chunk(at).birth[at % kChunkBytes / kGranule] = position;
}

void Shadow::drop(std::size_t offset, std::size_t bytes) {
  for (std::size_t at = offset; at < offset + bytes; at += kChunkBytes) {
    Chunk*& chunk = chunks_[at / kChunkBytes];
    if (chunk != nullptr) ::munmap(chunk, sizeof(Chunk));
    chunk = nullptr;
  }
}

}  // namespace meshloom::emulator
