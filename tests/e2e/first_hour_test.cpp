// SPDX-License-Identifier: Apache-2.0
// What a new user does in the first hour, by the program meshloom alone: a model and a text are
// sent, the one is tuned on the other, and says something.
#include <fmt/format.h>
#include <signal.h>

#include <fstream>
#include <utility>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

class FirstHourE2e : public DaemonTest {
 protected:
  /// FOLDER/gpt2, on the client's side: a small GPT-2 with weights, and a tokenizer in the files
  /// that GPT-2 came with. Nothing of it stays on the daemon's side.
  std::string make_model_folder() {
    const Json golden =
        Json::parse(read_file(test::source_file("tests/golden/tokenizer/gpt2.json")));
    const Json& model = golden["tokenizer"]["model"];
    fs::create_directories(data_ / "seed");
    Json config = Json::parse(read_file(test::source_file("configs/models/byte_gpt_tiny.json")));
    config["vocab_size"] = model["vocab"].size();
    std::string merges = "#version: 0.2\n";
    for (const Json& pair : model["merges"])
      merges += fmt::format("{} {}\n", pair[0].get<std::string>(), pair[1].get<std::string>());
    for (const auto& [name, text] :
         {std::pair{"config.json", config.dump()}, std::pair{"vocab.json", model["vocab"].dump()},
          std::pair{"merges.txt", merges},
          std::pair{"tokenizer_config.json", std::string(R"({"eos_token": "<|endoftext|>"})")}})
      std::ofstream(data_ / "seed" / name) << text;
    TinyJob seed;
    seed.model = "{config: seed/config.json}";
    seed.steps = 1;
    seed.extra = "  export: {hf_folder: hf}\n";
    submit(seed, "seed");
    EXPECT_TRUE(reaches("seed", "succeeded")) << job("seed").dump(2);
    const std::string folder = folder_ / "gpt2";
    EXPECT_EQ(client({"checkpoint", "download", "checkpoints/seed/hf", folder}).exit_code, 0);
    fs::remove_all(data_ / "seed");
    return folder;
  }
  int uploads() const {
    const Json all = client_json({"upload", "list"});
    return static_cast<int>(all.value("uploads", Json::array()).size());
  }
  TinyJob tuning(int steps) const {
    TinyJob tuning;
    tuning.model = "{name: small}";
    tuning.data = "law.txt, tokenizer: auto, validation_path: more.txt";
    tuning.steps = steps;
    tuning.validation_interval = 500;
    tuning.checkpoint_interval = 500;
    tuning.extra = "  lr_scheduler: {decay_type: constant}\n";
    return tuning;
  }
  /// What is drawn behind kBegin.
  std::string sampled(const Arguments& source) const {
    Arguments command = {"generate"};
    command.insert(command.end(), source.begin(), source.end());
    const Arguments rest = {"--prompt", kBegin, "--temperature", "0", "--max-tokens", "30"};
    command.insert(command.end(), rest.begin(), rest.end());
    const auto sample = client(command);
    EXPECT_EQ(sample.exit_code, 0) << sample.errors;
    EXPECT_TRUE(sample.output.starts_with(kBegin)) << sample.output;
    EXPECT_GT(sample.output.size(), kBegin.size() + 20) << sample.output;
    EXPECT_NO_THROW(static_cast<void>(Json(sample.output).dump())) << "this is no UTF-8";
    return sample.output;
  }
  /// What is refused while a job trains.
  void expect_refusals(const std::string& upload, const std::string& file) {
    expect_refused_for({"data", "import", upload, "law.txt"}, "ALREADY_EXISTS");
    expect_refused_for({"data", "import", upload, state_ / "journal", "--overwrite"},
                       "INVALID_PATH");
    expect_refused_for({"data", "import", upload, "../folder.txt"}, "INVALID_PATH");
    expect_refused_for({"data", "import", "uploads/upload-99", "x.txt"}, "UPLOAD_NOT_FOUND");
    expect_refused_for({"--client", "another", "data", "import", upload, "x.txt"},
                       "UPLOAD_NOT_FOUND");
    expect_refused_for({"upload", file, "--data", "law.txt"}, "ALREADY_EXISTS");
    EXPECT_EQ(uploads(), 1) << "nothing was sent for a path that is taken";
  }

  /// The text is real English, and always here.
  inline static const std::string kText = test::source_file("LICENSE");
  inline static const std::string kBegin = "You may reproduce and";
};

TEST_F(FirstHourE2e, FromAFolderAndATextToASampleOfText) {
  start(2);
  const std::string folder = make_model_folder();
  const auto made = client({"model", "create", "small", folder});
  ASSERT_EQ(made.exit_code, 0) << made.errors;

  // In two steps, and in one.
  const Json sent = client_json({"upload", kText});
  const std::string upload = sent["name"];
  const auto imported = client({"data", "import", upload, "law.txt"});
  ASSERT_EQ(imported.exit_code, 0) << imported.errors;
  EXPECT_NE(imported.output.find("\n  data: {path: law.txt}\n"), std::string::npos)
      << imported.output;
  EXPECT_EQ(read_file(data_ / "law.txt"), read_file(kText));
  const std::string words = write_text("more.txt", read_file(kText).substr(0, 3000));
  const Json more = client_json({"upload", words, "--data", "./"});
  EXPECT_EQ(more["path"], "more.txt");
  EXPECT_EQ(more["bytes"], 3000);
  EXPECT_EQ(read_file(data_ / "more.txt"), read_file(words));
  EXPECT_EQ(uploads(), 1) << "the other one is forgotten, its bytes are data";

  submit(tuning(1000), "tuned");
  ASSERT_TRUE(reaches("tuned", "succeeded")) << job("tuned").dump(2);
  const auto losses = step_losses("tuned");
  ASSERT_EQ(losses.size(), 1000u);
  EXPECT_GT(losses.begin()->second, 5.5) << "a model of 700 tokens that knows nothing";
  EXPECT_LT(losses.rbegin()->second, losses.begin()->second - 2.0);

  const std::string sample = sampled({"--job", "tuned"});
  EXPECT_NE(sampled({"--model", "small"}), sample) << "it has learned nothing to say";
  kill_everything();
  start(2);
  EXPECT_EQ(sampled({"--job", "tuned"}), sample);
  EXPECT_EQ(uploads(), 1);

  // The same job once more sees nothing of what is refused beside it.
  submit(tuning(10'000'000), "beside");
  ASSERT_TRUE(reaches_step("beside", 3)) << job("beside").dump(2);
  expect_refusals(upload, words);
  const int step = job("beside")["step"];
  EXPECT_TRUE(reaches_step("beside", step + 3)) << job("beside").dump(2);
  EXPECT_EQ(client({"job", "cancel", "beside"}).exit_code, 0);
  ASSERT_TRUE(reaches("beside", "cancelled")) << job("beside").dump(2);
  const auto beside = step_losses("beside");
  for (const auto& [number, loss] : beside) {
    const auto alone = losses.find(number);
    if (alone == losses.end()) break;
    EXPECT_EQ(loss, alone->second) << number;
  }
  EXPECT_GE(beside.size(), 6u);
  shut_down();
}

TEST_F(FirstHourE2e, WhatWasSentIsKeptWhereNoFileCanBeMadeOfIt) {
  start(1);
  const std::string file = write_text("big.bin", "");
  fs::resize_file(file, std::uintmax_t{256} << 20);
  const fs::path taken = data_ / "big.bin";
  Process upload({test::program("meshloom"), "--address", address_, "upload", file, "--data", "./"},
                 folder_ / "upload.log", folder_ / "upload.err");
  // Its path was free, and is not any more when all is there.
  ASSERT_TRUE(eventually(20s, [&] { return uploads() > 0; }));
  ::kill(upload.pid(), SIGSTOP);
  std::ofstream(taken) << "meanwhile";
  ::kill(upload.pid(), SIGCONT);
  EXPECT_EQ(upload.wait(60s), 2);
  const std::string errors = read_file(folder_ / "upload.err");
  EXPECT_NE(errors.find("big.bin is there already"), std::string::npos) << errors;
  const std::string name = client_json({"upload", "list"})["uploads"][0]["name"];
  EXPECT_NE(errors.find("meshloom data import " + name), std::string::npos) << errors;
  EXPECT_EQ(read_file(taken), "meanwhile");
  EXPECT_FALSE(fs::exists(data_ / ".big.bin.new"));

  EXPECT_EQ(client_json({"data", "import", name, "other.bin"})["bytes"], 256 << 20);
  // The same once more sends nothing.
  const auto again = client({"upload", file, "--data", "big.bin", "--overwrite"});
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_NE(again.errors.find("sent already"), std::string::npos) << again.errors;
  EXPECT_EQ(fs::file_size(taken), std::uintmax_t{256} << 20);
  EXPECT_EQ(uploads(), 1) << "what was there before stays";
  // A name that no upload may have, and two files of one name.
  const std::string words = write_text("my words (2).txt", "some words");
  EXPECT_EQ(client_json({"upload", words, "--data", "./"})["path"], "my words (2).txt");
  EXPECT_EQ(uploads(), 1);
  const auto twice = client({"upload", words, words, "--data", "./", "--overwrite"});
  EXPECT_EQ(twice.exit_code, 2) << twice.errors;
  EXPECT_NE(twice.errors.find("would both be"), std::string::npos) << twice.errors;
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
