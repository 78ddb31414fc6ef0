// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/verb_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "daemon/control/runs/verb.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

VerbSequence::VerbPtr verb(std::int64_t seq) {
  v1::OptimStepRequest request;
  request.mutable_id()->set_seq(seq);
  return std::make_shared<Verb>(Verb{request, ""});
}

std::int64_t seq_of(const VerbSequence::VerbPtr& verb) { return id_of(verb->request).seq(); }

TEST(VerbSequence, GivesNumbersInOrderHoweverTheyArrive) {
  const auto now = VerbSequence::Clock::now();
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::int64_t> arrival(20);
    std::iota(arrival.begin(), arrival.end(), 3);
    std::shuffle(arrival.begin(), arrival.end(), random);
    VerbSequence sequence(3, 60s);
    std::vector<std::int64_t> taken;
    for (const std::int64_t seq : arrival) {
      EXPECT_FALSE(sequence.used_up(seq));
      sequence.add(seq, verb(seq), now);
      EXPECT_TRUE(sequence.used_up(seq));
      while (const auto next = sequence.take()) taken.push_back(seq_of(next));
    }
    ASSERT_EQ(taken.size(), 20u);
    EXPECT_TRUE(std::is_sorted(taken.begin(), taken.end()));
    EXPECT_EQ(sequence.next(), 23);
    EXPECT_FALSE(sequence.gap_ends());
  }
}

TEST(VerbSequence, AGapEndsAfterTheLastArrivalAndUsesUpAllNumbers) {
  const auto now = VerbSequence::Clock::now();
  VerbSequence sequence(1, 60s);
  EXPECT_FALSE(sequence.missing());
  sequence.add(2, verb(2), now);
  sequence.add(5, verb(5), now + 10s);
  EXPECT_EQ(sequence.missing(), 1);
  EXPECT_EQ(sequence.gap_ends(), now + 70s);
  EXPECT_EQ(sequence.next_new(), 6);
  EXPECT_EQ(sequence.take(), nullptr);
  const auto lost = sequence.give_up_gap();
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(seq_of(lost[0]), 2);
  EXPECT_EQ(seq_of(lost[1]), 5);
  EXPECT_EQ(sequence.next(), 6);
  for (std::int64_t seq = 1; seq < 6; ++seq) EXPECT_TRUE(sequence.used_up(seq));
}

}  // namespace
}  // namespace meshloom::control
