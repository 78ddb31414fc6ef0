// SPDX-License-Identifier: Apache-2.0
// What lanes of a warp do together.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "tests/support/cuda_emulator/running_block.h"
#include "tests/support/cuda_emulator/source_place.h"
#include "tests/support/cuda_emulator/tensor_core.h"

namespace meshloom::emulator {
namespace {

void fail(RunningBlock& block, const std::string& what, Site site) {
  block.fault = {cudaErrorLaunchFailure, fmt::format("a warp call {}, by {} at {}", what,
                                                     thread_text(block.current), place_of(site))};
}

// Texts are compared where two files hold one name.
bool same_place(Site a, Site b) {
  return a.line() == b.line() &&
         (a.file_name() == b.file_name() || std::string_view(a.file_name()) == b.file_name());
}

bool same_call(const Thread& a, const Thread& b) {
  return a.mask == b.mask && a.call == b.call && a.width == b.width && same_place(a.site, b.site);
}

/// The lane that a shuffle of lane `lane` reads; its own where that is out of its group.
unsigned shuffled_lane(const Thread& thread, unsigned lane) {
  const auto width = static_cast<unsigned>(thread.width);
  const unsigned first = lane / width * width;
  const auto argument = static_cast<unsigned>(thread.argument);
  switch (thread.call) {
    case WarpCall::kShuffle: return first + argument % width;
    case WarpCall::kShuffleXor: {
      // Lanes of earlier groups can be read, those of later ones cannot.
      const unsigned from = lane ^ argument;
      return from < first + width ? from : lane;
    }
    case WarpCall::kShuffleUp: return lane < first + argument ? lane : lane - argument;
    case WarpCall::kShuffleDown: return argument >= first + width - lane ? lane : lane + argument;
    default: return lane;
  }
}

std::uint64_t combine(WarpCall call, std::uint64_t a, std::uint64_t b) {
  const auto signed_a = static_cast<std::int32_t>(a), signed_b = static_cast<std::int32_t>(b);
  const auto plain_a = static_cast<std::uint32_t>(a), plain_b = static_cast<std::uint32_t>(b);
  switch (call) {
    case WarpCall::kSum: return static_cast<std::uint32_t>(plain_a + plain_b);
    case WarpCall::kMinSigned: return static_cast<std::uint32_t>(std::min(signed_a, signed_b));
    case WarpCall::kMaxSigned: return static_cast<std::uint32_t>(std::max(signed_a, signed_b));
    case WarpCall::kMinUnsigned: return std::min(plain_a, plain_b);
    case WarpCall::kMaxUnsigned: return std::max(plain_a, plain_b);
    default: return a;
  }
}

/// The one result of calls that give all lanes the same.
std::uint64_t reduced(const Thread* warp, unsigned mask, WarpCall call) {
  std::uint64_t result = 0;
  bool first = true;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const std::uint64_t value = warp[lane].value;
    if (call == WarpCall::kBallot)
      result |= value << lane;
    else
      result = first ? value : combine(call, result, value);
    first = false;
  }
  return result;
}

/// Returns the lane that reads one outside the mask, or kWarpLanes.
unsigned complete(Thread* warp, unsigned mask) {
  const WarpCall call = warp[std::countr_zero(mask)].call;
  const bool shuffles = call >= WarpCall::kShuffle && call <= WarpCall::kShuffleDown;
  const bool reduces = call >= WarpCall::kBallot && call <= WarpCall::kMaxUnsigned;
  const std::uint64_t all = reduces ? reduced(warp, mask, call) : 0;
  if (call == WarpCall::kMultiply) multiply_fragments(warp);
  if (call == WarpCall::kLoadMatrices) hand_out_matrices(warp, false);
  if (call == WarpCall::kLoadTransposed) hand_out_matrices(warp, true);
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    Thread& thread = warp[lane];
    const unsigned from = shuffles ? shuffled_lane(thread, lane) : lane;
    if ((mask >> from & 1) == 0) return lane;
    thread.result = shuffles ? warp[from].value : all;
    thread.status = Thread::Status::kReady;
    if (call == WarpCall::kSync) ++thread.sync;
  }
  return kWarpLanes;
}

/// Sets the fault of a call that the current lane cannot make together with others of its mask.
void fail_lanes(RunningBlock& block, unsigned first) {
  const Thread& me = block.threads[block.current];
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((me.mask >> lane & 1) == 0) continue;
    const unsigned t = first + lane;
    if (t >= block.count || block.threads[t].status == Thread::Status::kDone) {
      fail(block,
           fmt::format("whose mask {:#010x} names lane {}, which {}", me.mask, lane,
                       t >= block.count ? "the block has not" : "has ended"),
           me.site);
      return;
    }
    const Thread& other = block.threads[t];
    if (other.status != Thread::Status::kInWarp || same_call(me, other)) continue;
    fail(block,
         fmt::format("with mask {:#010x}, where lane {} waits with mask {:#010x} at {}", me.mask,
                     lane, other.mask, place_of(other.site)),
         me.site);
    return;
  }
}

/// Joins the lanes of the mask that have come, or is the first one. False: the call cannot
/// complete.
bool join_lanes(Warp& warp, Thread* threads, unsigned lane) {
  Thread& me = threads[lane];
  if ((me.mask & warp.gone) != 0) return false;
  const unsigned others = me.mask & warp.in_call;
  me.leader = others == 0 ? lane : threads[std::countr_zero(others)].leader;
  Thread& leader = threads[me.leader];
  if (others == 0)
    leader.arrived = 0;
  else if (others != leader.arrived || !same_call(me, leader))
    return false;
  leader.arrived |= 1u << lane;
  warp.in_call |= 1u << lane;
  return true;
}

void fail_outside(RunningBlock& block, unsigned lane, Site site) {
  const unsigned mask = block.threads[block.current].mask;
  fail(block, fmt::format("whose lane {} reads a lane outside the mask {:#010x}", lane, mask),
       site);
}

void fail_own(RunningBlock& block, unsigned mask, Site site) {
  fail(block, fmt::format("whose mask {:#010x} does not name its own lane", mask), site);
}

}  // namespace

std::uint64_t meet_in_warp(WarpCall call, unsigned mask, std::uint64_t value, int argument,
                           int width, Site site) {
  RunningBlock& block = running_block();
  const unsigned lane = block.current % kWarpLanes, first = block.current - lane;
  Thread* const threads = &block.threads[first];
  Warp& warp = block.warps[first / kWarpLanes];
  Thread& me = threads[lane];
  if ((mask >> lane & 1) == 0) {
    fail_own(block, mask, site);
    abandon_block();
  }
  me.call = call;
  me.mask = mask;
  me.value = value;
  me.argument = argument;
  me.width = width;
  me.site = site;
  if (!join_lanes(warp, threads, lane)) {
    fail_lanes(block, first);
    abandon_block();
  }
  if (threads[me.leader].arrived != mask) {
    me.status = Thread::Status::kInWarp;
    yield_thread();
    return me.result;
  }
  warp.in_call &= ~mask;
  const unsigned wrong = complete(threads, mask);
  if (wrong != kWarpLanes) {
    fail_outside(block, wrong, site);
    abandon_block();
  }
  return me.result;
}

}  // namespace meshloom::emulator
