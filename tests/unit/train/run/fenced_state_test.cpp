// SPDX-License-Identifier: Apache-2.0
// Weights on their way onto devices behind a fence: from folders and from messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "daemon/train/run/weight_snapshots.h"
#include "daemon/train/run/whole_parameters.h"
#include "tests/support/device_ranks.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::train {
namespace {

/// Bytes of float32 values by name.
using WholeWeights = std::map<std::string, std::string>;

ModelStateOptions sharded_options(DType dtype) {
  ModelStateOptions options;
  options.plan.fully_shard = true;
  options.plan.tensor_parallel = true;
  options.plan.dtype = dtype;
  return options;
}

v1::Mesh fsdp_and_tp() {
  v1::Mesh sizes;
  sizes.set_dp(1);
  sizes.set_fsdp(2);
  sizes.set_cp(1);
  sizes.set_tp(2);
  return sizes;
}

/// On rank 0; nothing on the others.
WholeWeights weights_of(ModelState& state) {
  std::vector<std::string> names;
  for (const nn::NamedParameter& p : state.optimizer().parameters()) names.push_back(p.name);
  WholeWeights weights;
  for (const v1::ParameterValue& value : whole_parameters(state, names))
    weights[value.name()] = value.data();
  return weights;
}

class FencedStateTest : public ::testing::Test {
 protected:
  /// Saves a model of one rank as a Hugging Face folder.
  void SetUp() override {
    testing::run_ranks(1, [&](comm::ProcessGroup& world) {
      ExecutionContext context;
      v1::Mesh one = fsdp_and_tp();
      one.set_fsdp(1);
      one.set_tp(1);
      RunMesh mesh(world, mesh_layout(one));
      ModelState state(context, config_, {}, mesh);
      state.initialize(3);
      state.export_hf(saved_, DType::kFloat32, {});
      state.initialize(4);
      for (const auto& [name, data] : weights_of(state)) {
        v1::ParameterValue& value = sent_.emplace_back();
        value.set_name(name);
        value.set_dtype("float32");
        value.set_data(data);
      }
      for (std::size_t i = 0; i < state.specs().size(); ++i) {
        const std::string& name = state.optimizer().parameters()[i].name;
        const auto value = std::ranges::find(sent_, name, &v1::ParameterValue::name);
        for (const std::int64_t size : state.specs()[i]->shape()) value->add_shape(size);
      }
      state.load_hf(saved_, 0);
      loaded_ = weights_of(state);
    });
  }

  void on_devices(DType dtype, const std::function<void(ModelState&, bool rank_zero)>& body) const {
    testing::run_fenced_ranks(4, [&](comm::ProcessGroup& world) {
      const ExecutionContext::Options options = testing::context_of(world);
      ExecutionContext context(options);
      RunMesh mesh(world, mesh_layout(fsdp_and_tp()));
      ModelState state(context, config_, sharded_options(dtype), mesh);
      body(state, world.rank() == 0);
    });
  }

  const test::TempFolder folder_;
  const std::filesystem::path saved_ = folder_.path() / "saved";
  const nn::ModelConfig config_ = nn::parse_hf_config(testing::tiny_gpt2_config());
  WholeWeights loaded_;
  std::vector<v1::ParameterValue> sent_;
};

TEST_F(FencedStateTest, WeightsOfFoldersAndMessagesHaveTheBitsOfTheCpu) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16})
    on_devices(dtype, [&](ModelState& state, bool rank_zero) {
      state.load_hf(saved_, 0);
      const WholeWeights loaded = weights_of(state);
      set_whole_parameters(state, sent_, [] {});
      const WholeWeights received = weights_of(state);
      if (!rank_zero) return;
      EXPECT_EQ(loaded, loaded_);
      ASSERT_EQ(received.size(), sent_.size());
      for (const v1::ParameterValue& value : sent_)
        EXPECT_EQ(received.at(value.name()), value.data()) << value.name();
    });
}

TEST_F(FencedStateTest, SnapshotsOfFoldersAreExchangedOnTheDevice) {
  on_devices(DType::kFloat32, [&](ModelState& state, bool rank_zero) {
    state.initialize(9);
    const WholeWeights own = weights_of(state);
    WeightSnapshots snapshots(state, base::own_disk());
    const WeightSnapshots::Handle saved = snapshots.load(saved_, 1);
    snapshots.use(saved);
    const WholeWeights used = weights_of(state);
    snapshots.use(nullptr);
    const WholeWeights again = weights_of(state);
    if (!rank_zero) return;
    EXPECT_EQ(used, loaded_);
    EXPECT_EQ(again, own);
  });
}

}  // namespace
}  // namespace meshloom::train
