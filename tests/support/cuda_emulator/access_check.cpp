// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/access_check.h"

#include <emmintrin.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <vector>

#include "tests/support/cuda_emulator/cell_check.h"
#include "tests/support/cuda_emulator/machine.h"
#include "tests/support/cuda_emulator/running_block.h"
#include "tests/support/cuda_emulator/source_place.h"

namespace meshloom::emulator {
namespace {

const char* access_text(Access access) {
  switch (access) {
    case Access::kRead: return "read";
    case Access::kWrite: return "write";
    case Access::kAtomic: return "atomic change";
  }
  return "";
}

/// What is wrong with an access, for a text that begins with it.
const char* conflict_text(Conflict conflict) {
  switch (conflict) {
    case Conflict::kNone: break;
    case Conflict::kUndefined: return "memory that was never written";
    case Conflict::kWrittenInBlock:
    case Conflict::kReadInBlock: return "a race in a block";
    case Conflict::kWrittenByBlock:
    case Conflict::kReadByBlock: return "a race between blocks";
    case Conflict::kWrittenByWork:
    case Conflict::kReadByWork: return "work of two streams without an event between";
  }
  return "";
}

/// Who the other one was.
std::string other_text(Conflict conflict, const Cell& cell, WorkHistory& history) {
  switch (conflict) {
    case Conflict::kWrittenInBlock:
      return fmt::format(", which {} wrote with no barrier between",
                         thread_text(cell.write_thread & kThreadBits));
    case Conflict::kReadInBlock:
      return fmt::format(", which {} read with no barrier between",
                         thread_text(cell.read_thread & kThreadBits));
    case Conflict::kWrittenByBlock: return ", which another block wrote";
    case Conflict::kReadByBlock: return ", which another block read";
    case Conflict::kWrittenByWork:
      return fmt::format(", which {} wrote", history.name_of(cell.write));
    case Conflict::kReadByWork: {
      const bool first = cell.other_read != 0 && !history.is_before_current(cell.other_read);
      return fmt::format(", which {} reads", history.name_of(first ? cell.other_read : cell.read));
    }
    default: return "";
  }
}

/// A part of a loaded program that nobody can write, where constants of kernels lie.
struct ConstantRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  bool holds(std::uintptr_t address) const { return address >= begin && address < end; }
};

std::vector<ConstantRange> read_constant_ranges() {
  std::vector<ConstantRange> ranges;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
          if (part.p_type == PT_LOAD && (part.p_flags & PF_W) == 0)
            static_cast<std::vector<ConstantRange>*>(into)->push_back(
                {begin, begin + part.p_memsz});
        }
        return 0;
      },
      &ranges);
  return ranges;
}

bool is_constant(std::uintptr_t address) {
  // Kernels read the constants of one library, again and again.
  static ConstantRange last;
  if (last.holds(address)) return true;
  for (const ConstantRange& range : read_constant_ranges()) {
    if (!range.holds(address)) continue;
    last = range;
    return true;
  }
  return false;
}

/// An access that a thread of the running block makes.
struct ThreadAccess {
  const void* address;
  std::size_t bytes;
  Access access;
  const void* return_address;
};

void set_fault(const ThreadAccess& at, cudaError_t error, const char* what,
               const std::string& place, const std::string& other) {
  RunningBlock& block = running_block();
  block.fault = {error,
                 fmt::format("{}: {} of {} bytes at {}, by {}{}", what, access_text(at.access),
                             at.bytes, place, thread_text(block.current), other)};
  block.fault_return = at.return_address;
  if (at.return_address == nullptr)
    block.fault.text += fmt::format(", at {}", place_of(block.threads[block.current].site));
}

std::string place_text(const void* address) {
  RunningBlock& block = running_block();
  const std::size_t shared = block.shared.offset(address);
  if (shared < SharedMemory::kBytes) return fmt::format("byte {} of shared memory", shared);
  return block.memory->describe(address);
}

void fault_elsewhere(const ThreadAccess& at) {
  const int device = device_of(at.address);
  const std::string place =
      device >= 0 ? fmt::format("an address of cuda:{}", device) : fmt::format("{}", at.address);
  set_fault(at, cudaErrorIllegalAddress,
            device >= 0 ? "memory of another device" : "memory of the host", place, "");
}

void fault_stack(const ThreadAccess& at) {
  set_fault(at, cudaErrorIllegalAddress, "a variable of another thread",
            fmt::format("{}", at.address), "");
}

void fault_dead(const ThreadAccess& at, std::size_t first) {
  const auto* const address = static_cast<const std::byte*>(at.address) + first;
  set_fault(at, cudaErrorIllegalAddress, "memory that is not allocated", place_text(address), "");
}

void fault_misaligned(const ThreadAccess& at) {
  set_fault(at, cudaErrorMisalignedAddress, "a misaligned address", place_text(at.address), "");
}

void fault_conflict(const ThreadAccess& at, Conflict conflict, std::size_t byte, const Cell& cell) {
  RunningBlock& block = running_block();
  const auto* const address = static_cast<const std::byte*>(at.address) + byte;
  set_fault(at, cudaErrorLaunchFailure, conflict_text(conflict), place_text(address),
            other_text(conflict, cell, *block.history));
}

Toucher toucher(Access access, bool shared) {
  const RunningBlock& block = running_block();
  return {current_epoch(),
          block.block_start,
          block.launch_start,
          static_cast<std::uint16_t>(block.current),
          block.threads[block.current].sync,
          shared,
          access};
}

// Cells are compared and written by vectors, since each access has as many cells as bytes.
__m128i load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

/// Whether so many bytes have one past: each cell is as the next one.
template <std::size_t kBytes>
bool are_equal(const Cell* cells) {
  if constexpr (kBytes > 1) {
    constexpr std::size_t kCompared = (kBytes - 1) * sizeof(Cell), kVector = sizeof(__m128i);
    const auto* const one = reinterpret_cast<const char*>(cells);
    const auto* const next = reinterpret_cast<const char*>(cells + 1);
    const auto difference = [&](std::size_t at) { return load(one + at) ^ load(next + at); };
    __m128i all = difference(kCompared - kVector);
    for (std::size_t at = 0; at + kVector <= kCompared; at += kVector) all |= difference(at);
    return _mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_setzero_si128())) == 0xffff;
  }
  return true;
}

template <std::size_t kBytes>
void fill(Cell* cells, const Cell& cell) {
  static_assert(sizeof(Cell) == sizeof(__m128i) + 4);
  const __m128i first = load(&cell);
  std::uint32_t last = 0;
  __builtin_memcpy(&last, reinterpret_cast<const char*>(&cell) + sizeof first, sizeof last);
  for (std::size_t i = 0; i < kBytes; ++i) {
    auto* const to = reinterpret_cast<char*>(cells + i);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), first);
    __builtin_memcpy(to + sizeof first, &last, sizeof last);
  }
}

/// Checks the bytes of an access at once. False, with nothing noted: it is not aligned, or they are
/// not live, or have several pasts, or there is a conflict.
template <std::size_t kBytes>
bool check_together(Shadow& shadow, std::size_t offset, Access access, bool shared) {
  if (offset % kBytes != 0 || !shadow.all_live(offset, kBytes)) return false;
  Cell* const cells = &shadow.cell(offset);
  if (!are_equal<kBytes>(cells)) return false;
  Cell cell = cells[0];
  const Conflict conflict =
      touch(cell, toucher(access, shared), *running_block().history, shadow.birth(offset));
  if (conflict != Conflict::kNone) return false;
  fill<kBytes>(cells, cell);
  return true;
}

bool check_at_once(const ThreadAccess& at, Shadow& shadow, std::size_t offset, bool shared) {
  switch (at.bytes) {
    case 1: return check_together<1>(shadow, offset, at.access, shared);
    case 2: return check_together<2>(shadow, offset, at.access, shared);
    case 4: return check_together<4>(shadow, offset, at.access, shared);
    case 8: return check_together<8>(shadow, offset, at.access, shared);
    case 16: return check_together<16>(shadow, offset, at.access, shared);
    default: return false;
  }
}

/// Checks bytes of one chunk, one after another.
void check_in_chunk(const ThreadAccess& at, Shadow& shadow, std::size_t offset, bool shared) {
  RunningBlock& block = running_block();
  if (!shadow.all_live(offset, at.bytes)) {
    fault_dead(at, shadow.same_bytes(offset, at.bytes, true));
    abandon_block();
  }
  const Toucher me = toucher(at.access, shared);
  Cell* const cells = &shadow.cell(offset);
  for (std::size_t i = 0; i < at.bytes; ++i) {
    const Conflict conflict = touch(cells[i], me, *block.history, shadow.birth(offset + i));
    if (conflict == Conflict::kNone) continue;
    fault_conflict(at, conflict, i, cells[i]);
    abandon_block();
  }
}

void check_in(const ThreadAccess& whole, Shadow& shadow, std::size_t offset, bool shared) {
  if (check_at_once(whole, shadow, offset, shared)) return;
  ThreadAccess at = whole;
  for (std::size_t done = 0; done < whole.bytes; done += at.bytes) {
    at.address = static_cast<const std::byte*>(whole.address) + done;
    at.bytes =
        std::min(whole.bytes - done, Shadow::kChunkBytes - (offset + done) % Shadow::kChunkBytes);
    check_in_chunk(at, shadow, offset + done, shared);
  }
}

/// What a text says of a range of work without threads.
[[noreturn]] void throw_range(const DeviceMemory& memory, const WorkHistory& history,
                              cudaError_t error, const char* what, const void* address,
                              Access access, const std::string& other) {
  throw FaultError(error, fmt::format("{}: {} at {}, by {}{}", what, access_text(access),
                                      memory.describe(address), history.current().text(), other));
}

}  // namespace

void check_access(const void* address, std::size_t bytes, Access access, bool aligned,
                  const void* return_address) {
  RunningBlock& block = running_block();
  const ThreadAccess at{address, bytes, access, return_address};
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  if (block.stacks.contains(address)) {
    if (block.stacks.thread_of(address) == block.current) return;
    fault_stack(at);
    abandon_block();
  }
  const bool shared = block.shared.offset(address) < SharedMemory::kBytes;
  if (!shared && !block.memory->contains(address)) {
    const auto argument = number - reinterpret_cast<std::uintptr_t>(block.launch->arguments);
    const bool readable = argument < block.launch->argument_bytes || is_constant(number);
    if (access == Access::kRead && readable) return;
    fault_elsewhere(at);
    abandon_block();
  }
  // The size is a power of two.
  if (aligned && (number & (bytes - 1)) != 0) {
    fault_misaligned(at);
    abandon_block();
  }
  if (shared) return check_in(at, block.shared.shadow(), block.shared.offset(address), true);
  const std::size_t offset = block.memory->offset(address);
  check_in(at, block.memory->shadow(), offset, false);
  if (block.traffic != nullptr)
    block.traffic->touch(offset, bytes, access != Access::kWrite, access != Access::kRead);
}

void check_range(DeviceMemory& memory, WorkHistory& history, const void* data, std::size_t bytes,
                 Access access) {
  if (bytes == 0) return;
  const auto* const begin = static_cast<const std::byte*>(data);
  if (!memory.contains(data) || !memory.contains(begin + bytes - 1))
    throw FaultError(cudaErrorIllegalAddress,
                     fmt::format("memory that is not the device's: {} of {} bytes at {}, by {}",
                                 access_text(access), bytes, data, history.current().text()));
  Shadow& shadow = memory.shadow();
  const std::size_t offset = memory.offset(data);
  const std::size_t live = shadow.same_bytes(offset, bytes, true);
  if (live < bytes)
    throw_range(memory, history, cudaErrorIllegalAddress, "memory that is not allocated",
                begin + live, access, "");
  const Epoch now = current_epoch();
  Toucher me{now, now, now};
  me.access = access;
  Cell before, after;
  for (std::size_t i = 0; i < bytes; ++i) {
    Cell& cell = shadow.cell(offset + i);
    if (i > 0 && (offset + i) % Shadow::kGranule != 0 && cell == before) {
      cell = after;
      continue;
    }
    before = cell;
    const Conflict conflict = touch(cell, me, history, shadow.birth(offset + i));
    if (conflict != Conflict::kNone)
      throw_range(memory, history, cudaErrorLaunchFailure, conflict_text(conflict), begin + i,
                  access, other_text(conflict, cell, history));
    after = cell;
  }
}

}  // namespace meshloom::emulator
