// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/nn/models/presets.h"
#include "daemon/train/config/config_place.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/config/refit.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resolve_evaluation.h"
#include "daemon/train/config/resolve_stepped.h"
#include "daemon/train/run/run.h"
#include "kernels/backend_table.h"
#include "tests/unit/train/data_files.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

HostDevices gpu_host(const std::string& name, int ranks, const std::vector<std::string>& classes) {
  HostDevices made{name, ranks};
  for (const std::string& compute_class : classes)
    made.cuda.push_back({static_cast<int>(made.cuda.size()), compute_class, kGiB});
  return made;
}

v1::RunConfig with_device(const std::string& word) {
  v1::RunConfig config;
  config.set_device(word);
  return config;
}

std::string device_of_word(const std::string& word, const WorldDevices& world) {
  v1::RunConfig config = with_device(word);
  resolve_device(config, world);
  return config.device();
}

/// What refuses a word, whose metadata name the field.
Error word_refusal(const std::string& word, const WorldDevices& world) {
  try {
    const std::string device = device_of_word(word, world);
    ADD_FAILURE() << word << " was taken as " << device;
  } catch (const Error& error) {
    EXPECT_EQ(error.metadata().at("field"), "run.device");
    EXPECT_THAT(error.what(), ::testing::StartsWith("run.device: "));
    return error;
  }
  return InternalError("taken");
}

const WorldDevices kCpus = {gpu_host("a", 2, {}), gpu_host("b", 2, {})};
const WorldDevices kAlike = {gpu_host("a", 3, {"sm_90", "sm_90"}), gpu_host("b", 1, {"sm_90"})};

TEST(DeviceChoice, AutoIsCudaWhereEveryRankHasADevice) {
  for (const char* open : {"", "auto"}) {
    EXPECT_EQ(device_of_word(open, {}), "cpu");
    EXPECT_EQ(device_of_word(open, kCpus), "cpu");
    EXPECT_EQ(device_of_word(open, {gpu_host("a", 2, {"sm_90"})}), "cuda");
    EXPECT_EQ(device_of_word(open, kAlike), "cuda");
    EXPECT_EQ(device_of_word(open, {gpu_host("a", 2, {"sm_90"}), gpu_host("b", 2, {})}), "cpu");
    EXPECT_TRUE(device_is_auto(with_device(open)));
  }
  EXPECT_FALSE(device_is_auto(with_device("cpu")));
}

TEST(DeviceChoice, WhatIsNamedIsTaken) {
  for (const char* word : {"cpu", "cuda", "cuda:0"}) EXPECT_EQ(device_of_word(word, kAlike), word);
  EXPECT_EQ(device_of_word("cpu", {}), "cpu");
  EXPECT_EQ(device_of_word("cuda:1", {kAlike[0]}), "cuda:1");
}

TEST(DeviceChoice, EveryOtherWordIsRefusedWithWhatWasExpected) {
  for (const char* word :
       {"gpu", "cuda:-1", "cuda:", "cuda:01", "cuda:00", "cuda:+1", "cuda:1 ", " cuda", "cuda:0x1",
        "cuda:99999999999", "CUDA", "Auto", "cpu:0", "cudas", "0", "cuda:one", "cuda;1"}) {
    const Error error = word_refusal(word, kAlike);
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument) << word;
    EXPECT_THAT(error.what(), AllOf(HasSubstr("must be auto, cpu, cuda or cuda:N"),
                                    HasSubstr(fmt::format("got \"{}\"", word))));
  }
}

TEST(DeviceChoice, ADeviceThatARankLacksIsRefusedByItsHost) {
  const auto missing = [](const std::string& word, const WorldDevices& world) {
    const Error error = word_refusal(word, world);
    EXPECT_EQ(error.kind(), ErrorKind::kFailedPrecondition) << word;
    EXPECT_EQ(error.reason(), "NEEDS_OTHER_DEVICES");
    EXPECT_EQ(error.metadata().at("device"), word);
    return error;
  };
  EXPECT_THAT(missing("cuda", {}).what(), HasSubstr("the daemon's ranks have none"));
  EXPECT_THAT(missing("cuda", kCpus).what(), HasSubstr("host a of 2 ranks has no cuda device"));
  const Error one = missing("cuda:1", kAlike);
  EXPECT_THAT(one.what(),
              AllOf(HasSubstr("\"cuda:1\" needs device cuda:1 on the host of every rank"),
                    HasSubstr("host b of 1 rank has cuda:0")));
  EXPECT_EQ(one.metadata().at("host"), "b");
  EXPECT_EQ(missing("cuda:2", kAlike).metadata().at("host"), "a");
  WorldDevices broken = kCpus;
  broken[0].trouble = "cuda:0: no driver";
  EXPECT_THAT(missing("cuda", broken).what(), HasSubstr("no cuda device (cuda:0: no driver)"));
}

TEST(DeviceChoice, DevicesOfSeveralClassesAreRefusedWhereTheyAreUsed) {
  const WorldDevices hosts = {gpu_host("a", 1, {"sm_90"}), gpu_host("b", 1, {"sm_80", "sm_90"})};
  for (const char* word : {"", "cuda", "cuda:0"}) {
    const Error error = word_refusal(word, hosts);
    EXPECT_EQ(error.reason(), "NEEDS_OTHER_DEVICES");
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cuda:0 of host a is of class sm_90"),
                                    HasSubstr("cuda:0 of host b is of class sm_80")));
  }
  EXPECT_FALSE(has_device(hosts, "cuda"));
  const WorldDevices one_host = {gpu_host("a", 1, {"sm_90", "sm_80"})};
  EXPECT_EQ(device_of_word("cuda", one_host), "cuda") << "its rank has the first";
  EXPECT_EQ(device_of_word("cuda:1", one_host), "cuda:1");
  EXPECT_EQ(word_refusal("cuda", {gpu_host("a", 2, {"sm_90", "sm_80"})}).metadata().at("host"),
            "a");
}

TEST(DeviceChoice, RanksOfAHostTakeItsDevicesInTurn) {
  HostDevices three = gpu_host("a", 5, {"x", "x", "x"});
  three.cuda[2].index = 7;
  const auto index = [&](int local_rank) {
    return to_string(device_of_rank("cuda", three, local_rank));
  };
  EXPECT_EQ(index(0), "cuda:0");
  EXPECT_EQ(index(2), "cuda:7");
  EXPECT_EQ(index(3), "cuda:0");
  EXPECT_EQ(index(4), "cuda:1");
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(to_string(device_of_rank("cuda:7", three, rank)), "cuda:7");
    EXPECT_EQ(device_of_rank("cpu", three, rank), kCpuDevice);
    EXPECT_EQ(device_of_rank("", three, rank), kCpuDevice) << "of an older daemon";
  }
  EXPECT_THROW(device_of_rank("cuda:2", three, 0), NeedsOtherDevices);
  std::vector<int> sharing;
  for (const UsedDevice& used : used_devices("cuda", three)) sharing.push_back(used.ranks);
  EXPECT_EQ(sharing, (std::vector<int>{2, 2, 1}));
  ASSERT_EQ(used_devices("cuda:1", three).size(), 1u);
  EXPECT_EQ(used_devices("cuda:1", three)[0].ranks, 5);
}

TEST(DeviceChoice, RankZeroHasTheFirstDeviceThatIsNotLeftOut) {
  HostDevices host = gpu_host("a", 2, {"x", "x"});
  host.cuda.erase(host.cuda.begin());
  host.trouble = "cuda:0: no driver";
  EXPECT_EQ(to_string(device_of_rank_zero("cuda", {host})), "cuda:1");
  EXPECT_EQ(device_of_rank_zero("cpu", {host}), kCpuDevice);
  EXPECT_THROW(device_of_rank_zero("cuda:0", {host}), NeedsOtherDevices);
  EXPECT_EQ(device_of_rank_zero("cuda", {}), kCpuDevice);
}

TEST(DeviceChoice, WhatIsOfferedIsWhatEveryRankHas) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(offered_devices({}), Names{"cpu"});
  EXPECT_EQ(offered_devices(kCpus), Names{"cpu"});
  EXPECT_EQ(offered_devices(kAlike), (Names{"cpu", "cuda", "cuda:0"}));
  EXPECT_EQ(offered_devices({gpu_host("a", 2, {"sm_90", "sm_80"})}),
            (Names{"cpu", "cuda:0", "cuda:1"}));
}

TEST(DeviceChoice, TheCpuIsAlwaysThere) {
  EXPECT_TRUE(has_device({}, "cpu"));
  EXPECT_TRUE(has_device({}, ""));
  EXPECT_FALSE(has_device({}, "cuda"));
  EXPECT_TRUE(has_device(kAlike, "cuda:0"));
  EXPECT_FALSE(has_device(kAlike, "cuda:1"));
  EXPECT_FALSE(has_device_memory("cpu"));
  EXPECT_FALSE(has_device_memory(""));
  EXPECT_TRUE(has_device_memory("cuda:3"));
}

/// Of configs of the tiny model, on the devices of this program.
class DeviceConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write_text("config.json", testing::tiny_gpt2_config());
    folder_.write_text("text.txt", std::string(2000, 'a'));
  }
  v1::RunConfig config(const std::string& device) const {
    v1::RunConfig config = with_device(device);
    config.mutable_model()->set_config("config.json");
    config.mutable_data()->set_path("text.txt");
    config.mutable_training()->set_steps(10);
    config.mutable_training()->set_global_batch_size(6);
    return config;
  }
  v1::RunConfig resolve(const v1::RunConfig& given, int ranks, const WorldDevices& world) const {
    return resolve_run_config(given,
                              {.world_size = ranks, .data_dir = folder_.path(), .devices = world});
  }
  v1::RunConfig refit(const v1::RunConfig& given, const v1::RunConfig& resolved, int ranks,
                      const WorldDevices& world) const {
    return refit_run_config(given, resolved,
                            {.world_size = ranks, .data_dir = folder_.path(), .devices = world});
  }

  const WorldDevices gpus_ = {gpu_host("a", 2, {"x", "x"})};
  testing::DataFolder folder_;
};

TEST_F(DeviceConfigTest, EveryKindOfConfigIsResolvedOnADevice) {
  EXPECT_EQ(resolve(config(""), 2, gpus_).device(), "cuda");
  EXPECT_EQ(resolve(config("cpu"), 2, gpus_).device(), "cpu");
  EXPECT_EQ(resolve(config(""), 2, {}).device(), "cpu");
  EXPECT_THROW(resolve(config("cuda"), 2, {}), NeedsOtherDevices);
  EXPECT_THROW(resolve(config("gpu"), 2, gpus_), InvalidArgument);
  const v1::RunConfig again = resolve(config("cuda:1"), 2, gpus_);
  EXPECT_EQ(resolve(again, 2, gpus_).SerializeAsString(), again.SerializeAsString());

  v1::RunConfig stepped = with_device("");
  stepped.mutable_model()->set_config("config.json");
  const auto of_run = [&](const WorldDevices& world) {
    return resolve_stepped_config(stepped,
                                  {.world_size = 2, .data_dir = folder_.path(), .devices = world})
        .device();
  };
  EXPECT_EQ(of_run(gpus_), "cuda");
  EXPECT_EQ(of_run({}), "cpu");

  const ConfigPlace place{2, folder_.path(), {}, {}, 2, gpus_};
  EXPECT_EQ(resolve_evaluation_config(config("cuda:0"), place, {}).device(), "cuda:0");
  EXPECT_THROW(resolve_evaluation_config(config("cuda:2"), place, {}), NeedsOtherDevices);
}

TEST_F(DeviceConfigTest, DtypeAutoAsksTheDevice) {
  const v1::RunConfig on_device = resolve(config("cuda:1"), 2, gpus_);
  kernels::Backend& device = kernels::backend_for({DeviceKind::kCuda, 1});
  const nn::ModelConfig model = nn::parse_hf_config(testing::tiny_gpt2_config());
  EXPECT_EQ(on_device.plan().dtype(), dtype_name(device.fast_dtype(model.hidden_size)));
  EXPECT_THAT(dtype_note(on_device, gpus_),
              HasSubstr("cuda class " + device.describe().compute_class));
  const std::string cpu = kernels::backend_for(kCpuDevice).describe().compute_class;
  EXPECT_THAT(dtype_note(resolve(config("cpu"), 2, gpus_), gpus_), HasSubstr("CPU class " + cpu));
}

TEST_F(DeviceConfigTest, DtypeAutoAsksRankZerosDevice) {
  HostDevices host = gpus_[0];
  host.cuda[0].index = 1;  // the program has a cuda:0, which the ranks do not use
  host.cuda.pop_back();
  const v1::RunConfig resolved = resolve(config("cuda"), 2, {host});
  const std::string used = kernels::backend_for({DeviceKind::kCuda, 1}).describe().compute_class;
  EXPECT_THAT(dtype_note(resolved, {host}), HasSubstr("cuda class " + used));
}

TEST_F(DeviceConfigTest, ForcedFusionIsRefusedOnADevice) {
  const auto refused = [&](const std::string& device, const std::string& mode, bool of_choice) {
    v1::RunConfig given = config(device);
    given.mutable_mesh()->set_tp(2);
    given.mutable_plan()->set_sequence_parallel(true);
    v1::FusionPlan& fusion = *given.mutable_plan()->mutable_fusion();
    v1::FusionChoice* choice = of_choice ? fusion.add_choices() : nullptr;
    if (choice) choice->set_pattern("transformer.h.*.mlp.c_fc");
    choice ? choice->set_mode(mode) : fusion.set_mode(mode);
    try {
      resolve(given, 2, gpus_);
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("is force"), HasSubstr("which device " + device + " has not")));
      return error.metadata().at("field");
    }
    return std::string("taken");
  };
  EXPECT_EQ(refused("cuda", "force", false), "run.plan.fusion.mode");
  EXPECT_EQ(refused("cuda:1", "force", true), "run.plan.fusion.choices[0].mode");
  EXPECT_EQ(refused("cuda", "auto", false), "taken");
  EXPECT_EQ(refused("cuda", "forbid", true), "taken");
  EXPECT_EQ(refused("cpu", "force", false), "taken");
}

TEST_F(DeviceConfigTest, AJobKeepsItsDeviceWhereTheRanksHaveIt) {
  const v1::RunConfig open = config(""), on_cuda = resolve(open, 2, gpus_);
  EXPECT_EQ(refit(open, on_cuda, 2, gpus_).SerializeAsString(), on_cuda.SerializeAsString());
  const v1::RunConfig on_cpu = resolve(open, 2, {});
  EXPECT_EQ(refit(open, on_cpu, 2, gpus_).device(), "cpu") << "it began there";
  EXPECT_EQ(refit(open, on_cpu, 1, {gpu_host("a", 1, {"x"})}).device(), "cpu");
  v1::RunConfig older = on_cpu;
  older.clear_device();
  EXPECT_EQ(refit(open, older, 2, gpus_).SerializeAsString(), older.SerializeAsString());
  EXPECT_EQ(refit(open, older, 1, {gpu_host("a", 1, {"x"})}).device(), "cpu");
}

TEST_F(DeviceConfigTest, AJobWhoseDeviceIsGoneGetsAnotherIfItNamedNone) {
  v1::RunConfig on_cuda = resolve(config(""), 2, gpus_);
  on_cuda.mutable_plan()->set_dtype("bfloat16");
  const v1::RunConfig now = refit(config(""), on_cuda, 2, {});
  EXPECT_EQ(now.device(), "cpu");
  EXPECT_EQ(now.plan().dtype(), "bfloat16") << "it goes on in the numbers that it began with";
  EXPECT_EQ(now.mesh().dp(), 2);
  const v1::RunConfig other_ranks = refit(config("auto"), on_cuda, 1, kCpus);
  EXPECT_EQ(other_ranks.device(), "cpu");
  EXPECT_EQ(other_ranks.mesh().dp(), 1);
  const v1::RunConfig named = config("cuda");
  EXPECT_THROW(refit(named, resolve(named, 2, gpus_), 2, kCpus), NeedsOtherDevices);
  EXPECT_THROW(refit(named, resolve(named, 2, gpus_), 1, {}), NeedsOtherDevices);
}

}  // namespace
}  // namespace meshloom::train
