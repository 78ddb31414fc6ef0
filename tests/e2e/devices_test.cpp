// SPDX-License-Identifier: Apache-2.0
// One rank on a device that is not the host: three models train as on the CPU, and a job that is
// killed goes on bit for bit, on every daemon of the tests that has such a device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

/// A daemon of the tests whose cuda:0 is no hardware.
struct DeviceDaemon {
  const char* program;
  bool has_bits_of_cpu;
  int steps;  ///< of the job that is killed, which a slow device takes longer for
};

void PrintTo(const DeviceDaemon& daemon, std::ostream* out) { *out << daemon.program; }

struct Model {
  const char* name;
  const char* config;
  const char* data;
};

constexpr Model kGpt{"gpt", "{preset: byte_gpt_tiny}", "text.txt"};
constexpr Model kLlama{"llama", "{preset: llama_tiny}", "text.txt"};
constexpr Model kBert{"bert", "{config: bert.json}",
                      "text.txt, tokenizer: bytes, masked_lm: {mask_token: 256}"};

/// How far a loss may be from the CPU's, as a part of it.
struct Precision {
  const char* dtype;
  double loss;
};

constexpr Precision kPrecisions[] = {{"float32", 2e-5}, {"bfloat16", 5e-3}};

class DevicesE2e : public DaemonTest, public ::testing::WithParamInterface<DeviceDaemon> {
 protected:
  void SetUp() override {
    if (!fs::exists(test::program(GetParam().program)))
      GTEST_SKIP() << GetParam().program << " is not built";
    std::ofstream(data_ / "bert.json") << R"({"model_type": "bert",
        "architectures": ["BertForMaskedLM"], "vocab_size": 259, "hidden_size": 48,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3,
        "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        "initializer_range": 0.1, "tie_word_embeddings": true})";
  }
  void start_on_device() {
    program_ = GetParam().program;
    start(1);
  }
  void train(const Model& model, const std::string& name, const std::string& dtype,
             const std::string& device, int steps, int checkpoint_interval) {
    TinyJob job;
    job.model = model.config;
    job.data = model.data;
    job.plan = fmt::format("{{dtype: {}}}", dtype);
    job.steps = steps;
    job.checkpoint_interval = checkpoint_interval;
    job.extra = fmt::format("  device: {}\n", device);
    submit(job, name);
  }
  /// Trains three steps of every model in every precision; the jobs' names begin with `prefix`.
  void train_all(const std::string& prefix, const std::string& device) {
    for (const Model& model : {kGpt, kLlama, kBert})
      for (const Precision& precision : kPrecisions) {
        const std::string name = fmt::format("{}-{}-{}", prefix, model.name, precision.dtype);
        train(model, name, precision.dtype, device, 3, 0);
        ASSERT_TRUE(reaches(name, "succeeded", 120s)) << job(name).dump(2);
        EXPECT_EQ(job(name)["resolved"]["device"], device);
      }
  }
  std::vector<std::string> texts_of(const Model& model, const std::string& device);
  std::map<std::string, std::string> weights_of(const std::string& name) const {
    std::map<std::string, std::string> files;
    const fs::path folder =
        state_ / "jobs" / name / fmt::format("checkpoints/step-{}", GetParam().steps);
    for (const auto& file : fs::directory_iterator(folder))
      if (file.path().extension() == ".safetensors")
        files[file.path().filename().string()] = read_file(file.path());
    return files;
  }
};

TEST_P(DevicesE2e, ThreeStepsAreThoseOfTheCpu) {
  program_ = "meshloomd";
  start(1);
  train_all("host", "cpu");
  shut_down();
  start_on_device();
  train_all("device", "cuda");
  for (const Model& model : {kGpt, kLlama, kBert})
    for (const Precision& precision : kPrecisions) {
      const std::string course = fmt::format("-{}-{}", model.name, precision.dtype);
      const std::map<int, double> expected = step_losses("host" + course);
      const std::map<int, double> found = step_losses("device" + course);
      ASSERT_EQ(expected.size(), 3u);
      ASSERT_EQ(found.size(), 3u);
      const double part = GetParam().has_bits_of_cpu ? 0.0 : precision.loss;
      for (const auto& [step, loss] : expected)
        EXPECT_NEAR(found.at(step), loss, part * std::abs(loss)) << course << " step " << step;
    }
  shut_down();
}

/// What generation gives of a model that was trained three steps on `device`: of two prompts at
/// once, and of each alone.
std::vector<std::string> DevicesE2e::texts_of(const Model& model, const std::string& device) {
  const std::string name = fmt::format("{}-{}", model.name, device);
  train(model, name, "float32", device, 3, 3);
  EXPECT_TRUE(reaches(name, "succeeded", 120s)) << job(name).dump(2);
  std::vector<std::string> texts;
  for (const std::vector<std::string>& prompts :
       {std::vector<std::string>{"in the", "a"}, {"in the"}, {"a"}}) {
    Arguments generate = {"generate", "--job",         name,  "--max-tokens", "6", "--seed",
                          "2",        "--temperature", "0.5", "--json"};
    for (const std::string& prompt : prompts) {
      generate.push_back("--prompt");
      generate.push_back(prompt);
    }
    const auto drawn = client(generate);
    EXPECT_EQ(drawn.exit_code, 0) << drawn.errors;
    texts.push_back(drawn.output);
  }
  return texts;
}

TEST_P(DevicesE2e, TokensOfGenerationAreThoseOfTheCpu) {
  for (const Model& model : {kGpt, kLlama}) {
    program_ = "meshloomd";
    start(1);
    const std::vector<std::string> expected = texts_of(model, "cpu");
    shut_down();
    start_on_device();
    EXPECT_EQ(texts_of(model, "cuda"), expected) << model.name;
    shut_down();
  }
}

TEST_P(DevicesE2e, AJobThatIsKilledGoesOnWithItsOwnBits) {
  const int steps = GetParam().steps;
  start_on_device();
  train(kBert, "whole", "float32", "cuda", steps, 2);
  ASSERT_TRUE(reaches("whole", "succeeded", 120s)) << job("whole").dump(2);
  train(kBert, "killed", "float32", "cuda", steps, 2);
  ASSERT_TRUE(reaches_step("killed", 3, 120s)) << job("killed").dump(2);
  kill_everything();
  start_on_device();
  ASSERT_TRUE(reaches("killed", "succeeded", 120s)) << job("killed").dump(2);
  ASSERT_EQ(step_losses("whole").size(), static_cast<std::size_t>(steps));
  EXPECT_EQ(step_losses("killed"), step_losses("whole"));
  const std::map<std::string, std::string> weights = weights_of("whole");
  EXPECT_FALSE(weights.empty());
  EXPECT_TRUE(weights_of("killed") == weights);
  shut_down();
}

INSTANTIATE_TEST_SUITE_P(Daemons, DevicesE2e,
                         ::testing::Values(DeviceDaemon{"meshloomd-fenced", true, 24},
                                           DeviceDaemon{"meshloomd-emulated", false, 8}),
                         [](const auto& test) {
                           return test.param.has_bits_of_cpu ? "Fenced" : "Emulated";
                         });

}  // namespace
}  // namespace meshloom::e2e
