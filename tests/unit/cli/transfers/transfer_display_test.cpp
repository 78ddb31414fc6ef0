// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/transfers/transfer_display.h"

#include <gmock/gmock.h>

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::int64_t kMiB = 1 << 20;

TEST(TransferProgress, ABarHasRateAndTimeLeft) {
  TransferProgress progress(true, 80, "sent");
  const auto begin = TransferProgress::Clock::now();
  progress.begin("model.safetensors", 100 * kMiB, 20 * kMiB, begin);
  const std::string bar = progress.show(60 * kMiB, begin + 4s);
  EXPECT_THAT(bar, HasSubstr("60.0 MiB of 100.0 MiB"));
  EXPECT_THAT(bar, HasSubstr("10.0 MiB/s")) << "what was there was not sent";
  EXPECT_THAT(bar, HasSubstr("left 4s"));
  EXPECT_THAT(bar, HasSubstr("#"));
  EXPECT_EQ(progress.show(61 * kMiB, begin + 4050ms), "") << "not at every chunk";
  EXPECT_NE(progress.show(62 * kMiB, begin + 4100ms), "");
  EXPECT_THAT(progress.end(begin + 8s), HasSubstr("sent 80.0 MiB, 10.0 MiB/s\n"));
}

TEST(TransferProgress, ANarrowTerminalGetsTheTextAlone) {
  TransferProgress progress(true, 20, "sent");
  const auto begin = TransferProgress::Clock::now();
  progress.begin("model.safetensors", 100, 0, begin);
  const std::string text = progress.show(50, begin + 1s);
  EXPECT_EQ(text.find('#'), std::string::npos) << text;
  EXPECT_LE(text.size(), 4u + 19u) << "with what clears the line";
}

TEST(TransferProgress, ElsewhereThereIsALineAFile) {
  TransferProgress progress(false, 80, "received");
  const auto begin = TransferProgress::Clock::now();
  progress.begin("a.bin", 2 * kMiB, 0, begin);
  EXPECT_EQ(progress.show(kMiB, begin + 1s), "");
  EXPECT_EQ(progress.end(begin + 1s), "a.bin: 2.0 MiB, received 2.0 MiB, 2.0 MiB/s\n");
  progress.begin("a.bin", 2 * kMiB, 2 * kMiB, begin);
  EXPECT_EQ(progress.end(begin), "a.bin: 2.0 MiB, received already\n");
  progress.begin("empty.bin", 0, 0, begin);
  EXPECT_EQ(progress.end(begin), "empty.bin: 0 B, received 0 B\n");
}

}  // namespace
}  // namespace meshloom::cli
