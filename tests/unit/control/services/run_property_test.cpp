// SPDX-License-Identifier: Apache-2.0
// Random verbs from several clients at once, against a model of the run in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

enum class Kind {
  kGradients,
  kBadGradients,
  kForward,
  kSkip,
  kStep,
  kWeight,
  kSetWeight,
  kSave,
  kLoad,
  kSaveWeights,
  kRefused
};

struct Planned {
  Kind kind = Kind::kGradients;
  int amount = 0;  ///< of gradients; the weight; which of the states
  bool cancel = false;
  bool repeat = false;
};

std::vector<Planned> random_verbs(std::mt19937& random, int count) {
  const std::vector<Kind> kinds = {
      Kind::kGradients, Kind::kGradients,    Kind::kGradients, Kind::kGradients, Kind::kStep,
      Kind::kStep,      Kind::kStep,         Kind::kWeight,    Kind::kForward,   Kind::kSetWeight,
      Kind::kSave,      Kind::kLoad,         Kind::kSkip,      Kind::kRefused,   Kind::kSaveWeights,
      Kind::kWeight,    Kind::kBadGradients,
  };
  std::vector<Planned> verbs;
  for (int i = 0; i < count; ++i)
    verbs.push_back({kinds[random() % kinds.size()], static_cast<int>(random() % 9 + 1),
                     random() % 8 == 0, random() % 6 == 0});
  verbs.push_back({Kind::kStep, 0, false, false});
  verbs.push_back({Kind::kWeight, 0, false, false});
  return verbs;
}

/// A run in memory, which carries out one verb after the other.
struct ModelRun {
  double weight = 0, gradients = 0;
  std::int64_t step = 0;
  bool any = false;
  std::int64_t missing = 0;  ///< the first verb whose gradients are; 0: none is
  struct Saved {
    double weight = 0;
    std::int64_t step = 0;
  };
  std::map<int, Saved> states;  ///< by the number in their name

  void drop_gradients() {
    gradients = 0;
    any = false;
    missing = 0;
  }
  bool apply() {
    const bool applied = any && missing == 0;
    if (applied) {
      weight -= 0.5 * gradients;
      ++step;
    }
    drop_gradients();
    return applied;
  }
  bool load(int number) {
    const auto found = states.find(number);
    if (found == states.end()) return false;
    weight = found->second.weight;
    step = found->second.step;
    drop_gradients();
    return true;
  }
};

class RunPropertyTest : public RunServiceTest {
 protected:
  static std::string state_of(int amount) { return fmt::format("s{}", amount % 3); }

  static void send(Client& client, std::int64_t seq, const Planned& verb) {
    switch (verb.kind) {
      case Kind::kGradients: client.forward_backward(seq, {verb.amount}); break;
      case Kind::kBadGradients: client.forward_backward(seq, {verb.amount, -1}); break;
      case Kind::kForward: client.forward(seq, {verb.amount, verb.amount}); break;
      case Kind::kSkip: client.skip(seq); break;
      case Kind::kStep: client.optim_step(seq, 0.5); break;
      case Kind::kWeight: client.get_weight(seq); break;
      case Kind::kSetWeight: client.set_weight(seq, verb.amount); break;
      case Kind::kSave: {
        v1::SaveStateRequest request;
        request.set_name(state_of(verb.amount));
        request.set_overwrite(true);
        client.save_state(seq, request);
        break;
      }
      case Kind::kLoad:
        client.load_state(seq, client.run_.name() + "/states/" + state_of(verb.amount));
        break;
      case Kind::kSaveWeights:
        client.save_weights(seq, fmt::format("w{}", seq), v1::WEIGHTS_STORAGE_DISK);
        break;
      case Kind::kRefused: client.save_state(seq, "no/name"); break;
    }
  }

  /// One that was not cancelled, against what the model makes of it.
  static void compare_result(const Planned& verb, const v1::Operation& operation, ModelRun& model) {
    const bool succeeded = operation.state() == v1::OPERATION_STATE_SUCCEEDED;
    const v1::VerbResult& result = operation.result();
    switch (verb.kind) {
      case Kind::kGradients:
        EXPECT_TRUE(succeeded);
        model.gradients += verb.amount;
        model.any = true;
        break;
      case Kind::kForward:
        EXPECT_EQ(result.loss().metrics().at("loss:sum"), 2.0 * verb.amount);
        break;
      case Kind::kStep:
        if (model.missing > 0) {
          EXPECT_EQ(operation.error().info().metadata().at("seq"), std::to_string(model.missing));
        }
        EXPECT_EQ(succeeded, model.apply()) << operation.error().message();
        if (succeeded) {
          EXPECT_EQ(result.optim_step().step(), model.step);
        }
        break;
      case Kind::kWeight: EXPECT_EQ(weight(operation), model.weight); break;
      case Kind::kSetWeight:
        EXPECT_TRUE(succeeded);
        model.weight = verb.amount;
        model.drop_gradients();
        break;
      case Kind::kSave:
        EXPECT_EQ(result.saved_state().step(), model.step);
        model.states[verb.amount % 3] = {model.weight, model.step};
        break;
      case Kind::kLoad: EXPECT_EQ(succeeded, model.load(verb.amount % 3)); break;
      case Kind::kSaveWeights: EXPECT_EQ(result.saved_weights().step(), model.step); break;
      case Kind::kBadGradients:
      case Kind::kSkip:
      case Kind::kRefused: break;
    }
  }

  /// What each verb must have come to, given which ones were cancelled in time.
  static ModelRun compare(Client& client, const std::vector<Planned>& verbs) {
    ModelRun model;
    for (std::size_t i = 0; i < verbs.size(); ++i) {
      const auto seq = static_cast<std::int64_t>(i + 1);
      const Kind kind = verbs[i].kind;
      SCOPED_TRACE(fmt::format("verb {} of kind {}", seq, static_cast<int>(kind)));
      if (kind == Kind::kRefused) continue;
      const v1::Operation operation = client.wait(seq);
      const bool cancelled = operation.state() == v1::OPERATION_STATE_CANCELLED;
      EXPECT_TRUE(!cancelled || verbs[i].cancel);
      const bool lost = kind == Kind::kBadGradients || kind == Kind::kSkip ||
                        (kind == Kind::kGradients && cancelled);
      if (lost && model.missing == 0) model.missing = seq;
      if (!cancelled) compare_result(verbs[i], operation, model);
    }
    return model;
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
    const ModelRun model = compare(owner, verbs);
    EXPECT_EQ(owner.get().step(), model.step);
    owner.sample(2, 3);
    const v1::Operation sampled = owner.wait(owner.last_.name());
    for (const v1::SampledSequence& drawn : sampled.result().sample().sequences())
      EXPECT_EQ(drawn.weights_step(), model.step);
    owner.close();
    EXPECT_EQ(owner.wait_for(v1::RUN_STATE_CLOSED).state(), v1::RUN_STATE_CLOSED);
  }
  EXPECT_EQ(plan_.live_runs, 0);
}

}  // namespace
}  // namespace meshloom::control
