// SPDX-License-Identifier: Apache-2.0
// Training over several hosts: run by tests/mpi/on_hosts.sh, below which mpirun starts two ranks on
// each of two hosts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <vector>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/run_client.h"

namespace meshloom::e2e {
namespace {

using ::testing::HasSubstr;

// While rounding is small.
constexpr int kHostSteps = 8;

class HostsE2e : public DaemonTest {
 protected:
  void SetUp() override {
    if (std::getenv("OMPI_MCA_orte_default_hostfile") == nullptr)
      GTEST_SKIP() << "run it by tests/mpi/on_hosts.sh 2,2";
    ::setenv("MESHLOOM_HOST", "10.77.0.1", 1);
  }
  void start_ranks(int ranks, Arguments flags = {}) {
    flags.insert(flags.end(), {"--mpi-interface", "10.77.0.0/24"});
    start(ranks, flags);
    // They count in the namespaces of their hosts.
    pids_.clear();
  }
  /// Sockets of this host that listen on 10.77.0.1 alone.
  static int listeners_on_the_interface() {
    int count = 0;
    std::ifstream table("/proc/self/net/tcp");
    for (std::string line; std::getline(table, line);)
      count += line.find(": 01004D0A:") != std::string::npos &&
               line.find(" 00000000:0000 0A ") != std::string::npos;
    return count;
  }
  std::map<int, double> losses_of(const std::string& name, const std::string& mesh,
                                  const std::string& plan) {
    TinyJob job;
    job.steps = kHostSteps;
    job.plan = plan;
    job.extra = mesh;
    submit(job, name);
    EXPECT_TRUE(reaches(name, "succeeded", 60s)) << this->job(name).dump(2);
    return step_losses(name);
  }
};

TEST_F(HostsE2e, AMeshOverTwoHostsTrainsAsOneRankDoesAndTheSameBitsAgain) {
  const std::string plain = "{dtype: float32}",
                    pull = "{dtype: float32, context_parallel: {rotate: pull}}";
  start_ranks(1);
  const auto alone = losses_of("alone", "", plain);
  ASSERT_EQ(alone.size(), std::size_t{kHostSteps});
  shut_down();

  const int before = listeners_on_the_interface();
  start_ranks(4);
  EXPECT_GE(listeners_on_the_interface(), before + 2) << "for ranks and for their heartbeats";
  EXPECT_THAT(daemon_log(), HasSubstr("through symmetric memory inside 2 hosts and over MPI"));
  const std::tuple<std::string, std::string, std::string> meshes[] = {
      {"dp-tp", "  mesh: {dp: 2, tp: 2}\n", plain},
      {"fsdp-tp", "  mesh: {fsdp: 2, tp: 2}\n", plain},
      {"fsdp", "  mesh: {dp: 1, fsdp: 4}\n", plain},
      // No rank reads the memory of another host's: the same keys come by a collective.
      {"cp-pull", "  mesh: {cp: 4}\n", pull},
  };
  for (const auto& [name, mesh, plan] : meshes) {
    SCOPED_TRACE(name);
    const auto first = losses_of(name, mesh, plan);
    ASSERT_EQ(first.size(), std::size_t{kHostSteps});
    for (const auto& [step, loss] : alone)
      EXPECT_NEAR(first.at(step), loss, 1e-5 * loss) << "step " << step;
    EXPECT_EQ(losses_of(name + "-again", mesh, plan), first);
  }
  shut_down();
}

/// What jobs and runs leave that has to be the same wherever the files of the ranks are.
struct Outcomes {
  std::map<int, double> losses, from_lines, resumed;
  std::map<std::string, std::string> shards;  ///< of a checkpoint
  std::vector<double> run;                    ///< losses of its verbs
  std::map<std::string, std::string> state;   ///< shards of the run's saved state
  std::string weights;                        ///< that the run has saved
  std::vector<int> drawn;
};

class DisksE2e : public HostsE2e {
 protected:
  ~DisksE2e() override { ::unsetenv("MESHLOOM_HIDDEN_FOLDER"); }

  static std::map<std::string, std::string> shards_in(const std::filesystem::path& folder) {
    std::map<std::string, std::string> shards;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".safetensors")
        shards[entry.path().filename().string()] = read_file(entry.path());
    return shards;
  }

  /// From text, from lines that are tokenized, from a checkpoint.
  void train(const std::string& name, Outcomes& outcomes) {
    const std::string mesh = "  mesh: {dp: 1, fsdp: 2, tp: 2}\n";
    TinyJob job;
    job.steps = 6;
    job.checkpoint_interval = 3;
    job.validation_interval = 3;
    job.extra = mesh + "  export: {hf_folder: hf}\n";
    submit(job, name);
    ASSERT_TRUE(reaches(name, "succeeded")) << this->job(name).dump(2);
    outcomes.losses = step_losses(name);
    outcomes.shards = shards_in(state_ / "jobs" / name / "checkpoints/step-6");

    TinyJob lines;
    lines.steps = 3;
    lines.data = "lines, tokenizer: bytes";
    lines.extra = mesh;
    submit(lines, name + "-lines");
    ASSERT_TRUE(reaches(name + "-lines", "succeeded")) << this->job(name + "-lines").dump(2);
    outcomes.from_lines = step_losses(name + "-lines");

    TinyJob resumed = job;
    resumed.resume_from = "checkpoints/" + name + "/step-3";
    submit(resumed, name + "-resumed");
    ASSERT_TRUE(reaches(name + "-resumed", "succeeded")) << this->job(name + "-resumed").dump(2);
    outcomes.resumed = step_losses(name + "-resumed");
  }

  /// Ranks of this daemon that do not see its folders, as this process knows them.
  std::vector<pid_t> hidden_ranks() const {
    std::vector<pid_t> pids;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
      const std::filesystem::path process = entry.path();
      if (read_file(process / "comm") != "meshloomd\n" ||
          read_file(process / "cmdline").find(state_.string()) == std::string::npos)
        continue;
      const auto address = process / "root" / (state_ / "address").relative_path();
      if (!std::filesystem::exists(address, gone))
        pids.push_back(std::stoi(process.filename().string()));
    }
    return pids;
  }

  /// What ranks that do not see the state folder have logged in that of their host.
  std::string hidden_logs() const {
    std::string text;
    for (const pid_t pid : hidden_ranks())
      for (const int rank : {2, 3})
        text += read_file(std::filesystem::path("/proc") / std::to_string(pid) / "root" /
                          (state_ / fmt::format("logs/rank-{}.log", rank)).relative_path());
    return text;
  }

  static double loss_of(const Outcome& outcome) {
    EXPECT_TRUE(outcome.ok()) << outcome.message;
    return outcome.operation.result().loss().metrics().at("loss:sum");
  }

  /// A run of the model that the job has exported, which reads its samples by reference.
  void drive(const std::string& name, Outcomes& outcomes) {
    const auto made = client({"model", "create", name, (state_ / "jobs" / name / "hf").string()});
    ASSERT_EQ(made.exit_code, 0) << made.errors;
    v1::RunSpec spec;
    spec.set_name(name);
    v1::RunConfig& config = *spec.mutable_config();
    config.mutable_model()->set_name(name);
    config.mutable_mesh()->set_fsdp(4);
    config.mutable_plan()->set_dtype("float32");
    config.mutable_training()->set_seq_len(32);
    RunClient run(address_);
    ASSERT_TRUE(run.create(spec));
    v1::LossBatch batch;
    batch.set_loss("cross_entropy");
    batch.mutable_reference()->mutable_data()->set_path("text.txt");
    batch.mutable_reference()->set_samples(6);
    outcomes.run.push_back(loss_of(run.forward_backward(batch)));
    EXPECT_TRUE(run.optim_step().ok());
    const Outcome saved = run.save_state("one");
    ASSERT_TRUE(saved.ok()) << saved.message;
    outcomes.state = shards_in(state_ / saved.operation.result().saved_state().folder());
    const Outcome kept = run.save_weights("kept");
    ASSERT_TRUE(kept.ok()) << kept.message;
    outcomes.weights =
        read_file(state_ / kept.operation.result().saved_weights().folder() / "model.safetensors");
    outcomes.run.push_back(loss_of(run.forward_backward(batch)));
    EXPECT_TRUE(run.optim_step().ok());
    outcomes.run.push_back(loss_of(run.forward(batch)));
    v1::LoadStateRequest load;
    load.set_state("runs/" + name + "/states/one");
    const Outcome loaded = run.run(&RunClient::Runs::LoadState, load);
    EXPECT_TRUE(loaded.ok()) << loaded.message;
    outcomes.run.push_back(loss_of(run.forward(batch)));
    v1::SampleRequest request;
    request.add_prompts()->set_prompt("In the ");
    request.mutable_params()->set_max_tokens(8);
    request.mutable_params()->set_seed(4);
    request.set_weights("runs/" + name + "/weights/kept");
    const Outcome sampled = run.sample(request);
    ASSERT_TRUE(sampled.ok()) << sampled.message;
    const auto& drawn = sampled.operation.result().sample().sequences(0).token_ids();
    outcomes.drawn.assign(drawn.begin(), drawn.end());
    EXPECT_TRUE(run.close().ok());
  }
};

TEST_F(DisksE2e, RanksOnAnotherDiskGiveTheBitsOfRanksThatShareOne) {
  std::filesystem::create_directories(data_ / "lines");
  std::ofstream lines(data_ / "lines/some.jsonl");
  for (int i = 0; i < 400; ++i) lines << fmt::format("{{\"text\": \"line {} of {}\"}}\n", i, i * i);
  lines.close();

  Outcomes shared, apart;
  start_ranks(4);
  EXPECT_THAT(daemon_log(), ::testing::Not(HasSubstr("does not see the state folder")));
  ASSERT_NO_FATAL_FAILURE(train("shared", shared));
  ASSERT_NO_FATAL_FAILURE(drive("shared", shared));
  shut_down();

  ::setenv("MESHLOOM_HIDDEN_FOLDER", folder_.c_str(), 1);
  // The other host does not have this file either.
  start_ranks(4, {"--config", write_text("daemon.yaml", "collective_timeout_ms: 90000\n")});
  EXPECT_THAT(daemon_log(), HasSubstr("does not see the state folder"));
  for (const char* rank : {"[rank 2]", "[rank 3]"}) EXPECT_THAT(hidden_logs(), HasSubstr(rank));
  ASSERT_NO_FATAL_FAILURE(train("apart", apart));
  ASSERT_NO_FATAL_FAILURE(drive("apart", apart));

  EXPECT_EQ(apart.losses, shared.losses);
  EXPECT_EQ(apart.losses.size(), 6u);
  EXPECT_EQ(apart.from_lines, shared.from_lines);
  EXPECT_EQ(apart.from_lines.size(), 3u);
  EXPECT_EQ(apart.resumed, shared.resumed);
  EXPECT_EQ(apart.resumed.size(), 3u);
  EXPECT_EQ(apart.shards.size(), 4u);
  EXPECT_TRUE(apart.shards == shared.shards);
  EXPECT_EQ(apart.run, shared.run);
  EXPECT_EQ(apart.run.size(), 4u);
  EXPECT_EQ(apart.state.size(), 4u);
  EXPECT_TRUE(apart.state == shared.state);
  EXPECT_TRUE(apart.weights == shared.weights);
  EXPECT_EQ(apart.drawn, shared.drawn);
  EXPECT_EQ(apart.drawn.size(), 8u);
  shut_down();
}

TEST_F(DisksE2e, ARankKilledWhileItSendsItsShardLeavesWholeCheckpointsAlone) {
  ::setenv("MESHLOOM_HIDDEN_FOLDER", folder_.c_str(), 1);
  start_ranks(4);
  const std::vector<pid_t> hidden = hidden_ranks();
  ASSERT_EQ(hidden.size(), 2u);
  TinyJob job;
  job.steps = 30;
  job.extra = "  mesh: {fsdp: 4}\n";
  job.checkpoint_interval = 1;
  submit(job, "killed");
  const auto checkpoints = state_ / "jobs/killed/checkpoints";
  ASSERT_TRUE(eventually(60s, [&] { return std::filesystem::exists(checkpoints / "step-2"); }));
  const auto unfinished = [&](int step) {
    return std::filesystem::exists(checkpoints / fmt::format(".tmp-step-{}", step) /
                                   "shard-00003-of-00004.safetensors");
  };
  // One of the steps to come: whichever is seen first.
  const auto sends = [&] {
    for (int step = 3; step < 25; ++step)
      if (unfinished(step)) return true;
    return false;
  };
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (!sends()) ASSERT_LT(std::chrono::steady_clock::now(), end);
  for (const pid_t pid : hidden) ::kill(pid, SIGKILL);
  EXPECT_NE(wait_for_end(40s), 0);
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-")) continue;
    EXPECT_TRUE(std::filesystem::exists(entry.path() / "manifest.json")) << name;
    EXPECT_EQ(shards_in(entry.path()).size(), 4u) << name;
  }

  start_ranks(4);
  ASSERT_TRUE(reaches("killed", "succeeded")) << this->job("killed").dump(2);
  EXPECT_EQ(this->job("killed")["attempt"], 2);
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints))
    EXPECT_THAT(entry.path().filename().string(), ::testing::StartsWith("step-"));
  job.checkpoint_interval = 0;
  submit(job, "undisturbed");
  ASSERT_TRUE(reaches("undisturbed", "succeeded")) << this->job("undisturbed").dump(2);
  EXPECT_EQ(step_losses("killed"), step_losses("undisturbed"));
  EXPECT_EQ(step_losses("killed").size(), 30u);
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
