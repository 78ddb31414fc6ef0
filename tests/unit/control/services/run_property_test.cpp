// SPDX-License-Identifier: Apache-2.0
// Random verbs from several clients at once, against a model of the run in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

enum class Kind { kGradients, kBadGradients, kSkip, kStep, kWeight, kRefused };

struct Planned {
  Kind kind = Kind::kGradients;
  int amount = 0;  ///< of gradients
  bool cancel = false;
  bool repeat = false;
};

std::vector<Planned> random_verbs(std::mt19937& random, int count) {
  const std::vector<Kind> kinds = {Kind::kGradients,    Kind::kGradients, Kind::kGradients,
                                   Kind::kStep,         Kind::kStep,      Kind::kWeight,
                                   Kind::kBadGradients, Kind::kSkip,      Kind::kRefused};
  std::vector<Planned> verbs;
  for (int i = 0; i < count; ++i)
    verbs.push_back({kinds[random() % kinds.size()], static_cast<int>(random() % 9 + 1),
                     random() % 8 == 0, random() % 6 == 0});
  verbs.push_back({Kind::kStep, 0, false, false});
  verbs.push_back({Kind::kWeight, 0, false, false});
  return verbs;
}

class RunPropertyTest : public RunServiceTest {
 protected:
  static void send(Client& client, std::int64_t seq, const Planned& verb) {
    switch (verb.kind) {
      case Kind::kGradients: client.forward_backward(seq, {verb.amount}); break;
      case Kind::kBadGradients: client.forward_backward(seq, {verb.amount, -1}); break;
      case Kind::kSkip: client.skip(seq); break;
      case Kind::kStep: client.optim_step(seq, 0.5); break;
      case Kind::kWeight: client.get_weight(seq); break;
      case Kind::kRefused: client.save_state(seq, "no/name"); break;
    }
  }

  /// What each verb must have come to, given which ones were cancelled in time.
  void compare(Client& client, const std::vector<Planned>& verbs) {
    double weight_now = 0, gradients = 0;
    bool any = false, poisoned = false;
    for (std::size_t i = 0; i < verbs.size(); ++i) {
      const auto seq = static_cast<std::int64_t>(i + 1);
      SCOPED_TRACE(fmt::format("verb {} of kind {}", seq, static_cast<int>(verbs[i].kind)));
      if (verbs[i].kind == Kind::kRefused) continue;
      const v1::Operation operation = client.wait(seq);
      const bool cancelled = operation.state() == v1::OPERATION_STATE_CANCELLED;
      const bool succeeded = operation.state() == v1::OPERATION_STATE_SUCCEEDED;
      EXPECT_TRUE(!cancelled || verbs[i].cancel);
      switch (verbs[i].kind) {
        case Kind::kGradients:
          EXPECT_TRUE(succeeded || cancelled);
          poisoned |= cancelled;
          gradients += cancelled ? 0 : verbs[i].amount;
          any |= !cancelled;
          break;
        case Kind::kBadGradients:
        case Kind::kSkip: poisoned = true; break;
        case Kind::kWeight:
          if (!cancelled) {
            EXPECT_EQ(weight(operation), weight_now);
          }
          break;
        case Kind::kStep:
          if (cancelled) break;
          EXPECT_EQ(succeeded, any && !poisoned) << operation.error().message();
          if (succeeded) weight_now -= 0.5 * gradients;
          gradients = 0;
          any = poisoned = false;
          break;
        case Kind::kRefused: break;
      }
    }
  }
};

TEST_F(RunPropertyTest, VerbsInAnyOrderComeToWhatTheirNumbersSay) {
  start();
  std::mt19937 random(11);
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    Client owner = with_run();
    const std::vector<Planned> verbs = random_verbs(random, 40);
    std::vector<std::int64_t> arrival(verbs.size());
    std::iota(arrival.begin(), arrival.end(), 1);
    std::shuffle(arrival.begin(), arrival.end(), random);
    std::vector<std::thread> senders;
    for (std::size_t sender = 0; sender < 4; ++sender)
      senders.emplace_back([&, sender] {
        Client client = this->client();
        client.run_ = owner.run_;
        client.token_ = owner.token_;
        for (std::size_t i = sender; i < arrival.size(); i += 4) {
          const std::int64_t seq = arrival[i];
          const Planned& verb = verbs[static_cast<std::size_t>(seq - 1)];
          send(client, seq, verb);
          if (verb.repeat) send(client, seq, verb);
          if (verb.cancel) client.cancel(seq);
        }
      });
    for (std::thread& sender : senders) sender.join();
    compare(owner, verbs);
    owner.close();
    EXPECT_EQ(owner.wait_for(v1::RUN_STATE_CLOSED).state(), v1::RUN_STATE_CLOSED);
  }
  EXPECT_EQ(plan_.live_runs, 0);
}

}  // namespace
}  // namespace meshloom::control
