// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

/// About 40 kB of words, the same every time, with something to learn in it.
std::string sample_text() {
  static constexpr const char* kWords[] = {"in",    "the",    "beginning", "was", "a",     "word",
                                           "and",   "light",  "of",        "day", "night", "water",
                                           "earth", "heaven", "saw",       "it"};
  std::mt19937 random(11);
  std::string text;
  while (text.size() < 40'000) {
    text += kWords[random() % std::size(kWords)];
    text += random() % 9 == 0 ? ".\n" : " ";
  }
  return text;
}

}  // namespace

DaemonTest::DaemonTest() {
  // A space in every path: nothing may break on it.
  std::string pattern = (fs::temp_directory_path() / "meshloom e2e XXXXXX").string();
  folder_ = ::mkdtemp(pattern.data());
  state_ = folder_ / "state";
  data_ = folder_ / "data";
  fs::create_directories(data_);
  std::ofstream(data_ / "text.txt") << sample_text();
  if (::getuid() == 0) {
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
}

DaemonTest::~DaemonTest() {
  if (HasFailure()) fmt::print("--- daemon.log\n{}---\n", daemon_log());
  daemon_.reset();
  fs::remove_all(folder_);
}

std::string DaemonTest::log_of(int rank) const {
  return read_file(state_ / fmt::format("logs/rank-{}.log", rank));
}

std::unique_ptr<Process> DaemonTest::launch(int ranks, const Arguments& flags,
                                            const std::string& log) {
  Arguments arguments = launcher_;
  const Arguments mpirun{"mpirun",    "-n",   std::to_string(ranks),
                         "--bind-to", "none", "--oversubscribe"};
  const Arguments program{test::program(program_), "--state-dir", state_.string(), "--data-dir",
                          data_.string()};
  arguments.insert(arguments.end(), mpirun.begin(), mpirun.end());
  arguments.insert(arguments.end(), before_program_.begin(), before_program_.end());
  arguments.insert(arguments.end(), program.begin(), program.end());
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return std::make_unique<Process>(arguments, folder_ / log);
}

void DaemonTest::start(int ranks, const Arguments& flags) {
  Arguments all;
  if (std::find(flags.begin(), flags.end(), "--listen") == flags.end())
    all = {"--listen", "127.0.0.1:0"};
  all.insert(all.end(), flags.begin(), flags.end());
  fs::remove(state_ / "address");
  daemon_ = launch(ranks, all, "daemon.log");
  wait_until_serving(ranks);
}

void DaemonTest::wait_until_serving(int ranks) {
  const fs::path file = state_ / "address";
  ASSERT_TRUE(eventually(30s, [&] { return fs::exists(file) || !is_alive(daemon_->pid()); }));
  address_ = read_file(file);
  ASSERT_FALSE(address_.empty()) << "the daemon did not start";
  address_.pop_back();
  ASSERT_EQ(client({"status", "--wait", "20"}).exit_code, 0);
  pids_ = rank_pids();
  ASSERT_EQ(pids_.size(), static_cast<std::size_t>(ranks));
}

void DaemonTest::kill_everything() {
  for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
  daemon_->signal(SIGKILL);
  for (const pid_t pid : pids_) EXPECT_TRUE(eventually(10s, [&] { return !is_alive(pid); }));
  daemon_.reset();
}

int DaemonTest::wait_for_end(std::chrono::milliseconds timeout) {
  const auto code = daemon_->wait(timeout);
  EXPECT_TRUE(code.has_value()) << "mpirun still runs";
  for (const pid_t pid : pids_) EXPECT_TRUE(eventually(5s, [&] { return !is_alive(pid); })) << pid;
  daemon_.reset();
  return code.value_or(-1);
}

CommandResult DaemonTest::client(const Arguments& arguments,
                                 std::chrono::milliseconds timeout) const {
  Arguments all{test::program("meshloom"), "--address", address_};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_command(all, timeout);
}

Json DaemonTest::client_json(const Arguments& arguments) const {
  Arguments all{"--json"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const CommandResult result = client(all);
  EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
  return Json::parse(result.output, nullptr, false);
}

Json DaemonTest::evaluate(const Arguments& options) const {
  Arguments all{"evaluate", "--json"};
  all.insert(all.end(), options.begin(), options.end());
  const CommandResult result = client(all, 120s);
  EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
  std::string last = result.output;
  last.resize(last.find_last_not_of('\n') + 1);
  return Json::parse(last.substr(last.rfind('\n') + 1))["result"];
}

void DaemonTest::expect_refused_for(const Arguments& arguments, const std::string& reason) const {
  Arguments all = arguments;
  all.push_back("--json");
  const CommandResult result = client(all);
  EXPECT_NE(result.exit_code, 0) << reason;
  EXPECT_NE(result.output.find(reason), std::string::npos) << result.output << result.errors;
}

std::string DaemonTest::write_text(const std::string& file, const std::string& text) const {
  const fs::path path = folder_ / file;
  std::ofstream(path) << text;
  return path.string();
}

std::string DaemonTest::write_job(const TinyJob& job, const std::string& file) const {
  return write_text(file, fmt::format(R"(run:
  model: {}
  plan: {}
  training: {{steps: {}, seq_len: 32, global_batch_size: 4, seed: 3}}
  optimizer: {}
  data: {{path: {}}}
  validation: {{interval: {}, steps: 2}}
  checkpoint: {{interval: {}, resume_from: "{}", fallback: {}}}
{})",
                                      job.model, job.plan, job.steps, job.optimizer, job.data,
                                      job.validation_interval, job.checkpoint_interval,
                                      job.resume_from, job.fallback, job.extra));
}

void DaemonTest::submit(const TinyJob& job, const std::string& name) {
  const auto result = client({"job", "submit", write_job(job, name + ".yaml"), "--name", name});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
}

void DaemonTest::submit_endless(const std::string& plan, const std::string& name, int step) {
  TinyJob endless;
  endless.steps = 10'000'000;
  const auto result = client({"job", "submit", write_job(endless, name + ".yaml"), "--name", name,
                              "--plan", plan_path(plan)});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  ASSERT_TRUE(reaches_step(name, step)) << job(name).dump(2);
}

std::string DaemonTest::create_run(const std::string& name, const std::string& model,
                                   const std::string& more) const {
  const std::string file = write_text(name + ".yaml", fmt::format(R"(config:
  model: {}
  plan: {{dtype: float32}}
  training: {{seq_len: 32}}
{})",
                                                                  model, more));
  const std::string token = client_json({"run", "create", file, "--name", name})["token"];
  EXPECT_TRUE(eventually(30s, [&] {
    return client_json({"run", "show", name})["state"] == "ready";
  })) << client({"run", "show", name}).output;
  return token;
}

Json DaemonTest::job(const std::string& name) const { return client_json({"job", "show", name}); }

void DaemonTest::shut_down() {
  ASSERT_EQ(client({"shutdown", "--wait", "20"}).exit_code, 0);
  EXPECT_EQ(wait_for_end(), 0) << daemon_log();
}

std::string DaemonTest::plan_path(const std::string& name) {
  return test::source_file("configs/plans/" + name + ".yaml");
}

std::map<int, double> DaemonTest::step_losses(const std::string& name) const {
  std::map<int, double> losses;
  std::ifstream metrics(state_ / "jobs" / name / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const Json entry = Json::parse(line);
    if (!entry.contains("grad_norm") || entry.value("job", name) != name) continue;
    const int step = entry["step"];
    EXPECT_TRUE(losses.emplace(step, entry["loss"].get<double>()).second)
        << "step " << step << " of " << name << " is there twice";
  }
  return losses;
}

void DaemonTest::cancel(const std::string& name) const {
  EXPECT_EQ(client({"job", "cancel", name}).exit_code, 0);
  ASSERT_TRUE(reaches(name, "cancelled")) << job(name).dump(2);
}

void DaemonTest::export_first(const fs::path& folder) {
  TinyJob first;
  first.steps = 2;
  first.extra = "  export: {hf_folder: hf}\n";
  submit(first, "first");
  ASSERT_TRUE(reaches("first", "succeeded")) << job("first").dump(2);
  const auto copied = client({"checkpoint", "download", "checkpoints/first/hf", folder.string()});
  ASSERT_EQ(copied.exit_code, 0) << copied.errors;
}

int DaemonTest::port() const { return std::stoi(address_.substr(address_.rfind(':') + 1)); }

std::vector<int> DaemonTest::ports_for_ranks() const {
  std::vector<int> ports;
  for (const std::string& listener : tcp_listeners(pids_.at(0)))
    if (port_of(listener) != port() && listener.find("0100007F:") != std::string::npos)
      ports.push_back(port_of(listener));
  return ports;
}

void DaemonTest::expect_same_losses(const std::string& name, const std::string& other) const {
  const std::map<int, double> expected = step_losses(other);
  int compared = 0;
  for (const auto& [step, loss] : step_losses(name)) {
    const auto found = expected.find(step);
    if (found == expected.end()) continue;
    EXPECT_EQ(loss, found->second) << step;
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

bool DaemonTest::reaches(const std::string& name, const std::string& state,
                         std::chrono::milliseconds timeout) const {
  return eventually(timeout,
                    [&] {
                      const std::string now = job(name)["state"];
                      return now == state || now == "failed";
                    }) &&
         job(name)["state"] == state;
}

bool DaemonTest::reaches_step(const std::string& name, int step,
                              std::chrono::milliseconds timeout) const {
  return eventually(timeout, [&] { return job(name)["step"].get<int>() >= step; });
}

std::vector<pid_t> DaemonTest::rank_pids() const {
  std::vector<pid_t> pids;
  const Json status = client_json({"status"});
  for (const auto& worker : status["workers"]) pids.push_back(worker["pid"]);
  return pids;
}

std::unique_ptr<v1::JobService::Stub> DaemonTest::jobs() const {
  return v1::JobService::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
}

std::unique_ptr<v1::WorkerService::Stub> DaemonTest::workers() const {
  return v1::WorkerService::NewStub(
      grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
}

}  // namespace meshloom::e2e
