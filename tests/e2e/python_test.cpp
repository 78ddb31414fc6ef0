// SPDX-License-Identifier: Apache-2.0
// The Python package as a user installs it, its examples and its own tests, against a real daemon,
// with Debian's packages and with other versions of them where a virtual environment has those.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <stdlib.h>

#include <sstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPython = "/usr/bin/python3";  // for which Debian's packages are

/// Debian packages that the Python package needs and that are not here.
std::vector<std::string> missing_packages() {
  const std::pair<const char*, const char*> modules[] = {
      {"grpc", "python3-grpcio"}, {"google.protobuf", "python3-protobuf"},
      {"numpy", "python3-numpy"}, {"setuptools", "python3-setuptools"},
      {"wheel", "python3-wheel"}, {"ensurepip", "python3-venv"},
  };
  std::vector<std::string> missing;
  if (!std::filesystem::exists(kPython)) return {"python3"};
  for (const auto& [module, package] : modules)
    if (run_command({kPython, "-c", fmt::format("import {}", module)}, 60s).exit_code != 0)
      missing.push_back(package);
  if (run_command({"sh", "-c", "command -v protoc"}, 10s).exit_code != 0)
    missing.push_back("protobuf-compiler");
  return missing;
}

/// Interpreters of virtual environments with other versions of protobuf, grpcio and numpy, which
/// are named by MESHLOOM_TEST_PYTHONS with colons between them.
std::vector<std::string> other_pythons() {
  const char* named = std::getenv("MESHLOOM_TEST_PYTHONS");
  std::vector<std::string> pythons;
  std::istringstream list(named ? named : "");
  for (std::string python; std::getline(list, python, ':');)
    if (!python.empty()) pythons.push_back(python);
  return pythons;
}

class PythonE2e : public DaemonTest {
 protected:
  static void SetUpTestSuite() {
    missing_ = missing_packages();
    if (!missing_.empty()) return;
    std::string pattern =
        (std::filesystem::temp_directory_path() / "meshloom venv XXXXXX").string();
    venv_ = ::mkdtemp(pattern.data());
    const CommandResult made =
        run_command({kPython, "-m", "venv", "--system-site-packages", venv_}, 60s);
    ASSERT_EQ(made.exit_code, 0) << made.output << made.errors;
    const CommandResult installed = run_command(
        {venv_ + "/bin/python", "-m", "pip", "install", "--no-build-isolation", "--no-index",
         "--disable-pip-version-check", test::source_file("scripts/python")},
        120s);
    ASSERT_EQ(installed.exit_code, 0) << installed.output << installed.errors;
  }
  static void TearDownTestSuite() {
    if (!venv_.empty()) std::filesystem::remove_all(venv_);
  }
  void SetUp() override {
    if (!missing_.empty())
      GTEST_SKIP() << fmt::format("missing packages: {} (scripts/setup.sh --python)",
                                  fmt::join(missing_, " "));
    start();
  }

  CommandResult python(const std::string& file, const Arguments& arguments = {}) const {
    return python_of(venv_ + "/bin/python", file, arguments);
  }
  /// By another interpreter, or with more variables in its environment ("NAME=VALUE").
  CommandResult python_of(const std::string& interpreter, const std::string& file,
                          const Arguments& arguments = {}, const Arguments& variables = {}) const {
    Arguments all{"env", "MESHLOOM_ADDRESS=" + address_, "TEST_STATE_DIR=" + state_.string()};
    all.insert(all.end(), variables.begin(), variables.end());
    all.insert(all.end(), {interpreter, "-B", test::source_file(file)});
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_command(all, 300s);
  }
  /// Unittests of tests/e2e/python.
  void expect_passes(const std::string& part, const CommandResult& result) const {
    EXPECT_EQ(result.exit_code, 0) << part << result.output << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("OK")) << part;
  }

  static inline std::vector<std::string> missing_;
  static inline std::string venv_;

  /// The numbers behind each place of `key` in a text.
  static std::vector<double> numbers_behind(const std::string& text, const std::string& key) {
    std::vector<double> numbers;
    for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at + 1))
      numbers.push_back(std::stod(text.substr(at + key.size())));
    return numbers;
  }
};

TEST_F(PythonE2e, ThePackageDoesWhatItsTestsSay) {
  for (const char* part : {"parts", "shown", "package", "samples", "models", "jobs", "text"})
    expect_passes(part, python(fmt::format("tests/e2e/python/{}_test.py", part)));
  // Of protobuf there is one without a library of C++, too.
  expect_passes("parts with protobuf in Python",
                python_of(venv_ + "/bin/python", "tests/e2e/python/parts_test.py", {},
                          {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python"}));
  shut_down();
}

TEST_F(PythonE2e, TrackersGetEachStepOnce) {
  expect_passes("tracking", python("tests/e2e/python/tracking_test.py"));
  shut_down();
}

TEST_F(PythonE2e, OtherVersionsOfProtobufAndGrpcDoTheSame) {
  const std::vector<std::string> pythons = other_pythons();
  if (pythons.empty()) {
    shut_down();
    // Not in the words for which ctest calls all of this file skipped, whatever failed.
    GTEST_SKIP() << "no other versions: MESHLOOM_TEST_PYTHONS names no interpreters; "
                    "scripts/python/make_test_environments.sh makes them";
  }
  const CommandResult where =
      run_command({venv_ + "/bin/python", "-c",
                   "import meshloom, os; print(os.path.dirname(meshloom.__path__[0]))"},
                  60s);
  const std::string package = where.output.substr(0, where.output.find('\n'));
  // Of the folder that it is installed in, pip and the like are not to be found.
  const std::filesystem::path alone = folder_ / "package alone";
  std::filesystem::create_directory(alone);
  std::filesystem::copy(package + "/meshloom", alone / "meshloom",
                        std::filesystem::copy_options::recursive);
  for (const std::string& interpreter : pythons)
    for (const char* part : {"parts", "shown", "package", "jobs", "text"})
      expect_passes(interpreter + " " + part,
                    python_of(interpreter, fmt::format("tests/e2e/python/{}_test.py", part), {},
                              {"PYTHONPATH=" + alone.string()}));
  shut_down();
}

TEST_F(PythonE2e, ExamplesRunOnOneRank) {
  shut_down();
  start(1);
  const std::filesystem::path trained = folder_ / "trained by the example";
  const CommandResult job =
      python("scripts/python/examples/train_job.py", {data_ / "text.txt", trained.string(), "20"});
  ASSERT_EQ(job.exit_code, 0) << job.output << job.errors;
  EXPECT_THAT(job.output, HasSubstr("succeeded, step 20/20"));
  EXPECT_THAT(job.output, HasSubstr("loss by step"));
  EXPECT_TRUE(std::filesystem::exists(trained / "model.safetensors"));
  const CommandResult tuned =
      python("scripts/python/examples/supervised.py", {trained, data_ / "text.txt", "5"});
  EXPECT_EQ(tuned.exit_code, 0) << tuned.output << tuned.errors;
  for (const auto& [example, last] :
       {std::pair{"custom_loss", "step 2: "}, std::pair{"policy_gradient", "it writes: "}}) {
    const CommandResult result =
        python(fmt::format("scripts/python/examples/{}.py", example), {"3"});
    EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
    EXPECT_THAT(result.output, HasSubstr(last));
  }
  shut_down();
}

TEST_F(PythonE2e, LossesByTorchAreThoseOfTheirFormulas) {
  const CommandResult torch = run_command({venv_ + "/bin/python", "-c", "import torch"}, 120s);
  if (torch.exit_code != 0) {
    shut_down();
    // Not in the words for which ctest calls all of this file skipped, whatever failed.
    GTEST_SKIP() << "no torch (python3-torch)";
  }
  const CommandResult result = python("tests/e2e/python/torch_loss_test.py");
  EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("OK"));
  shut_down();
}

TEST_F(PythonE2e, ALoopOutlivesAKillOfEverythingWithTheSameWeights) {
  const std::filesystem::path log = folder_ / "survivor.log", restarted = folder_ / "restarted";
  Process loop({"env", "MESHLOOM_ADDRESS=" + address_, venv_ + "/bin/python",
                test::source_file("tests/e2e/python/survivor.py"), restarted},
               log);
  ASSERT_TRUE(eventually(60s, [&] { return read_file(log).find("kill") != std::string::npos; }))
      << read_file(log);
  kill_everything();
  start(2, {"--listen", address_});
  write_text("restarted", "");
  EXPECT_EQ(loop.wait(60s), 0) << read_file(log);
  EXPECT_THAT(read_file(log), HasSubstr("the same weights"));
  shut_down();
}

TEST_F(PythonE2e, FineTuningAHuggingFaceFolderLearns) {
  TinyJob job;
  job.steps = 5;
  job.extra = "  export: {hf_folder: hf}\n";
  submit(job, "base");
  ASSERT_TRUE(reaches("base", "succeeded"));
  const std::filesystem::path folder = folder_ / "hf of the client";
  std::filesystem::copy(state_ / "jobs/base/hf", folder);
  const CommandResult result =
      python("scripts/python/examples/supervised.py", {folder, data_ / "text.txt", "40"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, HasSubstr("models/supervised-base: gpt2"));
  EXPECT_EQ(client_json({"model", "list"}).value("models", Json::array()).size(), 0u);
  const auto before = numbers_behind(result.output, "last batch: ");
  const auto after = numbers_behind(result.output, "before, ");
  ASSERT_EQ(before.size() + after.size(), 2u) << result.output;
  EXPECT_LT(after[0], before[0] - 1.0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("/states/tuned at step 40"));
  shut_down();
}

TEST_F(PythonE2e, APolicyGradientRaisesTheReward) {
  const CommandResult result = python("scripts/python/examples/policy_gradient.py");
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto rewards = numbers_behind(result.output, "reward ");
  ASSERT_EQ(rewards.size(), 100u) << result.output;
  EXPECT_LT(rewards.front(), 0.1) << result.output;
  EXPECT_GT(rewards.back(), 0.85) << result.output;
  // Whether its first byte is one of them, too, hangs on the last bits of the losses.
  EXPECT_THAT(result.output, HasSubstr("ababababab"));
  shut_down();
}

TEST_F(PythonE2e, ALossOfOnesOwnGetsItsPairsRight) {
  const CommandResult result = python("scripts/python/examples/custom_loss.py");
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto losses = numbers_behind(result.output, "loss ");
  ASSERT_GE(losses.size(), 2u) << result.output;
  EXPECT_LT(losses.back(), 0.5 * losses.front()) << result.output;
  EXPECT_THAT(result.output, HasSubstr("3 of 3 pairs right")) << result.output;
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
