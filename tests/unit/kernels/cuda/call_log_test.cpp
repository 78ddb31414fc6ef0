// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/call_log.h"

#include <gtest/gtest.h>

#include <thread>

namespace meshloom::kernels::cuda {
namespace {

TEST(CallLog, NamesWhatIsNotDone) {
  CallLog log;
  EXPECT_EQ(log.text(), "no call");
  log.add("copy");
  log.add("softmax");
  const std::uint64_t mark = log.given();
  log.add("matmul");
  log.add("matmul");
  EXPECT_EQ(log.text(), "copy, softmax, matmul x 2");
  log.drop_until(mark);
  EXPECT_EQ(log.text(), "matmul x 2");
  log.drop_until(0);
  EXPECT_EQ(log.text(), "matmul x 2") << "an older mark brings nothing back";
  log.drop_until(log.given() + 5);
  EXPECT_EQ(log.text(), "no call");
  log.add("copy");
  EXPECT_EQ(log.text(), "copy");
}

TEST(CallLog, CountsWhatItHasNoRoomFor) {
  CallLog log;
  for (int i = 0; i < 3; ++i) log.add("old");
  for (std::uint64_t i = 0; i < CallLog::kNames; ++i) log.add(i % 2 == 0 ? "a" : "b");
  EXPECT_EQ(log.text(), "3 calls before, a, b, a, b, a, b, a, b, a, b, a, b, a, b, a, b");
  log.drop_until(4);
  EXPECT_EQ(log.text(), "b, a, b, a, b, a, b, a, b, a, b, a, b, a, b");
}

TEST(CallLog, ShowsKernelsByTheirNames) {
  CallLog log;
  log.add("_ZN8meshloom7kernels4cuda12_GLOBAL__N_110copy_unitsIjEEvNS1_11StridedPlanILi2EEE");
  EXPECT_EQ(log.text(), "copy_units<unsigned int>");
}

TEST(CallLog, EveryThreadHasItsOwn) {
  call_log().add("mine");
  std::thread([] {
    EXPECT_EQ(call_log().text(), "no call");
    call_log().add("other");
    EXPECT_EQ(call_log().text(), "other");
  }).join();
  EXPECT_EQ(call_log().text(), "mine");
}

}  // namespace
}  // namespace meshloom::kernels::cuda
