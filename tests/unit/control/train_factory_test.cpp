// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/train_factory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "daemon/train/config/resolve_stepped.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::control {
namespace {

constexpr int kFactoryRanks = 2;

class TrainFactoryTest : public ::testing::Test {
 protected:
  TrainFactoryTest() {
    std::ofstream(folder_.path() / "config.json") << testing::tiny_gpt2_config();
  }
  v1::RunConfig on(const std::string& device) const {
    v1::RunConfig config;
    config.mutable_model()->set_config("config.json");
    config.mutable_plan()->set_dtype("float32");
    config.mutable_training()->set_micro_batch_size(1);
    config.set_device(device);
    return train::resolve_stepped_config(
        config, {.world_size = kFactoryRanks, .data_dir = folder_.path(), .devices = {host_}});
  }
  train::RunOptions options() const {
    train::RunOptions options;
    options.folders.data_dir = folder_.path();
    return options;
  }
  /// On every rank, with a factory of the daemon.
  void on_ranks(const std::function<void(TrainFactory&, comm::ProcessGroup&)>& body) const {
    testing::run_thread_ranks(kFactoryRanks, [&](comm::RankRuntime& runtime) {
      const auto world = runtime.make_world_group();
      {
        TrainFactory factory(*world, 1, nullptr, {&runtime, {}, host_, runtime.rank()});
        body(factory, *world);
        runtime.bootstrap().barrier();
      }
    });
  }
  /// Of a run that is made and dropped in a verb: the bytes of a parameter, on rank 0.
  std::string first_parameter(TrainFactory& factory, const std::string& device) const {
    std::string bytes;
    factory.run_in_step([&] {
      const auto run = factory.create(on(device), options());
      const auto values = run->get_parameters({"transformer.wte.weight"});
      if (!values.empty()) bytes = values.front().data();
    });
    return bytes;
  }

  const test::TempFolder folder_;
  const train::HostDevices host_{"here", kFactoryRanks, {{0, "x", 0}, {1, "x", 0}}};
};

TEST_F(TrainFactoryTest, RunsComputeOnTheDeviceThatTheyName) {
  on_ranks([&](TrainFactory& factory, comm::ProcessGroup& world) {
    const std::string cpu = first_parameter(factory, "cpu");
    EXPECT_EQ(cpu.empty(), world.rank() != 0);
    for (const char* device : {"cuda", "cpu", "cuda"})
      EXPECT_EQ(first_parameter(factory, device), cpu) << device;
  });
}

TEST_F(TrainFactoryTest, ARankThatFailsAloneDoesNotKeepOthersFromTheDevice) {
  on_ranks([&](TrainFactory& factory, comm::ProcessGroup& world) {
    EXPECT_THROW(factory.run_in_step([&] {
      if (world.rank() == 1) throw IoError("this rank alone");
      static_cast<void>(factory.create(on("cuda"), options()));
    }),
                 Error);
    EXPECT_EQ(factory.recoveries(), 1u);
    EXPECT_EQ(first_parameter(factory, "cuda"), first_parameter(factory, "cpu"));
  });
}

TEST_F(TrainFactoryTest, ADeviceThatTheHostLacksIsRefused) {
  on_ranks([&](TrainFactory& factory, comm::ProcessGroup&) {
    v1::RunConfig config = on("cpu");
    config.set_device("cuda:5");
    EXPECT_THROW(factory.run_in_step([&] { factory.create(config, options()); }),
                 FailedPrecondition);
  });
}

}  // namespace
}  // namespace meshloom::control
