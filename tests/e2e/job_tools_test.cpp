// SPDX-License-Identifier: Apache-2.0
// What makes a first hour easy: settings and sweeps on the command line, jobs from standard input,
// comparisons, charts, facts, fields, completions.
#include <fmt/format.h>

#include <filesystem>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

class JobToolsE2e : public DaemonTest {
 protected:
  std::string output(const Arguments& arguments) {
    const auto result = client(arguments, 120s);
    EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
    return result.output;
  }
};

TEST_F(JobToolsE2e, SettingsWinOverFilesAndRefusalsNameThem) {
  start();
  const std::string file = write_job({});
  output({"job", "submit", file, "--name", "set", "--set", "training.steps=7", "--set",
          "run.optimizer.lr=1e-3", "--set", "labels.team=x"});
  EXPECT_EQ(job("set")["resolved"]["training"]["steps"], 7);
  EXPECT_EQ(job("set")["resolved"]["optimizer"]["lr"], 1e-3);
  EXPECT_EQ(job("set")["spec"]["labels"]["team"], "x");
  ASSERT_TRUE(reaches("set", "succeeded"));
  const auto refusal = [&](const std::string& setting) {
    const auto result = client({"job", "submit", file, "--set", setting});
    EXPECT_EQ(result.exit_code, 2) << setting;
    return result.errors;
  };
  EXPECT_NE(refusal("training.stepz=7").find("did you mean \"steps\""), std::string::npos);
  EXPECT_NE(refusal("training.steps=-7").find("training.steps=-7: "), std::string::npos)
      << refusal("training.steps=-7");

  // From standard input, and the example, which is a whole job.
  const auto shell = [&](const std::string& line) {
    return run_command({"bash", "-c",
                        fmt::format("export PATH='{}':$PATH MESHLOOM_ADDRESS={}; {}",
                                    test::program_folder(), address_, line)},
                       60s);
  };
  const auto piped = shell(fmt::format("meshloom job submit - --name piped < '{}'", file));
  ASSERT_EQ(piped.exit_code, 0) << piped.errors;
  EXPECT_TRUE(reaches("piped", "succeeded"));
  const auto wrong = shell("echo 'run: {traning: {steps: 1}}' | meshloom job submit -");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.errors.find("standard input:1: "), std::string::npos) << wrong.errors;
  const auto example = shell(
      "meshloom job submit --example | meshloom job submit - --dry-run --set data.path=text.txt "
      "--set training.global_batch_size=2");
  EXPECT_EQ(example.exit_code, 0) << example.errors;
  EXPECT_EQ(client({"job", "submit"}).exit_code, 2);
}

TEST_F(JobToolsE2e, ASweepIsQueuedWholeOrNotAtAllAndCompared) {
  start();
  const std::string file = write_job({.validation_interval = 10});
  const auto refused = client({"job", "submit", file, "--sweep", "training.steps=5,0"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.errors.find("training.steps=0"), std::string::npos) << refused.errors;
  const Arguments submission = {"job",
                                "submit",
                                file,
                                "--name",
                                "lr",
                                "--request-id",
                                "lr-once",
                                "--sweep",
                                "optimizer.lr=1e-3,3e-3",
                                "--sweep",
                                "training.seed=1,2"};
  Arguments too_long = submission, labelled = submission;
  too_long[6] = std::string(63, 'x');
  EXPECT_NE(client(too_long).errors.find("at most 62 leave room"), std::string::npos);
  labelled.insert(labelled.end(), {"--label", "sweep=mine"});
  EXPECT_NE(client(labelled).errors.find("sweep=mine"), std::string::npos);
  EXPECT_TRUE(client_json({"job", "list"})["jobs"].empty());

  const Json made = client_json(submission);
  ASSERT_EQ(made["jobs"].size(), 4u);
  EXPECT_EQ(client_json(submission)["jobs"].size(), 4u) << "a repeat is harmless";
  EXPECT_EQ(client_json({"job", "list"})["jobs"].size(), 4u);
  const auto taken =
      client({"job", "submit", file, "--name", "lr", "--sweep", "training.steps=3,4"});
  EXPECT_NE(taken.exit_code, 0) << taken.output;
  EXPECT_EQ(client_json({"job", "list"})["jobs"].size(), 4u) << "its names are taken";
  for (int i = 1; i <= 4; ++i) ASSERT_TRUE(reaches(fmt::format("lr-{}", i), "succeeded"));
  EXPECT_EQ(job("lr-3")["resolved"]["optimizer"]["lr"], 3e-3);
  EXPECT_EQ(job("lr-4")["resolved"]["training"]["seed"], 2);

  const Json compared = client_json({"job", "compare", "--label", "sweep=lr"});
  ASSERT_EQ(compared["jobs"].size(), 4u);
  std::map<std::string, Json> fields;
  for (const Json& field : compared["config"]) fields[field["field"]] = field["values"];
  EXPECT_EQ(fields.size(), 2u) << compared["config"];
  EXPECT_EQ(fields["optimizer.lr"], Json({"0.001", "0.001", "0.003", "0.003"}));
  EXPECT_EQ(compared["losses"].back()["step"], 20);
  EXPECT_EQ(compared["losses"].back()["losses"][2], step_losses("lr-3").at(20));
  EXPECT_EQ(compared["validation"].size(), 3u);
  const std::string table = output({"job", "compare", "lr-1", "lr-3"});
  EXPECT_NE(table.find("optimizer.lr"), std::string::npos) << table;
  EXPECT_EQ(table.find("training.seed"), std::string::npos) << "it does not differ";
  EXPECT_EQ(client({"job", "compare", "lr-1"}).exit_code, 2);

  const std::string chart = output({"job", "plot", "lr-1", "lr-3", "--rows", "6"});
  EXPECT_NE(chart.find("\xE2\xA0"), std::string::npos) << chart;
  EXPECT_EQ(chart.find("\033["), std::string::npos);
  EXPECT_NE(output({"--color", "always", "job", "plot", "lr-1"}).find("\033[31m"),
            std::string::npos);
  const std::string svg = (folder_ / "chart.svg").string();
  output({"job", "plot", "--label", "sweep=lr", "--out", svg});
  EXPECT_NE(read_file(svg).find("<polyline"), std::string::npos);
  const auto png = client({"job", "plot", "lr-1", "--out", (folder_ / "chart.png").string()});
  EXPECT_EQ(png.exit_code, 2);
  EXPECT_NE(png.errors.find(".svg"), std::string::npos) << png.errors;
}

TEST_F(JobToolsE2e, AFollowedJobBeginsWithWhatItTrains) {
  start();
  const auto followed =
      client({"job", "submit", write_job({}), "--name", "shown", "--follow"}, 60s);
  ASSERT_EQ(followed.exit_code, 0) << followed.errors;
  const std::string shown = output({"job", "show", "shown"});
  for (const std::string& page : {followed.output, shown, output({"job", "follow", "shown"})}) {
    for (const char* line : {"\ndata        text.txt: 1 file, ", "\nmodel       byte_gpt_tiny, ",
                             "\nbatch       4 samples of 32 tokens = 128 a step; ",
                             "\nmesh        dp=2", "\nplan        float32"})
      EXPECT_NE(("\n" + page).find(line), std::string::npos) << line << page;
    EXPECT_NE(page.find(" parameters\n"), std::string::npos) << page;
    EXPECT_EQ(page.find("whole on every rank"), std::string::npos) << "placements are for -v";
  }
  EXPECT_NE(output({"job", "show", "shown", "-v"}).find("sent by rank 0"), std::string::npos);
  EXPECT_NE(output({"--color", "always", "job", "list"}).find("\033[32msucceeded\033[0m"),
            std::string::npos);
  const std::string plan = (folder_ / "best.yaml").string();
  output({"plan", "search", "--model", "byte_gpt_tiny", "--ranks", "2", "--write", plan});
  output({"job", "submit", write_job({}), "--name", "planned", "--plan", plan});
  EXPECT_TRUE(reaches("planned", "succeeded"));
  EXPECT_NE(output({"fields", "optimizer.lr"}).find("default 3e-4"), std::string::npos);
}

}  // namespace
}  // namespace meshloom::e2e
