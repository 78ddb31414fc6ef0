// SPDX-License-Identifier: Apache-2.0
// What a stepped run is saved as, begins with, and gives out: states, parameters, exported folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "daemon/train/files/manifest.h"
#include "kernels/base/error.h"
#include "tests/unit/train/run/stepped_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::UnorderedElementsAre;

class SteppedStateTest : public SteppedFixture {};

TEST_F(SteppedStateTest, StateGoesFromAnyMeshToAnyMesh) {
  const v1::LossBatch first = random_batch("cross_entropy", 5, 12);
  const v1::LossBatch second = random_batch("ppo", 4, 13);
  // A large eps, so that a step is smooth in gradients near 0.
  v1::OptimStepParams params;
  params.set_eps(0.1);
  const test::TempFolder states;
  std::map<std::string, std::vector<float>> expected, warm;
  on_mesh({"fsdp2_tp2", 1, 2, 1, 2}, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
    for (int i = 0; i < 3; ++i) {
      run.forward_backward(first);
      run.optim_step(params);
    }
    run.forward_backward(second);  // gathered gradients are no part of a state
    run->save_state(states.path() / "a", {{"loop", "7"}, {"next", "x"}});
    EXPECT_EQ(reason_of<AlreadyExists>([&] { run->save_state(states.path() / "a", {}); }),
              "ALREADY_EXISTS");
    EXPECT_EQ(run.optim_step(params).step(), 4);
    const auto values = parameters_of(run);
    if (world.rank() == 0) expected = values;
  });
  const Manifest manifest = read_manifest(states.path() / "a");
  EXPECT_EQ(manifest.step, 3);
  EXPECT_THAT(manifest.user_metadata,
              UnorderedElementsAre(std::pair<const std::string, std::string>("loop", "7"),
                                   std::pair<const std::string, std::string>("next", "x")));
  for (const WholeMesh& m : kWholeMeshes) {
    SCOPED_TRACE(m.name);
    const auto go_on = [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      EXPECT_EQ(run->step(), 3);
      run.forward_backward(second);
      EXPECT_EQ(run.optim_step(params).step(), 4);
      for (const auto& [name, values] : parameters_of(run))
        for (std::size_t i = 0; i < values.size(); ++i)
          ASSERT_NEAR(values[i], expected.at(name)[i], 1e-5) << name << " " << i;
      (void)world;
    };
    RunOptions options;
    options.folders.state = states.path() / "a";
    on_mesh(m, go_on, options);
    on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      run.forward_backward(first);
      run->load_state(states.path() / "a", true);
      EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.optim_step(params); }), "NO_GRADIENTS");
      go_on(run, world);
      // Without optimizer: moments and steps begin anew.
      run->load_state(states.path() / "a", false);
      EXPECT_EQ(run->step(), 0);
      run.forward_backward(second);
      EXPECT_EQ(run.optim_step(params).step(), 1);
      const auto values = parameters_of(run);
      if (world.rank() != 0) return;
      EXPECT_NE(values, expected);
      if (warm.empty()) warm = values;
      for (const auto& [name, own] : values)
        for (std::size_t i = 0; i < own.size(); ++i)
          ASSERT_NEAR(own[i], warm.at(name)[i], 1e-5) << name << " " << i;
    });
  }
}

TEST_F(SteppedStateTest, AStateOfAnotherModelOrOptimizerIsRefused) {
  const test::TempFolder states;
  on_mesh({}, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    run->save_state(states.path() / "adamw", {});
    EXPECT_THROW(run->load_state(states.path() / "missing", true), NotFound);
  });
  v1::RunConfig sgd = stepped_config({});
  sgd.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
  on_mesh({}, sgd, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    EXPECT_EQ(
        reason_of<FailedPrecondition>([&] { run->load_state(states.path() / "adamw", true); }),
        "CHECKPOINT_MISMATCH");
    run->load_state(states.path() / "adamw", false);
  });
}

TEST_F(SteppedStateTest, WholeParametersGoOutAndIn) {
  const v1::LossBatch batch = random_batch("cross_entropy", 3, 14);
  std::vector<v1::ParameterValue> saved;
  double loss = 0.0;
  on_mesh({}, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    run.forward_backward(batch);
    run.optim_step({});
    saved = run->get_parameters(parameter_names());
    loss = run.forward(batch, false).metrics().at("loss:sum");
  });
  ASSERT_EQ(saved.size(), parameter_names().size());
  EXPECT_EQ(saved[0].name(), "transformer.wte.weight");
  EXPECT_THAT(saved[0].shape(), ::testing::ElementsAre(256, 16));
  for (const WholeMesh& m : kWholeMeshes) {
    on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      run.forward_backward(batch);
      run->set_parameters(saved);
      EXPECT_EQ(reason_of<FailedPrecondition>([&] { run.optim_step({}); }), "NO_GRADIENTS");
      const auto told = run->get_parameters(parameter_names());
      const v1::LossOutput output = run.forward(batch, false);
      ASSERT_EQ(told.size(), world.rank() == 0 ? saved.size() : 0u);
      for (std::size_t i = 0; i < told.size(); ++i)
        EXPECT_EQ(told[i].SerializeAsString(), saved[i].SerializeAsString());
      if (world.rank() == 0) {
        EXPECT_NEAR(output.metrics().at("loss:sum"), loss, 1e-4);
      }
      EXPECT_THROW(run->get_parameters({"transformer.wte.weight", "lm_head"}), NotFound);
      const auto refused = [&](const auto& change) {
        std::vector<v1::ParameterValue> values = {saved[0], saved[1]};
        change(values);
        return field_of([&] { run->set_parameters(values); });
      };
      EXPECT_EQ(refused([](auto& v) { v[1] = v[0]; }), "parameters[1].name");
      EXPECT_EQ(refused([](auto& v) { v[1].set_dtype("float16"); }), "parameters[1].dtype");
      EXPECT_EQ(refused([](auto& v) { v[0].set_shape(0, 128); }), "parameters[0].shape");
      EXPECT_EQ(refused([](auto& v) { v[0].mutable_data()->pop_back(); }), "parameters[0].data");
      const float bad = NAN;
      EXPECT_EQ(refused([&](auto& v) { std::memcpy(v[1].mutable_data()->data(), &bad, 4); }),
                "parameters[1].data");
      EXPECT_THROW(run->set_parameters({[&] {
        v1::ParameterValue value = saved[0];
        value.set_name("wte");
        return value;
      }()}),
                   NotFound);
      EXPECT_EQ(run.forward(batch, false).metrics().contains("loss:sum"), world.rank() == 0);
    });
  }
}

TEST_F(SteppedStateTest, AnExportedFolderIsAModelToBeginWith) {
  const v1::LossBatch batch = random_batch("dro", 3, 15);
  const test::TempFolder folders;
  double loss = 0.0;
  on_mesh({"tp2", 1, 1, 1, 2}, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
    run.forward_backward(batch);
    run.optim_step({});
    run->export_hf(folders.path() / "hf", "float32");
    const v1::LossOutput output = run.forward(batch, false);
    if (world.rank() == 0) loss = output.metrics().at("loss:sum");
    EXPECT_THROW(run->export_hf(folders.path() / "hf", "int8"), InvalidArgument);
  });
  v1::RunConfig c = stepped_config({"dp2", 2});
  c.clear_model();
  c.mutable_model()->set_name("tuned");
  RunOptions options;
  options.folders.model = folders.path() / "hf";
  on_mesh(
      {"dp2", 2}, c,
      [&](WholeBatchRun& run, comm::ProcessGroup& world) {
        EXPECT_EQ(run->step(), 0);
        const v1::LossOutput output = run.forward(batch, false);
        if (world.rank() == 0) {
          EXPECT_NEAR(output.metrics().at("loss:sum"), loss, 1e-4);
        }
      },
      options);
}

// Whole files with a manifest that says less of them: every rank reads some and then fails.
TEST_F(SteppedStateTest, WhatFailsWhileItIsReadLeavesTheWeightsUndefined) {
  const test::TempFolder states;
  const auto folder = states.path() / "a";
  const v1::LossBatch batch = random_batch("cross_entropy", 3, 31);
  on_mesh({}, [&](WholeBatchRun& run, comm::ProcessGroup&) {
    run.forward_backward(batch);
    run.optim_step({});
    run->save_state(folder, {});
  });
  Manifest manifest = read_manifest(folder);
  const auto write = [&] {
    std::ofstream(folder / kManifestName, std::ios::trunc) << manifest_to_json(manifest);
  };
  for (const WholeMesh& m : {WholeMesh{}, WholeMesh{"dp2", 2}}) {
    const Manifest whole = manifest;
    on_mesh(m, [&](WholeBatchRun& run, comm::ProcessGroup& world) {
      run->load_state(folder, true);
      EXPECT_THROW(run->load_state(states.path() / "missing", true), NotFound);
      v1::ParameterValue wrong;
      wrong.set_name("no_such");
      EXPECT_THROW(run->set_parameters({wrong}), NotFound);
      v1::OptimStepParams bad;
      bad.set_lr(NAN);
      run.forward_backward(batch);
      EXPECT_THROW(run.optim_step(bad), InvalidArgument);
      EXPECT_FALSE(run->weights_undefined()) << "nothing was written";
      world.barrier()->wait_host();
      if (world.rank() == 0) {
        manifest.files.back().pieces.pop_back();
        write();
      }
      world.barrier()->wait_host();
      EXPECT_EQ(reason_of<DataLoss>([&] { run->load_state(folder, true); }), "CHECKPOINT_DAMAGED");
      EXPECT_TRUE(run->weights_undefined());
    });
    manifest = whole;
    write();
  }
}

}  // namespace
}  // namespace meshloom::train
