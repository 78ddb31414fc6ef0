// SPDX-License-Identifier: Apache-2.0
// Waits of tests for what other threads do.
#pragma once

#include <chrono>
#include <thread>

namespace meshloom::test {

/// Whether it holds within 20 s. Asks every millisecond.
template <typename Condition>
bool eventually(const Condition& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace meshloom::test
