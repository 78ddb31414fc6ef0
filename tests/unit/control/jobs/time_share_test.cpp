// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/time_share.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using Clock = TimeShare::Clock;

struct Piece {
  Clock::time_point begin, end;
};

/// The largest part of any window of `length` that pieces take.
double largest_part(const std::vector<Piece>& pieces, Clock::duration length) {
  double largest = 0;
  for (const Piece& last : pieces) {
    Clock::duration inside{};
    for (const Piece& piece : pieces)
      inside += std::max(Clock::duration{},
                         std::min(piece.end, last.end) - std::max(piece.begin, last.end - length));
    largest = std::max(largest, std::chrono::duration<double>(inside) / length);
  }
  return largest;
}

TEST(TimeShare, HoldsInAnySecondWhateverPiecesTake) {
  std::mt19937 random(7);
  for (const double share : {0.05, 1.0 / 3.0, 0.7}) {
    TimeShare turns(share);
    std::vector<Piece> pieces;
    Clock::time_point now{1h};
    while (now < Clock::time_point{1h + 60s}) {
      constexpr Clock::duration kThought = 50ms;
      now = std::max(now, turns.next(kThought, now));
      const int count = turns.fitting(kThought, now);
      ASSERT_GE(count, 1);
      for (int i = 0; i < count; ++i) {
        const auto time = std::chrono::milliseconds(5 + random() % 46);
        pieces.push_back({now, now + time});
        now += time;
        turns.spent(time, now);
      }
      now += std::chrono::milliseconds(random() % 400);  // what goes on between
    }
    const Clock::duration window =
        std::max<Clock::duration>(1s, std::chrono::duration_cast<Clock::duration>(50ms / share));
    EXPECT_LE(largest_part(pieces, window), share + 1e-4) << share;
    EXPECT_GE(largest_part(pieces, 60s), 0.5 * share) << share << ": it is to be had";
  }
}

TEST(TimeShare, APieceLongerThanItsShareOfASecondStillGetsItsTurn) {
  TimeShare turns(0.25);
  const Clock::time_point now{1h};
  EXPECT_EQ(turns.next(2s, now), now);
  EXPECT_EQ(turns.fitting(2s, now), 1);
  turns.spent(2s, now + 2s);
  EXPECT_EQ(turns.fitting(2s, now + 3s), 0);
  EXPECT_EQ(turns.next(2s, now + 3s), now + 10s);
  EXPECT_EQ(turns.fitting(2s, now + 10s), 1);
}

}  // namespace
}  // namespace meshloom::control
