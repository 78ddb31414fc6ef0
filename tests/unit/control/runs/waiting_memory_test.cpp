// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/waiting_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "daemon/control/runs/verb.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

std::string limit_of(const std::function<void()>& refused) {
  try {
    refused();
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "VERBS_FULL");
    return error.metadata().at("limit");
  }
  return "";
}

TEST(WaitingMemory, BoundsARunAClientAndAll) {
  WaitingMemory memory({.of_run = 100, .of_client = 150, .of_all = 200});
  auto first = memory.take("a", "one", 60);
  EXPECT_EQ(limit_of([&] { memory.take("a", "one", 41); }), "100");
  auto second = memory.take("b", "one", 90);
  EXPECT_EQ(limit_of([&] { memory.take("c", "one", 1); }), "150");
  auto third = memory.take("d", "two", 50);
  EXPECT_EQ(limit_of([&] { memory.take("e", "three", 1); }), "200");
  // What was refused has taken nothing.
  first.release();
  EXPECT_EQ(limit_of([&] { memory.take("e", "three", 61); }), "200");
  auto fourth = memory.take("e", "three", 60);
  third.release();
  EXPECT_NO_THROW(memory.take("a", "one", 50));
}

TEST(WaitingMemory, WhatIsHeldMayOutliveIt) {
  MemoryUnits held;
  {
    WaitingMemory memory({});
    held = memory.take("a", "one", 1);
  }
  held.release();
}

TEST(WaitingMemory, ARefusedVerbKeepsItsNumberAndKindAlone) {
  v1::ForwardBackwardRequest large;
  large.mutable_id()->set_run("runs/r");
  large.mutable_id()->set_seq(7);
  for (int i = 0; i < 1000; ++i) large.mutable_batch()->add_data()->add_tokens(1);
  const Verb::Request request = large;
  EXPECT_GT(bytes_of(request), std::get<0>(request).ByteSizeLong() * 2);
  const Verb::Request kept = number_of(request);
  EXPECT_LT(bytes_of(kept), 500u);
  EXPECT_EQ(id_of(kept).seq(), 7);
  EXPECT_STREQ(name_of(kept), "forward_backward");
  EXPECT_TRUE(adds_gradients(kept));
  // Of a skip it counts what it was to be.
  for (const std::string& verb :
       {std::string(), std::string("optim_step"), std::string(1 << 20, 'x')}) {
    v1::SkipRequest skip;
    skip.set_verb(verb);
    const Verb::Request left = number_of(skip);
    EXPECT_EQ(adds_gradients(left), adds_gradients(Verb::Request(skip)));
    EXPECT_LT(bytes_of(left), 500u);
  }
}

}  // namespace
}  // namespace meshloom::control
