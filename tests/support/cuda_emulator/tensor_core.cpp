// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/tensor_core.h"

#include <bit>

#include "tests/support/cuda_emulator/device/emulated_tensor_core.h"

namespace meshloom::emulator {
namespace {

constexpr int kLanes = 32;

float bfloat16_of(unsigned word, int half) {
  return std::bit_cast<float>(half == 0 ? word << 16 : word & 0xffff0000u);
}

const LaneProduct& product_of(const Thread& thread) {
  return *reinterpret_cast<const LaneProduct*>(thread.value);
}

const LaneMatrices& matrices_of(const Thread& thread) {
  return *reinterpret_cast<const LaneMatrices*>(thread.value);
}

}  // namespace

void multiply_fragments(const Thread* warp) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const LaneProduct& mine = product_of(warp[lane]);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int half = 0; half < 2; ++half) {
      for (int word = 0; word < 4; ++word)
        a[group + word % 2 * 8][pair + word / 2 * 8 + half] = bfloat16_of(mine.a[word], half);
      for (int word = 0; word < 2; ++word)
        b[pair + word * 8 + half][group] = bfloat16_of(mine.b[word], half);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    float* c = product_of(warp[lane]).c;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float sum = c[i];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      c[i] = sum;
    }
  }
}

void hand_out_matrices(const Thread* warp, bool transposed) {
  const auto element = [&](int matrix, int row, int column) {
    const std::uint32_t word = matrices_of(warp[matrix * 8 + row]).row.words[column / 2];
    return column % 2 == 0 ? word & 0xffffu : word >> 16;
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const int first = lane / 4, second = lane % 4 * 2;
    for (int matrix = 0; matrix < 4; ++matrix)
      matrices_of(warp[lane]).words[matrix] =
          transposed ? element(matrix, second, first) | element(matrix, second + 1, first) << 16
                     : element(matrix, first, second) | element(matrix, first, second + 1) << 16;
  }
}

void queue_copy(const AsyncCopy& copy) {
  RunningBlock& block = running_block();
  block.copies[block.current].begun.push_back(copy);
}

void end_copy_group() {
  RunningBlock& block = running_block();
  ThreadCopies& mine = block.copies[block.current];
  mine.group_ends.push_back(mine.begun.size());
}

bool take_landed_copy(int groups, AsyncCopy& copy) {
  RunningBlock& block = running_block();
  ThreadCopies& mine = block.copies[block.current];
  const std::size_t under_way = static_cast<std::size_t>(groups);
  if (mine.group_ends.size() <= under_way) return false;
  if (mine.landed >= mine.group_ends[mine.group_ends.size() - 1 - under_way]) return false;
  copy = mine.begun[mine.landed++];
  return true;
}

}  // namespace meshloom::emulator
