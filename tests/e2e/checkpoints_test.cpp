// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are exported and deleted by hand, also while jobs train.
#include <fmt/format.h>

#include <fstream>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

class CheckpointsE2e : public DaemonTest {
 protected:
  /// "first": on fsdp2, checkpoints of steps 20 and 30, an export of step 30.
  void train_first() {
    TinyJob tiny;
    tiny.steps = 30;
    tiny.checkpoint_interval = 10;
    tiny.extra = "  export: {hf_folder: hf}\n";
    const auto result = client({"job", "submit", write_job(tiny, "first.yaml"), "--name", "first",
                                "--plan", plan_path("fsdp2")});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    ASSERT_TRUE(reaches("first", "succeeded")) << job("first").dump(2);
  }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    const Json all = client_json({"checkpoint", "list", "--job", "first"});
    for (const Json& item : all["checkpoints"]) names.push_back(item["name"]);
    return names;
  }
  fs::path files_of(const std::string& name) const { return state_ / "jobs" / "first" / name; }
};

using Names = std::vector<std::string>;

TEST_F(CheckpointsE2e, AnExportBesideAJobThatTrainsHasTheBytesOfTheJobsOwn) {
  start();
  train_first();
  submit_endless("fsdp2", "beside", 5);
  const Json exported = client_json({"checkpoint", "export", "checkpoints/first/step-30"});
  EXPECT_EQ(exported["checkpoint"]["name"], "checkpoints/first/hf-step-30");
  EXPECT_EQ(exported["checkpoint"]["step"], 30);
  EXPECT_EQ(exported["dtype"], "float32");
  EXPECT_EQ(exported["folder"], files_of("hf-step-30").string());
  EXPECT_EQ(exported["files"].size(), exported["checkpoint"]["files"].get<std::size_t>());
  for (const Json& file : exported["files"])
    EXPECT_EQ(read_file(files_of("hf-step-30") / file["name"].get<std::string>()),
              read_file(files_of("hf") / file["name"].get<std::string>()))
        << file;
  const int step = job("beside")["step"];
  EXPECT_TRUE(reaches_step("beside", step + 5)) << "it trains on";
  EXPECT_EQ(job("beside")["attempt"], 1);

  // An older one, in another dtype, by text; then what can be done with it.
  const auto text =
      client({"checkpoint", "export", "checkpoints/first/step-20", "--dtype", "bfloat16"});
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_NE(text.output.find("checkpoints/first/hf-step-20-bfloat16: "), std::string::npos);
  EXPECT_NE(text.output.find("model.safetensors"), std::string::npos) << text.output;
  EXPECT_EQ(client_json({"checkpoint", "export", "checkpoints/first"})["checkpoint"]["step"], 30);
  EXPECT_EQ(names(),
            Names({"checkpoints/first/step-20", "checkpoints/first/step-30", "checkpoints/first/hf",
                   "checkpoints/first/hf-step-20-bfloat16", "checkpoints/first/hf-step-30"}));
  const std::string there = (data_ / "copied").string();
  ASSERT_EQ(client({"checkpoint", "download", "checkpoints/first/hf-step-30", there}).exit_code, 0);
  const auto sample = [&](const Arguments& source) {
    Arguments all{"generate", "--prompt", "in", "--max-tokens", "8", "--seed", "2"};
    all.insert(all.end(), source.begin(), source.end());
    return client(all).output;
  };
  EXPECT_EQ(sample({"--hf-folder", "copied"}), sample({"--checkpoint", "checkpoints/first/hf"}));

  expect_refused_for({"checkpoint", "export", "checkpoints/first/hf"}, "ALREADY_EXPORTED");
  expect_refused_for({"checkpoint", "export", "checkpoints/first/step-25"}, "CHECKPOINT_NOT_FOUND");
  expect_refused_for({"checkpoint", "export", "checkpoints/first/step-30", "--dtype", "int8"},
                     "int8");
  expect_refused_for({"checkpoint", "export", "checkpoints/beside"}, "CHECKPOINT_NOT_FOUND");
  expect_refused_for({"checkpoint", "export", "checkpoints/nobody"}, "CHECKPOINT_NOT_FOUND");
  expect_refused_for({"checkpoint", "export", "/etc"}, "NAME_INVALID");
  const fs::path shard = files_of("checkpoints/step-20/shard-00001-of-00002.safetensors");
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-5, std::ios::end);
  file.put('!');
  file.close();
  expect_refused_for({"checkpoint", "export", "checkpoints/first/step-20"}, "CHECKPOINT_DAMAGED");
  EXPECT_EQ(names().size(), 5u);
}

TEST_F(CheckpointsE2e, ADamagedExportIsFoundWhenItIsCopiedOrVerified) {
  start();
  train_first();
  const auto copy = [&](const std::string& to) {
    return client({"checkpoint", "download", "checkpoints/first/hf", (folder_ / to).string()});
  };
  const auto whole = copy("whole");
  EXPECT_NE(whole.output.find("digests right"), std::string::npos) << whole.output;
  EXPECT_TRUE(fs::exists(folder_ / "whole/meshloom_digests.json"));
  const auto verify = [&] {
    return client({"checkpoint", "list", "--verify", "--job", "first"}).output;
  };
  EXPECT_EQ(verify().find("damaged"), std::string::npos) << verify();

  std::fstream file(files_of("hf/model.safetensors"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-5, std::ios::end);
  file.put('!');
  file.close();
  EXPECT_NE(verify().find("model.safetensors is damaged"), std::string::npos) << verify();
  expect_refused_for(
      {"checkpoint", "download", "checkpoints/first/hf", (folder_ / "damaged").string()},
      "CHECKPOINT_DAMAGED");
  EXPECT_FALSE(fs::exists(folder_ / "damaged"));

  // As of a daemon from before exports had digests.
  fs::remove(files_of("hf/meshloom_digests.json"));
  const auto older = copy("older");
  EXPECT_EQ(older.exit_code, 0) << older.errors;
  EXPECT_NE(older.output.find("no digests to compare with"), std::string::npos) << older.output;
  EXPECT_NE(verify().find("no digests"), std::string::npos) << verify();
}

TEST_F(CheckpointsE2e, WhatIsDeletedStaysSoAndWhatIsNeededIsKept) {
  start();
  train_first();
  submit_endless("dp2", "beside", 5);
  TinyJob next;
  next.resume_from = "checkpoints/first/step-20";
  next.steps = 40;
  submit(next, "next");  // waits behind "beside"
  const auto remove = [&](const std::string& name, const Arguments& flags = {}) {
    Arguments all{"checkpoint", "delete", "checkpoints/" + name};
    all.insert(all.end(), flags.begin(), flags.end());
    return client(all);
  };
  expect_refused_for({"checkpoint", "delete", "checkpoints/first/step-20"}, "CHECKPOINT_IN_USE");
  expect_refused_for({"checkpoint", "delete", "checkpoints/first/step-20", "--force"},
                     "CHECKPOINT_IN_USE");
  expect_refused_for({"checkpoint", "delete", "checkpoints/first/step-30"}, "CHECKPOINT_IS_LAST");
  expect_refused_for({"checkpoint", "delete", "checkpoints/first/step-10"}, "CHECKPOINT_NOT_FOUND");
  expect_refused_for({"checkpoint", "delete", "checkpoints/first/.."}, "NAME_INVALID");
  expect_refused_for({"checkpoint", "delete", "checkpoints/first/metrics.jsonl"},
                     "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(names().size(), 3u);

  ASSERT_EQ(remove("first/hf").exit_code, 0);
  EXPECT_FALSE(job("first").contains("hf_folder") &&
               !job("first")["hf_folder"].get<std::string>().empty());
  EXPECT_EQ(job("first")["checkpoint_step"], 30);
  const auto forced = remove("first/step-30", {"--force"});
  ASSERT_EQ(forced.exit_code, 0) << forced.errors;
  EXPECT_NE(forced.output.find("checkpoints/first/step-30: deleted"), std::string::npos);
  EXPECT_EQ(job("first")["checkpoint_step"], 20);
  EXPECT_EQ(names(), Names({"checkpoints/first/step-20"}));
  kill_everything();
  start();
  EXPECT_EQ(names(), Names({"checkpoints/first/step-20"}));
  EXPECT_EQ(job("first")["checkpoint_step"], 20);
  EXPECT_EQ(client({"job", "cancel", "beside"}).exit_code, 0);
  ASSERT_TRUE(reaches("next", "succeeded")) << job("next").dump(2);
  ASSERT_EQ(remove("first/step-20", {"--force"}).exit_code, 0) << "nobody needs it any more";
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace meshloom::e2e
