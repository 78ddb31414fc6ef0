// SPDX-License-Identifier: Apache-2.0
// A job that uses at once what there is beside plain steps: validation sets, early stopping, the
// best checkpoints alone, samples on the way, frozen parameters and groups. The daemon is stopped
// in the middle of it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kInterval = 50;
constexpr int kPatience = 20;

constexpr const char* kJob = R"(run:
  model: {preset: byte_gpt_tiny}
  plan: {dtype: float32}
  training:
    steps: 100000
    seq_len: 32
    global_batch_size: 4
    seed: 3
    frozen: [transformer.h.0]
    early_stopping: {patience: 20, validation_set: noise}
  optimizer: {lr: 3.0e-3, groups: [{pattern: transformer.wte, lr_factor: 0.1, weight_decay: 0}]}
  lr_scheduler: {decay_type: constant}
  data: {path: text.txt, validation_split: 0.1}
  validation:
    interval: 50
    steps: 2
    sets: [{name: prose, path: prose.txt}, {name: noise, path: noise.txt}]
  checkpoint: {keep_latest_k: 1, keep_best: 2, last: false}
  sample: {prompt: "in the ", prompts: ["the day "], interval: 100, params: {max_tokens: 8}}
)";

class TrainingExtrasE2e : public DaemonTest {
 protected:
  /// Text like that of the job, and bytes that nobody can learn: their loss rises.
  void write_sets() const {
    const std::string text = read_file(data_ / "text.txt");
    std::ofstream(data_ / "prose.txt") << text.substr(0, 4000);
    std::mt19937 random(5);
    std::ofstream noise(data_ / "noise.txt");
    for (int i = 0; i < 4000; ++i) noise << static_cast<char>(33 + random() % 90);
  }
  void submit_job(const std::string& name, const std::string& text = kJob) const {
    const auto made = client({"job", "submit", write_text(name + ".yaml", text), "--name", name});
    ASSERT_EQ(made.exit_code, 0) << made.errors;
  }
  void edit(const std::string& name, const std::vector<std::string>& settings) const {
    Arguments arguments = {"job", "edit", name};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    const auto edited = client(arguments);
    ASSERT_EQ(edited.exit_code, 0) << edited.errors;
  }
  struct Validation {
    int step;
    double loss, prose, noise;
    bool operator==(const Validation&) const = default;
  };
  /// Those of metrics.jsonl, in its order.
  std::vector<Validation> validations(const std::string& name) const {
    std::vector<Validation> all;
    std::ifstream metrics(state_ / "jobs" / name / "metrics.jsonl");
    for (std::string line; std::getline(metrics, line);) {
      const Json entry = Json::parse(line);
      if (entry.contains("validation_loss"))
        all.push_back({entry["step"], entry["validation_loss"], entry["validation_loss_prose"],
                       entry["validation_loss_noise"]});
    }
    return all;
  }
  /// The validation after which early stopping ends the job, by its definition.
  static int end_of(const std::vector<Validation>& all) {
    double best = all.front().noise;
    int not_better = 0;
    for (const Validation& one : all) {
      not_better = one.noise < best || &one == &all.front() ? 0 : not_better + 1;
      best = std::min(best, one.noise);
      if (not_better == kPatience) return one.step;
    }
    return -1;
  }
  /// Steps of the two lowest validation losses, best first.
  static std::vector<int> best_of(std::vector<Validation> all) {
    std::erase_if(all, [](const Validation& one) { return one.step == 0; });
    std::stable_sort(all.begin(), all.end(),
                     [](const Validation& a, const Validation& b) { return a.loss < b.loss; });
    return {all.at(0).step, all.at(1).step};
  }
  void expect_whole(const std::string& name) const;
  void expect_checkpoints(const std::string& name, const std::vector<Validation>& all) const;
};

void TrainingExtrasE2e::expect_whole(const std::string& name) const {
  const std::vector<Validation> all = validations(name);
  ASSERT_FALSE(all.empty());
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i].step, static_cast<int>(i) * kInterval) << "each once, in order";
  EXPECT_LT(all.back().prose, all.front().prose - 1);
  EXPECT_GT(all.back().noise, all.front().noise);
  const int end = all.back().step;
  EXPECT_EQ(end, end_of(all));

  const Json shown = job(name);
  EXPECT_EQ(shown["step"], end);
  EXPECT_EQ(shown["steps"], 100000);
  EXPECT_THAT(shown["stopped_early"].get<std::string>(), HasSubstr("on noise has not fallen"));
  EXPECT_EQ(shown["last_validation"]["step"], end);
  EXPECT_EQ(shown["last_validation"]["sets"][0]["set"], "prose");
  EXPECT_EQ(shown["last_validation"]["sets"][1]["loss"], all.back().noise);
  EXPECT_EQ(shown["resolved"]["training"]["frozen"], Json({"transformer.h.0"}));
  EXPECT_EQ(shown["resolved"]["optimizer"]["groups"][0]["lr_factor"], 0.1);
  // The last ones are drawn at the end, whatever the interval.
  ASSERT_EQ(shown["samples"].size(), 2u) << shown["samples"];
  for (const Json& sample : shown["samples"]) {
    EXPECT_EQ(sample["step"], end);
    EXPECT_EQ(sample["text"].get<std::string>().rfind(sample["prompt"].get<std::string>(), 0), 0u);
  }
  EXPECT_EQ(step_losses(name).size(), static_cast<std::size_t>(end)) << "each step once";
  expect_checkpoints(name, all);
}

void TrainingExtrasE2e::expect_checkpoints(const std::string& name,
                                           const std::vector<Validation>& all) const {
  const std::vector<int> best = best_of(all);
  const Json listed = client_json({"checkpoint", "list", "--job", name})["checkpoints"];
  std::map<int, int> places;
  for (const Json& checkpoint : listed) {
    const int place = checkpoint.value("best", 0);
    if (place > 0) places[place] = checkpoint["step"];
  }
  EXPECT_EQ(places, (std::map<int, int>{{1, best[0]}, {2, best[1]}})) << listed;
  EXPECT_LE(listed.size(), 3u) << "the best and the newest: " << listed;
  const Json manifest = Json::parse(read_file(state_ / "jobs" / name / "checkpoints" /
                                              fmt::format("step-{}", best[0]) / "manifest.json"));
  const std::string text = manifest.dump();
  EXPECT_THAT(text, HasSubstr("model.transformer.h.0.mlp"));
  EXPECT_THAT(text, HasSubstr("optimizer.moment1.transformer.h.1.mlp"));
  EXPECT_EQ(text.find("optimizer.moment1.transformer.h.0."), std::string::npos)
      << "what is frozen has no moments";
}

TEST_F(TrainingExtrasE2e, AJobThatIsStoppedInTheMiddleEndsAsOneThatIsNot) {
  write_sets();
  start();
  submit_job("whole");
  ASSERT_TRUE(reaches("whole", "succeeded", 180s)) << job("whole").dump(2);
  expect_whole("whole");
  submit_job("cut");
  ASSERT_TRUE(reaches_step("cut", 2 * kInterval));
  shut_down();
  start();
  ASSERT_TRUE(reaches("cut", "succeeded", 180s)) << job("cut").dump(2);
  EXPECT_EQ(job("cut")["attempt"], 2);
  expect_whole("cut");
  EXPECT_EQ(step_losses("cut"), step_losses("whole"));
  EXPECT_EQ(validations("cut"), validations("whole"));
  EXPECT_EQ(job("cut")["samples"], job("whole")["samples"]);
  EXPECT_EQ(job("cut")["stopped_early"], job("whole")["stopped_early"]);
}

TEST_F(TrainingExtrasE2e, AnEditBringsThemToAJobUnderWay) {
  write_sets();
  start();
  std::string plain = kJob;
  for (const char* part : {"    early_stopping: {patience: 20, validation_set: noise}\n",
                           ", keep_best: 2", ", interval: 100"}) {
    const auto at = plain.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    plain.erase(at, std::string(part).size());
  }
  submit_job("plain", plain);
  ASSERT_TRUE(reaches_step("plain", 2 * kInterval));
  expect_refused_for({"job", "edit", "plain", "sample.interval=-1"}, "run.sample.interval");
  expect_refused_for({"job", "edit", "plain", "checkpoint.validation_set=prose"},
                     "run.checkpoint.validation_set");
  expect_refused_for({"job", "edit", "plain", "training.early_stopping.min_delta=0.1"},
                     "run.training.early_stopping.patience");
  edit("plain", {"training.early_stopping={patience: 3}", "checkpoint.keep_best=1"});
  edit("plain", {"training.early_stopping={}", "checkpoint.keep_best=0", "sample.interval=50"});
  edit("plain",
       {"training.early_stopping={patience: 20, validation_set: noise}", "checkpoint.keep_best=2"});
  const Json edits = job("plain")["edits"];
  ASSERT_EQ(edits.size(), 3u) << edits;
  const int after = edits[2]["after_step"];
  ASSERT_TRUE(reaches_step("plain", after + 4 * kInterval));
  EXPECT_GE(job("plain")["samples"].size(), 2u);
  kill_everything();  // it goes on from one of its best, or from the first step
  start();
  ASSERT_TRUE(reaches("plain", "succeeded", 180s)) << job("plain").dump(2);
  std::vector<Validation> counted = validations("plain");
  std::erase_if(counted, [&](const Validation& one) { return one.step <= after; });
  ASSERT_FALSE(counted.empty());
  EXPECT_EQ(counted.back().step, end_of(counted));
  expect_checkpoints("plain", counted);
}

}  // namespace
}  // namespace meshloom::e2e
