// SPDX-License-Identifier: Apache-2.0
// A daemon whose ranks compute on devices behind a fence: what clients get is bit for bit what the
// CPU's daemon gives.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/scoped_variable.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A value of run.device, and what it must be answered by.
struct WrongDevice {
  const char* word;
  const char* answer;  ///< a part of it
};

// On two devices that differ.
constexpr WrongDevice kWrongDevices[] = {
    {"gpu", "run.device: must be auto, cpu, cuda or cuda:N"},
    {"cuda:-1", "run.device: must be auto, cpu, cuda or cuda:N"},
    {"cuda:", "run.device: must be auto, cpu, cuda or cuda:N"},
    {"cpu:0", "run.device: must be auto, cpu, cuda or cuda:N"},
    {"cuda:2", "run.device: \"cuda:2\" needs device cuda:2 on the host of every rank"},
    {"cuda:9", "run.device: \"cuda:9\" needs device cuda:9 on the host of every rank"},
    {"cuda", "run.device: \"cuda\" needs devices of one class on all ranks"},
    {"auto", "run.device: \"auto\" needs devices of one class on all ranks"},
};

class FencedE2e : public DaemonTest {
 protected:
  void start_on_cpu() {
    program_ = "meshloomd";
    start(2);
  }
  void start_on_devices() {
    program_ = "meshloomd-fenced";
    start(2);
  }

  TinyJob course(const std::string& device) const {
    TinyJob job;
    job.steps = 24;
    job.checkpoint_interval = 6;
    job.validation_interval = 8;
    job.extra = fmt::format("  device: {}\n  export: {{hf_folder: hf}}\n", device);
    return job;
  }
  void submit_on(const std::string& plan, const std::string& device, const std::string& name) {
    const auto result = client({"job", "submit", write_job(course(device), name + ".yaml"),
                                "--name", name, "--plan", plan_path(plan)});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  /// Of the checkpoint's tensors and of the exported weights, by file.
  std::map<std::string, std::string> weights_of(const std::string& name) const {
    std::map<std::string, std::string> files;
    for (const char* folder : {"checkpoints/step-24", "hf"})
      for (const auto& file : fs::directory_iterator(state_ / "jobs" / name / folder))
        if (file.path().extension() == ".safetensors")
          files[fmt::format("{}/{}", folder, file.path().filename().string())] =
              read_file(file.path());
    return files;
  }
  /// What the verbs of a run give, one after the other, on a device.
  Json drive_run(const std::string& name, const std::string& device) {
    const std::string token =
        create_run(name, "{preset: byte_gpt_tiny}",
                   fmt::format("  device: {}\n  mesh: {{fsdp: 2}}\n", device));
    Json all;
    const auto verb = [&](const std::string& verb_name, Arguments options) {
      Arguments line = {"run", verb_name, name};
      line.insert(line.end(), options.begin(), options.end());
      line.insert(line.end(), {"--token", token});
      all.push_back(client_json(line)["result"]);
    };
    const Arguments samples = {"--data", "text.txt", "--samples", "3"};
    verb("forward", samples);
    verb("forward-backward", samples);
    verb("forward-backward", {"--data", "text.txt", "--samples", "2"});
    verb("optim-step", {"--lr", "0.01"});
    verb("save-state", {"kept"});
    verb("sample", {"--tokens", "97,98", "--max-tokens", "9", "--seed", "4", "--exact-logprobs",
                    "--prompt-logprobs"});
    const std::string values = (folder_ / (name + ".json")).string();
    verb("get-parameters", {"transformer.wte.weight", "transformer.ln_f.weight", "--out", values});
    verb("forward-backward", samples);
    verb("optim-step", {"--lr", "0.1"});
    verb("set-parameters", {values});
    verb("forward", samples);
    verb("load-state", {fmt::format("runs/{}/states/kept", name)});
    verb("forward", samples);
    all.push_back(std::hash<std::string>()(read_file(values)));
    EXPECT_EQ(client({"run", "close", name, "--token", token}).exit_code, 0);
    EXPECT_TRUE(eventually(10s, [&] {
      return client_json({"run", "show", name})["state"] == "closed";
    }));
    return without_times(std::move(all), name);
  }
  /// Takes out what differs from call to call.
  static Json without_times(Json value, const std::string& name) {
    if (value.is_object()) {
      for (const char* key : {"seconds", "saved_at", "create_time"}) value.erase(key);
      for (auto& [key, item] : value.items()) item = without_times(item, name);
    } else if (value.is_array()) {
      for (Json& item : value) item = without_times(item, name);
    } else if (value.is_string()) {
      std::string text = value;
      if (const auto at = text.find(name); at != std::string::npos)
        text.replace(at, name.size(), "RUN");
      return text;
    }
    return value;
  }
};

TEST_F(FencedE2e, AJobThatIsKilledAndGoesOnHasTheBitsOfTheCpu) {
  start_on_cpu();
  submit_on("fsdp2", "auto", "cpu");
  ASSERT_TRUE(reaches("cpu", "succeeded")) << job("cpu").dump(2);
  EXPECT_EQ(job("cpu")["resolved"]["device"], "cpu");
  const Arguments generate = {"generate", "--checkpoint", "checkpoints/cpu/step-24",
                              "--prompt", "in",           "--max-tokens",
                              "8",        "--seed",       "2"};
  const auto expected_text = client(generate);
  EXPECT_EQ(expected_text.exit_code, 0) << expected_text.errors;
  shut_down();

  start_on_devices();
  EXPECT_THAT(client({"status"}).output, HasSubstr("cuda:1"));
  submit_on("fsdp2", "auto", "fenced");
  EXPECT_EQ(job("fenced")["resolved"]["device"], "cuda");
  ASSERT_TRUE(reaches_step("fenced", 7)) << job("fenced").dump(2);
  const auto drawn = client(generate);
  EXPECT_EQ(drawn.exit_code, 0) << drawn.errors;
  EXPECT_EQ(drawn.output, expected_text.output);
  kill_everything();
  start_on_devices();
  ASSERT_TRUE(reaches("fenced", "succeeded")) << job("fenced").dump(2);
  EXPECT_EQ(client(generate).output, drawn.output);

  const std::string manifest = read_file(state_ / "jobs/fenced/checkpoints/step-24/manifest.json");
  EXPECT_THAT(manifest, HasSubstr("\"device\": \"cuda\""));
  EXPECT_EQ(step_losses("fenced"), step_losses("cpu"));
  EXPECT_EQ(job("fenced")["last_validation"]["loss"], job("cpu")["last_validation"]["loss"]);
  const auto expected = weights_of("cpu"), found = weights_of("fenced");
  ASSERT_GE(expected.size(), 3u);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [file, bytes] : expected) EXPECT_TRUE(found.at(file) == bytes) << file;
  shut_down();
}

TEST_F(FencedE2e, TheVerbsOfARunHaveTheBitsOfTheCpu) {
  start_on_cpu();
  const Json cpu = drive_run("host", "cpu");
  shut_down();
  start_on_devices();
  EXPECT_EQ(Json::diff(cpu, drive_run("cuda", "cuda")).dump(), "[]");
  // Both ranks on one device.
  EXPECT_EQ(Json::diff(cpu, drive_run("same", "cuda:1")).dump(), "[]");
  shut_down();
}

TEST_F(FencedE2e, ParametersThatAreUploadedArriveOnTheDevice) {
  start_on_devices();
  const std::string token = create_run("large", "{preset: byte_gpt_10m}", "  device: cuda\n");
  Arguments names;
  for (int layer = 0; layer < 6; ++layer)
    names.push_back(fmt::format("transformer.h.{}.mlp.c_fc.weight", layer));
  const auto values = [&](const char* file) {
    Arguments line = {"run", "get-parameters", "large", "--token", token, "--out", folder_ / file};
    line.insert(line.begin() + 3, names.begin(), names.end());
    const auto result = client(line);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return read_file(folder_ / file);
  };
  const std::string before = values("before.json");
  const auto verb = [&](Arguments line) {
    line.insert(line.end(), {"--token", token});
    return client(line);
  };
  EXPECT_EQ(
      verb({"run", "forward-backward", "large", "--data", "text.txt", "--samples", "2"}).exit_code,
      0);
  EXPECT_EQ(verb({"run", "optim-step", "large", "--lr", "0.01"}).exit_code, 0);
  EXPECT_FALSE(values("trained.json") == before);
  const auto set = verb({"run", "set-parameters", "large", folder_ / "before.json"});
  EXPECT_EQ(set.exit_code, 0) << set.errors;
  EXPECT_THAT(set.errors, HasSubstr("ParameterValues: ")) << "it is more than a request may have";
  EXPECT_TRUE(values("again.json") == before);
  EXPECT_EQ(verb({"run", "close", "large"}).exit_code, 0);
  shut_down();
}

TEST_F(FencedE2e, DevicesThatAreRefusedChangeNoLossOfAJobThatTrains) {
  const test::ScopedVariable differ("MESHLOOM_FENCED_DEVICES_DIFFER", "1");
  start_on_devices();
  TinyJob endless;
  endless.steps = 10'000'000;
  endless.extra = "  device: cuda:0\n";
  submit(endless, "long");
  ASSERT_TRUE(reaches_step("long", 3));
  for (const WrongDevice& wrong : kWrongDevices) {
    TinyJob job = endless;
    job.extra = fmt::format("  device: \"{}\"\n", wrong.word);
    const auto result = client({"job", "submit", write_job(job, "wrong.yaml"), "--name", "wrong"});
    EXPECT_EQ(result.exit_code, 2) << wrong.word << ": " << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(wrong.answer));
  }
  const int step = job("long")["step"];
  ASSERT_NO_FATAL_FAILURE(cancel("long"));
  submit(endless, "undisturbed");
  ASSERT_TRUE(reaches_step("undisturbed", step)) << job("undisturbed").dump(2);
  ASSERT_NO_FATAL_FAILURE(cancel("undisturbed"));
  expect_same_losses("long", "undisturbed");
  shut_down();
}

TEST_F(FencedE2e, AResumeOnAnotherDeviceSaysSo) {
  start_on_devices();
  submit_on("dp2", "cpu", "first");
  ASSERT_TRUE(reaches("first", "succeeded")) << job("first").dump(2);
  TinyJob more = course("cuda");
  more.steps = 28;
  more.resume_from = "checkpoints/first/step-24";
  submit(more, "more");
  ASSERT_TRUE(reaches("more", "succeeded")) << job("more").dump(2);
  EXPECT_THAT(job("more")["notes"].dump(), HasSubstr("fenced"));
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
