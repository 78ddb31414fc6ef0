// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/cell_check.h"

namespace meshloom::emulator {
namespace {

constexpr unsigned kLanes = 32;

/// Whether another thread of the block touched it, with neither a barrier nor a __syncwarp since.
bool is_concurrent(std::uint16_t touched, std::uint16_t sync, const Toucher& me) {
  if ((touched & kManyWarps) != 0) return true;
  const unsigned other = touched & kThreadBits;
  if ((touched & kManyLanes) == 0 && other == me.thread) return false;
  return other / kLanes != me.thread / kLanes || sync >= me.sync;
}

Conflict after_write(const Cell& cell, const Toucher& me, WorkHistory& history) {
  const bool both_atomic = me.access == Access::kAtomic && (cell.write_thread & kByAtomic) != 0;
  if (cell.write >= me.block_start) {
    const bool conflict = cell.write == me.epoch && !both_atomic &&
                          is_concurrent(cell.write_thread & kThreadBits, cell.write_sync, me);
    return conflict ? Conflict::kWrittenInBlock : Conflict::kNone;
  }
  if (cell.write >= me.launch_start)
    return both_atomic ? Conflict::kNone : Conflict::kWrittenByBlock;
  return history.is_before_current(cell.write) ? Conflict::kNone : Conflict::kWrittenByWork;
}

Conflict after_read(const Cell& cell, const Toucher& me, WorkHistory& history) {
  if (cell.other_read != 0 && !history.is_before_current(cell.other_read))
    return Conflict::kReadByWork;
  if (cell.read >= me.launch_start && (cell.read_thread & kManyBlocks) != 0)
    return Conflict::kReadByBlock;
  if (cell.read >= me.block_start) {
    const bool conflict =
        cell.read == me.epoch && is_concurrent(cell.read_thread, cell.read_sync, me);
    return conflict ? Conflict::kReadInBlock : Conflict::kNone;
  }
  if (cell.read >= me.launch_start) return Conflict::kReadByBlock;
  return history.is_before_current(cell.read) ? Conflict::kNone : Conflict::kReadByWork;
}

/// Who has read a byte, when `me` does too.
std::uint16_t readers_with(const Cell& cell, const Toucher& me) {
  auto readers = me.thread;
  if (cell.read < me.launch_start) return readers;
  readers |= cell.read_thread & kManyBlocks;
  if (cell.read < me.block_start) return readers | kManyBlocks;
  if (cell.read != me.epoch) return readers;
  readers |= cell.read_thread & (kManyLanes | kManyWarps);
  const unsigned other = cell.read_thread & kThreadBits;
  if (other != me.thread) readers |= other / kLanes == me.thread / kLanes ? kManyLanes : kManyWarps;
  return readers;
}

void note_read(Cell& cell, const Toucher& me, WorkHistory& history) {
  if (cell.read != 0 && cell.read < me.launch_start && !history.is_before_current(cell.read))
    cell.other_read = cell.read;
  cell.read_thread = readers_with(cell, me);
  cell.read = me.epoch;
  cell.read_sync = me.sync;
}

}  // namespace

Conflict touch(Cell& cell, const Toucher& me, WorkHistory& history, Position birth) {
  if (me.shared) {
    // A block before left it.
    if (cell.write < me.block_start) cell.write = 0;
    if (cell.read < me.block_start) cell.read = 0;
    cell.other_read = 0;
  }
  // An atomic instruction reads what it changes.
  if (me.access != Access::kWrite) {
    if (cell.write == 0) return Conflict::kUndefined;
    if (cell.write < me.launch_start && history.position_of(cell.write) < birth)
      return Conflict::kUndefined;
  }
  if (cell.write != 0) {
    const Conflict conflict = after_write(cell, me, history);
    if (conflict != Conflict::kNone) return conflict;
  }
  if (me.access == Access::kRead) {
    note_read(cell, me, history);
    return Conflict::kNone;
  }
  if (cell.read != 0) {
    const Conflict conflict = after_read(cell, me, history);
    if (conflict != Conflict::kNone) return conflict;
  }
  const bool atomic = me.access == Access::kAtomic;
  cell = {me.epoch, 0,       0, static_cast<std::uint16_t>(me.thread | (atomic ? kByAtomic : 0)),
          0,        me.sync, 0};
  return Conflict::kNone;
}

}  // namespace meshloom::emulator
