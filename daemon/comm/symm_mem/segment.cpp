// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "daemon/base/system_message.h"
#include "daemon/comm/symm_mem/memory_room.h"
#include "daemon/comm/symm_mem/peer_process.h"
#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

#ifndef MADV_COLLAPSE  // Linux 6.1 knows it
#define MADV_COLLAPSE 25
#endif
#ifndef MFD_NOEXEC_SEAL  // glibc 2.36 does not know it, Linux 6.3 does
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace meshloom::comm {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::atomic<std::uint64_t> made{0};

/// 4 KiB, on some ARM systems 64 KiB; the same for all processes of a host.
std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

/// Behind the data lies one page with the nonce.
std::size_t file_bytes(std::size_t bytes) { return bytes + page(); }

std::string reason() { return base::system_message(errno); }

base::UniqueFd open_memory() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  base::UniqueFd fd(memfd_create("meshloom-symm", kFlags | MFD_NOEXEC_SEAL));
  // Kernels before 6.3 do not know the flag.
  if (!fd && errno == EINVAL) fd.reset(memfd_create("meshloom-symm", kFlags));
  if (!fd) throw IoError("symmetric memory: memfd_create: " + reason(), "SYMM_MEM_NO_MEMFD");
  return fd;
}

void check_room(std::size_t bytes) {
  const MemoryRoom room = memory_room();
  if (file_bytes(bytes) <= static_cast<std::uint64_t>(room.bytes)) return;
  throw ResourceExhausted(
      fmt::format("symmetric memory: a segment of {} bytes does not fit: {} bytes are left ({})",
                  bytes, room.bytes, room.source),
      "SYMM_MEM_NO_ROOM",
      {{"bytes", std::to_string(bytes)},
       {"left", std::to_string(room.bytes)},
       {"source", room.source}});
}

/// Where a mapping of `bytes` may go: a piece of address space that begins at a multiple of 2 MiB
/// if it is that large. Null: anywhere.
std::byte* aligned_place(std::size_t bytes) {
  if (bytes < kHugePage) return nullptr;
  void* space = mmap(nullptr, bytes + kHugePage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(space);
  const std::size_t skip =
      (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (skip > 0) munmap(begin, skip);
  const std::size_t behind = kHugePage - skip;
  if (behind > 0) munmap(begin + skip + bytes, behind);
  return begin + skip;
}

}  // namespace

std::shared_ptr<Segment> Segment::create(std::size_t bytes) {
  const std::size_t whole = round_up(std::max<std::size_t>(bytes, 1), page());
  if (whole < bytes || whole > SIZE_MAX / 4)
    throw ResourceExhausted(fmt::format("symmetric memory: a segment of {} bytes", bytes),
                            "SYMM_MEM_NO_ROOM", {{"bytes", std::to_string(bytes)}});
  check_room(whole);
  std::shared_ptr<Segment> segment(new Segment);
  segment->fd_ = open_memory();
  SegmentName& name = segment->name_;
  if (getrandom(name.nonce.data(), sizeof(Nonce), 0) != static_cast<ssize_t>(sizeof(Nonce)))
    throw IoError("symmetric memory: getrandom: " + reason());
  name.bytes = whole;
  name.pid = getpid();
  name.fd = segment->fd();
  name.start_time = own_start_time();
  name.pid_namespace = own_pid_namespace();
  name.object = reinterpret_cast<std::uintptr_t>(segment.get());
  // The file gets its pages, and its size is sealed.
  const std::size_t all = file_bytes(whole);
  const int error = posix_fallocate(segment->fd(), 0, static_cast<off_t>(all));
  if (error != 0)
    throw ResourceExhausted(fmt::format("symmetric memory: no {} bytes of shared memory: {}", all,
                                        base::system_message(error)),
                            "SYMM_MEM_NO_ROOM", {{"bytes", std::to_string(all)}});
  if (fcntl(segment->fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw IoError("symmetric memory: the size of a segment cannot be sealed: " + reason());
  segment->map_memory(segment->fd());
  std::memcpy(segment->data_ + whole, name.nonce.data(), sizeof(Nonce));
  // Touched memory is put together into pages of 2 MiB, which products read and write at full
  // speed; peers that map it afterwards get them too. Shared memory has them in no other way if the
  // system does not turn them on for all. Without them (before Linux 6.1) all works the same.
  if (whole >= kHugePage) madvise(segment->data_, whole / kHugePage * kHugePage, MADV_COLLAPSE);
  made.fetch_add(1, std::memory_order_relaxed);
  return segment;
}

std::uint64_t segments_made() { return made.load(std::memory_order_relaxed); }

std::shared_ptr<Segment> Segment::map(base::UniqueFd fd, const SegmentName& name) {
  struct stat status {};
  Nonce seen{};
  // The size comes first: memory behind the end of a file is SIGBUS.
  if (fstat(fd.get(), &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) != file_bytes(name.bytes) ||
      pread(fd.get(), seen.data(), sizeof(seen), static_cast<off_t>(name.bytes)) !=
          static_cast<ssize_t>(sizeof(seen)) ||
      seen != name.nonce)
    throw IoError("another memory lies there, so the peer is on another host",
                  "SYMM_MEM_NOT_SHARED");
  std::shared_ptr<Segment> segment(new Segment);
  segment->name_ = name;
  // The mapping keeps the memory; the descriptor is of no more use.
  segment->map_memory(fd.get());
  return segment;
}

void Segment::map_memory(int fd) {
  const std::size_t bytes = file_bytes(name_.bytes);
  std::byte* const place = aligned_place(bytes);
  void* memory = mmap(place, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE | (place != nullptr ? MAP_FIXED : 0), fd, 0);
  if (memory == MAP_FAILED) {
    const std::string text = reason();
    if (place != nullptr) munmap(place, bytes);
    throw ResourceExhausted(
        fmt::format("symmetric memory: {} bytes cannot be mapped: {}", bytes, text),
        "SYMM_MEM_NO_ROOM", {{"bytes", std::to_string(bytes)}});
  }
  data_ = static_cast<std::byte*>(memory);
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, file_bytes(name_.bytes));
}

}  // namespace meshloom::comm
