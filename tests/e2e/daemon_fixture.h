// SPDX-License-Identifier: Apache-2.0
// A real daemon under mpirun with folders of its own, and its clients: the program meshloom and
// gRPC stubs.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/e2e/process.h"
#include "v1/job_service.grpc.pb.h"
#include "v1/worker_service.grpc.pb.h"

namespace meshloom::e2e {

using namespace std::chrono_literals;
using Json = nlohmann::json;

/// What varies between the tests' jobs.
struct TinyJob {
  int steps = 20;
  int checkpoint_interval = 0;
  int validation_interval = 0;
  std::string model = "{preset: byte_gpt_tiny}";
  std::string plan = "{dtype: float32}";
  std::string optimizer = "{lr: 3.0e-3}";
  std::string data = "text.txt";
  std::string resume_from{};
  bool fallback = true;  ///< to an older checkpoint where the newest is damaged
  std::string extra{};   ///< further lines below run:
};

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest();
  ~DaemonTest() override;

  /// Starts mpirun and waits until the daemon serves, on a free port unless the flags name one.
  void start(int ranks = 2, const Arguments& flags = {});
  /// With these lines as the daemon's --config.
  void start_with(const std::string& settings, int ranks = 2) {
    start(ranks, {"--config", write_text("daemon.yaml", settings)});
  }
  /// The same without waiting for it to serve.
  std::unique_ptr<Process> launch(int ranks, const Arguments& flags, const std::string& log);
  /// For daemon_, whose state folder had no address when it was started.
  void wait_until_serving(int ranks);
  /// kill -9 of mpirun and every rank.
  void kill_everything();
  /// The exit code of mpirun, which must end in time.
  int wait_for_end(std::chrono::milliseconds timeout = 20s);

  /// Stops the daemon in good order.
  void shut_down();

  /// One of configs/plans, by its name without .yaml.
  static std::string plan_path(const std::string& name);
  /// The program meshloom against this daemon.
  CommandResult client(const Arguments& arguments, std::chrono::milliseconds timeout = 60s) const;
  /// The same with --json, which must succeed.
  Json client_json(const Arguments& arguments) const;
  /// What `evaluate` finds with these options: the last value of its stream.
  Json evaluate(const Arguments& options) const;
  /// The same must fail and tell this reason.
  void expect_refused_for(const Arguments& arguments, const std::string& reason) const;

  std::string write_job(const TinyJob& job, const std::string& file = "job.yaml") const;
  std::string write_text(const std::string& file, const std::string& text) const;
  /// Submits and returns at once; the job's name must be new.
  void submit(const TinyJob& job, const std::string& name);
  /// A job that ends with a cancellation, on configs/plans/PLAN.yaml; waits until it has done
  /// `step`.
  void submit_endless(const std::string& plan, const std::string& name, int step);
  /// A run of this model in float32 on samples of 32 tokens, which has the ranks when this returns
  /// its token. `more` are further lines of its config.
  std::string create_run(const std::string& name,
                         const std::string& model = "{preset: byte_gpt_tiny}",
                         const std::string& more = "") const;
  /// Cancels a job and waits until it has ended so.
  void cancel(const std::string& name) const;
  /// Copies the Hugging Face folder that a job "first" of two steps exports to this one, which must
  /// not exist.
  void export_first(const std::filesystem::path& folder);
  Json job(const std::string& name) const;
  /// The loss of every step of the job's own in its metrics, by step.
  std::map<int, double> step_losses(const std::string& name) const;
  /// Of two jobs, one of which may have come further: bit for bit at all steps that both have done,
  /// which are at least 3.
  void expect_same_losses(const std::string& name, const std::string& other) const;
  bool reaches(const std::string& name, const std::string& state,
               std::chrono::milliseconds timeout = 60s) const;
  bool reaches_step(const std::string& name, int step,
                    std::chrono::milliseconds timeout = 60s) const;

  std::vector<pid_t> rank_pids() const;
  /// That of address_.
  int port() const;
  /// Those on which rank 0 listens for ranks of other hosts and their heartbeats, with
  /// --mpi-interface lo.
  std::vector<int> ports_for_ranks() const;
  std::unique_ptr<v1::JobService::Stub> jobs() const;
  std::unique_ptr<v1::WorkerService::Stub> workers() const;
  std::string daemon_log() const { return read_file(folder_ / "daemon.log"); }
  /// The log file of a rank of this host, which has what mpirun no longer printed.
  std::string log_of(int rank) const;

  /// Each rank that is started from here on takes itself for the only one of its host.
  void give_each_rank_a_host() { before_program_ = {"env", "OMPI_COMM_WORLD_LOCAL_SIZE=1"}; }

  Arguments launcher_;  ///< put before mpirun
  Arguments before_program_;
  std::string program_ = "meshloomd";
  std::filesystem::path folder_;
  std::filesystem::path state_;
  std::filesystem::path data_;
  std::string address_;
  std::vector<pid_t> pids_;  ///< of the ranks that were started last
  std::unique_ptr<Process> daemon_;
};

}  // namespace meshloom::e2e
