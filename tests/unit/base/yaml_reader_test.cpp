// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/yaml_reader.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "daemon/base/config.h"
#include "daemon/base/message_printer.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"
#include "v1/job.pb.h"

namespace meshloom::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::JobSpec read(const std::string& text) {
  v1::JobSpec spec;
  read_yaml(text, "job.yaml", &spec);
  return spec;
}

std::string error_of(const std::string& text, const YamlLimits& limits = {}) {
  v1::JobSpec spec;
  try {
    read_yaml(text, "job.yaml", &spec, limits);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(YamlReader, ReadsEveryKindOfValue) {
  const auto spec = read(R"(
name: first
run:
  model: {preset: byte_gpt_tiny, dropout: 0}
  plan: {tensor_parallel: true, activation_checkpoint: selective, dtype: bfloat16}
  training: {steps: 300, seed: 18446744073709551615, deterministic: false}
  optimizer:
    type: sgd
    lr: 3e-4
    decay: [transformer.h.*.attn.weight, "wte.weight"]
  mesh: {dp: 2}
  sample: {token_ids: [1, 2, -3], prompt: "a \"b\"\n"}
)");
  EXPECT_EQ(spec.name(), "first");
  EXPECT_TRUE(spec.run().model().has_dropout());
  EXPECT_EQ(spec.run().model().dropout(), 0.0);
  EXPECT_TRUE(spec.run().plan().tensor_parallel());
  EXPECT_EQ(spec.run().plan().activation_checkpoint(), v1::ACTIVATION_CHECKPOINT_SELECTIVE);
  EXPECT_EQ(spec.run().training().seed(), 18446744073709551615u);
  EXPECT_TRUE(spec.run().training().has_deterministic());
  EXPECT_FALSE(spec.run().training().has_max_norm());
  EXPECT_EQ(spec.run().optimizer().type(), v1::OPTIMIZER_TYPE_SGD);
  EXPECT_DOUBLE_EQ(spec.run().optimizer().lr(), 3e-4);
  ASSERT_EQ(spec.run().optimizer().decay_size(), 2);
  EXPECT_EQ(spec.run().optimizer().decay(1), "wte.weight");
  EXPECT_EQ(spec.run().sample().token_ids(2), -3);
  EXPECT_EQ(spec.run().sample().prompt(), "a \"b\"\n");
}

TEST(YamlReader, TellsTheLineOfEveryField) {
  v1::JobSpec spec;
  const auto lines = read_yaml(
      "name: a\nrun:\n  training:\n    steps: 3\n  optimizer:\n    decay:\n    - a\n    - b\n",
      "job.yaml", &spec);
  EXPECT_EQ(lines.at("name"), 1);
  EXPECT_EQ(lines.at("run.training"), 3);
  EXPECT_EQ(lines.at("run.training.steps"), 4);
  EXPECT_EQ(lines.at("run.optimizer.decay[1]"), 8);
}

struct BadYaml {
  const char* text;
  const char* place;
  const char* what;
};

class YamlReaderRefuses : public ::testing::TestWithParam<BadYaml> {};

TEST_P(YamlReaderRefuses, WithPlaceAndReason) {
  EXPECT_THAT(error_of(GetParam().text),
              AllOf(HasSubstr(GetParam().place), HasSubstr(GetParam().what)));
}

INSTANTIATE_TEST_SUITE_P(
    All, YamlReaderRefuses,
    ::testing::Values(
        BadYaml{"name: a\nrun:\n  training:\n    stesp: 3\n", "job.yaml:4: run.training",
                "did you mean \"steps\"?"},
        BadYaml{"nmae: a\n", "job.yaml:1:", "did you mean \"name\"?"},
        BadYaml{"name: a\nrun: {}\nname: b\n", "job.yaml:3: name", "given twice, first on line 1"},
        BadYaml{"run:\n  training:\n    steps: many\n", "job.yaml:3: run.training.steps",
                "many, expected a whole number"},
        BadYaml{"run:\n  training:\n    steps: \"3\"\n", "job.yaml:3: run.training.steps",
                "the text \"3\", expected a whole number"},
        BadYaml{"run: {training: {steps: 3.5}}", "run.training.steps",
                "3.5, expected a whole number"},
        BadYaml{"run: {training: {steps: 99999999999999999999}}", "run.training.steps",
                "expected a whole number"},
        BadYaml{"run: {mesh: {dp: 3000000000}}", "run.mesh.dp", "at most 32 bits"},
        BadYaml{"run: {training: {seed: -1}}", "run.training.seed", "not negative"},
        BadYaml{"run: {training: {deterministic: yes}}", "run.training.deterministic",
                "yes, expected true or false"},
        BadYaml{"run: {training: {deterministic: True}}", "run.training.deterministic",
                "expected true or false"},
        BadYaml{"run: {plan: {fully_shard: 1}}", "run.plan.fully_shard",
                "1, expected true or false"},
        BadYaml{"run: {optimizer: {type: adamv}}", "run.optimizer.type", "did you mean adamw?"},
        BadYaml{"run: {optimizer: {type: ADAMW}}", "run.optimizer.type",
                "expected one of adamw, adam, sgd"},
        BadYaml{"run: {optimizer: {type: unspecified}}", "run.optimizer.type", "expected one of"},
        BadYaml{"run: {optimizer: {lr: .nan}}", "run.optimizer.lr", "expected a finite number"},
        BadYaml{"run: {optimizer: {lr: 1e999}}", "run.optimizer.lr", "expected a finite number"},
        BadYaml{"run: {optimizer: {lr: 0x10}}", "run.optimizer.lr", "expected a finite number"},
        BadYaml{"run: {optimizer: {decay: wte}}", "run.optimizer.decay",
                "a single value, expected a list"},
        BadYaml{"run: {optimizer: {decay: [[a]]}}", "run.optimizer.decay[0]",
                "a list, expected text"},
        BadYaml{"run: {training: [1]}", "run.training", "a list, expected a map of keys"},
        BadYaml{"run: 3", "run", "a single value, expected a map of keys"},
        BadYaml{"name: {a: b}\n", "name", "a map of keys, expected text"},
        BadYaml{"run:\n  training:\n", "job.yaml:2: run.training", "has no value"},
        BadYaml{"a: &x {b: 1}\nrun:\n  <<: *x\n", "job.yaml:3: run", "merge keys"},
        BadYaml{"[1, 2]", "job.yaml:1:", "a list, expected a map of keys"},
        BadYaml{"? {a: b}\n: c\n", "job.yaml:1:", "expected a name"},
        BadYaml{"name: [a\nrun: 3\n", "job.yaml:", "not YAML"},
        BadYaml{"name: a\n---\nname: b\n", "job.yaml", "2 YAML documents"},
        BadYaml{"", "job.yaml", "is empty"}, BadYaml{"# nothing\n", "job.yaml", "is empty"}));

TEST(YamlReader, SaysInItsOwnWordsWhatIsNoYaml) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"run: [\n", "job.yaml:"},
      {"run: {training: {steps: 3}\nname: a\n", "a { is not closed by }"},
      {"decay: [a, b\nname: c\n", "a [ is not closed by ]"},
      {"name: \"a\nrun: 3\n", "a quote is not closed"},
      {"name: a\n  run: 3\n", "line the keys up: \"run: 3\""},
      {"run:\n  training:\n    steps: 3\n   seed: 4\n", "indented otherwise"},
      {"name: @a\n", "put it in quotes: \"name: @a\""},
      {"name: *a\n", "a value that begins with * or & must stand in quotes"},
      {"name: a: b\n", "a second \": \" stands in a value"},
      {"name: \"C:\\data\"\n", "a backslash begins an escape"},
      {"name: a ]\nrun: }\n", "job.yaml:"},
      {"training\n  steps: 3\n", "job.yaml:"},
  };
  for (const auto& [yaml, expected] : mistakes) {
    const std::string text = error_of(yaml);
    EXPECT_THAT(text, HasSubstr(expected)) << yaml;
    for (const char* own : {"illegal", "bad ", "end of", "token", "not found"})
      EXPECT_THAT(text, Not(HasSubstr(own))) << yaml;
  }
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("nested too deep"));
}

TEST(YamlReader, GathersAllProblems) {
  const auto text = error_of("run:\n  training: {steps: x}\n  optimizer: {lrr: 1}\n");
  EXPECT_THAT(text, AllOf(HasSubstr("job.yaml:2: run.training.steps"),
                          HasSubstr("job.yaml:3: run.optimizer")));
}

TEST(YamlReader, AnchorsWorkAndBombsDoNot) {
  const auto spec =
      read("run:\n  optimizer:\n    decay: &d [a, b]\n  sample: {prompt: &p hello}\n");
  EXPECT_EQ(spec.run().optimizer().decay_size(), 2);
  std::string bomb = "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n";
  std::string list = "*x0";
  for (int i = 1; i < 9; ++i) {
    bomb += fmt::format("x{}: &x{} [", i, i);
    for (int k = 0; k < 10; ++k) bomb += fmt::format("{}*x{}", k ? ", " : "", i - 1);
    bomb += "]\n";
  }
  const auto unknown = error_of(bomb);
  EXPECT_THAT(unknown, HasSubstr("unknown key \"x0\""));
  // The same through a field that is walked: an alias is counted each time it is used.
  YamlLimits limits;
  limits.nodes = 50;
  std::string decay = "run:\n  optimizer: {decay: [&a long";
  for (int i = 0; i < 100; ++i) decay += ", *a";
  EXPECT_THAT(error_of(decay + "]}\n", limits), HasSubstr("more than 50 values"));
}

TEST(YamlReader, BoundsDepthAndSize) {
  const std::string deep(400, '[');
  EXPECT_THAT(error_of("run: {optimizer: {decay: " + deep + std::string(400, ']') + "}}"),
              Not(HasSubstr("no error")));
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("not YAML"));
  YamlLimits limits;
  limits.bytes = 10;
  EXPECT_THAT(error_of("name: abcdefgh", limits), HasSubstr("at most 10"));
  EXPECT_THAT(error_of(std::string("name: a\0b", 9)), HasSubstr("NUL"));
}

TEST(YamlReader, YamlThatWasPrintedReadsBackEqual) {
  v1::JobSpec spec = read(R"(
name: first
run:
  model: {hf_folder: "models/llama 3", dropout: 0.125}
  optimizer: {type: adamw, lr: 3.0e-4, eps: 1e-8, decay: [a.*.b]}
  lr_scheduler: {decay_type: wsd, min_lr_factor: 0}
  data: {path: "true", pack_documents: false}
  sample: {prompt: "tab\t \"quote\" Grüße: x # y", token_ids: [1, 2]}
  validation: {}
)");
  v1::JobSpec again;
  const std::string printed = to_yaml(spec);
  read_yaml(printed, "printed.yaml", &again);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(spec, again)) << printed;
}

TEST(YamlReader, MapsTakeAnyKeyOnce) {
  const v1::JobSpec spec = read("labels: {team.a/b: x, '7': '1'}\n");
  EXPECT_EQ(spec.labels().at("team.a/b"), "x");
  EXPECT_EQ(spec.labels().at("7"), "1");
  EXPECT_EQ(read(to_yaml(spec)).labels().size(), 2u);
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      read(text);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("labels: {a: x, a: y}"), HasSubstr("labels.a: given twice"));
  EXPECT_THAT(refusal("labels: {a: [x]}"), HasSubstr("labels.a: "));
  EXPECT_THAT(refusal("labels: [a]"), HasSubstr("labels: a list, expected a map"));
}

TEST(JobFile, NeedsARun) {
  const test::TempFolder folder;
  const auto path = folder.write("no_run.yaml", "name: a\n");
  EXPECT_THROW(load_job_file(path), InvalidArgument);
  std::filesystem::remove(path);
  EXPECT_THROW(load_job_file(path), NotFound);
  EXPECT_THROW(load_job_file(folder.path()), InvalidArgument);
}

TEST(YamlFile, WhatTheSystemRefusesIsNotCalledMissing) {
  const test::TempFolder folder;
  const auto loop = folder / "loop.yaml";
  std::filesystem::create_symlink(loop, loop);
  EXPECT_THROW(load_job_file(loop), IoError);
}

}  // namespace
}  // namespace meshloom::base
