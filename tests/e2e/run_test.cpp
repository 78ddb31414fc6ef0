// SPDX-License-Identifier: Apache-2.0
// Runs that a client drives step by step through a real daemon on two ranks: beside jobs, over a
// kill, by hand.
#include <fmt/format.h>

#include <fstream>

#include "daemon/train/config/resolve.h"
#include "daemon/train/data/batch_loader.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/run.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/run_client.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

constexpr int kRunSteps = 6, kRunSeqLen = 32, kBatch = 5;

/// The config of a job of which runs and jobs share model, mesh, plan, optimizer and seed.
v1::RunConfig job_config(const v1::Mesh& mesh) {
  v1::RunConfig config;
  config.mutable_model()->set_preset("byte_gpt_tiny");
  *config.mutable_mesh() = mesh;
  config.mutable_plan()->set_dtype("float32");
  config.mutable_optimizer()->set_lr(3e-3);
  v1::TrainingConfig& training = *config.mutable_training();
  training.set_seed(7);
  training.set_seq_len(kRunSeqLen);
  training.set_micro_batch_size(2);
  training.set_global_batch_size(kBatch);
  training.set_steps(kRunSteps);
  training.set_max_norm(0.5);
  config.mutable_lr_scheduler()->set_decay_type(v1::DECAY_TYPE_CONSTANT);
  config.mutable_data()->set_path("text.txt");
  return config;
}

v1::RunSpec run_spec(const v1::Mesh& mesh, const std::string& name) {
  v1::RunSpec spec;
  spec.set_name(name);
  v1::RunConfig config = job_config(mesh);
  config.clear_lr_scheduler();
  config.clear_data();
  config.mutable_training()->clear_steps();
  config.mutable_training()->clear_global_batch_size();
  *spec.mutable_config() = config;
  return spec;
}

class RunE2e : public DaemonTest {
 protected:
  /// The samples of the job's steps, in their order.
  std::vector<v1::LossBatch> batches(const v1::RunConfig& config) const {
    int ranks = 1;
    for (const int dim :
         {config.mesh().dp(), config.mesh().fsdp(), config.mesh().cp(), config.mesh().tp()})
      ranks *= std::max(dim, 1);
    const v1::RunConfig resolved =
        train::resolve_run_config(config, {.world_size = ranks, .data_dir = data_});
    const auto model = train::load_model_config(resolved.model(), data_);
    const train::RunData data = train::open_run_data(resolved, model, data_);
    const train::BatchLoader loader(data.training, {kBatch, kBatch, 1}, resolved.training().seed(),
                                    true);
    std::vector<v1::LossBatch> all;
    for (int step = 0; step < kRunSteps; ++step) {
      const train::TokenBatch host = loader.load(step * kBatch, 0).front();
      v1::LossBatch& batch = all.emplace_back();
      batch.set_loss("cross_entropy");
      batch.set_reduction(v1::LOSS_REDUCTION_TOKEN_MEAN);
      batch.set_tokens(kBatch * kRunSeqLen);
      for (std::size_t row = 0; row < kBatch; ++row) {
        v1::Datum& datum = *batch.add_data();
        for (std::size_t t = row * kRunSeqLen; t < (row + 1) * kRunSeqLen; ++t) {
          datum.add_tokens(static_cast<int>(host.inputs[t]));
          datum.add_targets(static_cast<int>(host.labels[t]));
        }
      }
    }
    return all;
  }

  /// The same samples, for the ranks to read.
  static std::vector<v1::LossBatch> references() {
    std::vector<v1::LossBatch> all;
    for (int step = 0; step < kRunSteps; ++step) {
      v1::LossBatch& batch = all.emplace_back();
      batch.set_loss("cross_entropy");
      batch.set_reduction(v1::LOSS_REDUCTION_TOKEN_MEAN);
      batch.set_tokens(kBatch * kRunSeqLen);
      v1::DataReference& reference = *batch.mutable_reference();
      reference.mutable_data()->set_path("text.txt");
      reference.set_first_sample(step * kBatch);
      reference.set_samples(kBatch);
    }
    return all;
  }

  static double step(RunClient& client, const v1::LossBatch& batch) {
    const Outcome gradients = client.forward_backward(batch);
    EXPECT_TRUE(gradients.ok()) << gradients.message;
    const Outcome stepped = client.optim_step();
    EXPECT_TRUE(stepped.ok()) << stepped.message;
    return stepped.operation.result().optim_step().loss();
  }

  void submit_job(const v1::Mesh& mesh, const std::string& name) {
    const std::string file =
        write_text(name + ".yaml", fmt::format(R"(run:
  model: {{preset: byte_gpt_tiny}}
  mesh: {{dp: {}, fsdp: {}, cp: {}, tp: {}}}
  plan: {{dtype: float32}}
  optimizer: {{lr: 3.0e-3}}
  training: {{seed: 7, seq_len: {}, micro_batch_size: 2, global_batch_size: {}, steps: {}, max_norm: 0.5}}
  lr_scheduler: {{decay_type: constant}}
  data: {{path: text.txt}}
  export: {{hf_folder: hf}}
)",
                                               mesh.dp(), mesh.fsdp(), mesh.cp(), mesh.tp(),
                                               kRunSeqLen, kBatch, kRunSteps));
    const auto result = client({"job", "submit", file, "--name", name});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }

  /// Batches that are sent, and those that the ranks read themselves, bit for bit as a job's.
  void verbs_equal_a_job(const v1::Mesh& mesh) {
    SCOPED_TRACE(mesh.ShortDebugString());
    const std::string id = std::to_string(++meshes_);
    submit_job(mesh, "job" + id);
    ASSERT_TRUE(reaches("job" + id, "succeeded")) << job("job" + id).dump(2);
    const std::map<int, double> expected = step_losses("job" + id);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(kRunSteps));
    const std::string whole = read_file(state_ / "jobs" / ("job" + id) / "hf/model.safetensors");
    ASSERT_GT(whole.size(), 1000u);
    const std::map<std::string, std::vector<v1::LossBatch>> ways = {
        {"sent", batches(job_config(mesh))}, {"read", references()}};
    for (const auto& [way, data] : ways) {
      SCOPED_TRACE(way);
      RunClient client(address_);
      ASSERT_TRUE(client.create(run_spec(mesh, way + id)));
      for (int i = 0; i < kRunSteps; ++i)
        EXPECT_EQ(step(client, data[static_cast<std::size_t>(i)]), expected.at(i + 1)) << i;
      EXPECT_TRUE(client.weights(state_) == whole);
      EXPECT_TRUE(client.close().ok());
    }
  }

 private:
  int meshes_ = 0;  ///< compared so far
};

v1::Mesh mesh_of(int dp, int fsdp, int cp, int tp) {
  v1::Mesh mesh;
  mesh.set_dp(dp);
  mesh.set_fsdp(fsdp);
  mesh.set_cp(cp);
  mesh.set_tp(tp);
  return mesh;
}

TEST_F(RunE2e, VerbsGiveTheLossesAndWeightsOfAJobBitForBit) {
  start();
  for (const v1::Mesh& mesh :
       {mesh_of(2, 1, 1, 1), mesh_of(1, 2, 1, 1), mesh_of(1, 1, 2, 1), mesh_of(1, 1, 1, 2)})
    verbs_equal_a_job(mesh);
  shut_down();
}

TEST_F(RunE2e, SoTheyDoOnOneRank) {
  start(1);
  verbs_equal_a_job(mesh_of(1, 1, 1, 1));
  shut_down();
}

TEST_F(RunE2e, SoTheyDoWhereParametersAndLayersAreSharded) {
  start(4);
  verbs_equal_a_job(mesh_of(1, 2, 1, 2));
  shut_down();
}

/// A batch of about so many bytes whose tokens have several targets with weights: large and soon
/// computed.
v1::LossBatch large_batch(std::size_t bytes) {
  v1::LossBatch batch;
  batch.set_loss("cross_entropy");
  batch.set_micro_batch_size(8);
  constexpr int kTargets = 120;
  for (std::size_t size = 0; size < bytes; size += kRunSeqLen * (1 + kTargets * 5)) {
    v1::Datum& datum = *batch.add_data();
    datum.set_targets_per_token(kTargets);
    for (int t = 0; t < kRunSeqLen; ++t) {
      datum.add_tokens(static_cast<int>(batch.data_size() + t) % 100);
      for (int k = 0; k < kTargets; ++k) {
        datum.add_targets(k);
        datum.add_weights(0.01f * static_cast<float>(k % 7));
      }
    }
  }
  return batch;
}

TEST_F(RunE2e, HeartbeatsAndCancelsAreAnsweredWhileALargeVerbTravelsAndRuns) {
  start();
  RunClient client(address_);
  ASSERT_TRUE(client.create(run_spec(mesh_of(2, 1, 1, 1), "large")));
  const v1::LossBatch batch = large_batch(15u << 20);
  ASSERT_GT(batch.ByteSizeLong(), std::size_t{14} << 20);
  client.waits = false;
  const std::string first = client.forward_backward(batch).operation.name();
  // More than the ranks are given at once, so that the last one has not begun.
  for (int i = 0; i < 9; ++i) ASSERT_FALSE(client.optim_step().operation.name().empty());
  const std::string last =
      client.forward_backward(batches(job_config(mesh_of(2, 1, 1, 1)))[0]).operation.name();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(client.heartbeat().ok());
  const Outcome cancelled = client.cancel(last);
  EXPECT_TRUE(cancelled.ok()) << cancelled.message;
  EXPECT_LT(client.look(first).operation.state(), v1::OPERATION_STATE_SUCCEEDED)
      << "the large verb has ended before: make it larger";
  const Outcome done = client.wait(first);
  EXPECT_TRUE(done.ok()) << done.message;
  EXPECT_EQ(client.wait(last).operation.state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_TRUE(client.close().ok());
  shut_down();
}

TEST_F(RunE2e, AVerbTakesItsDataFromAnUploadThatGoesWithIt) {
  start();
  const v1::Mesh mesh = mesh_of(1, 2, 1, 1);
  const v1::LossBatch batch = large_batch(20u << 20);  // more than a request may have
  RunClient client(address_);
  ASSERT_TRUE(client.create(run_spec(mesh, "uploads")));
  EXPECT_EQ(client.forward(batch).code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  // No handler has seen it: its number is not used up.
  --client.next_seq;
  v1::ForwardRequest request;
  const Outcome sent = client.upload(batch.SerializeAsString(), request.mutable_upload());
  ASSERT_TRUE(sent.ok()) << sent.message;
  const Outcome whole = client.run(&RunClient::Runs::Forward, request);
  EXPECT_TRUE(whole.ok()) << whole.message;
  EXPECT_GT(whole.operation.result_bytes(), 1 << 20);
  const Outcome again = client.run(&RunClient::Runs::Forward, request);
  EXPECT_EQ(again.code, grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(again.reason, "UPLOAD_NOT_FOUND") << again.message;

  // The same bits as the data in a request.
  v1::LossBatch small = large_batch(1u << 20);
  ASSERT_TRUE(client.upload(small.SerializeAsString(), request.mutable_upload()).ok());
  const Outcome uploaded = client.run(&RunClient::Runs::Forward, request);
  const Outcome inlined = client.forward(small);
  ASSERT_TRUE(uploaded.ok() && inlined.ok()) << uploaded.message << inlined.message;
  EXPECT_EQ(uploaded.operation.result().loss().metrics().at("loss:sum"),
            inlined.operation.result().loss().metrics().at("loss:sum"));

  ASSERT_TRUE(client.upload("no batch", request.mutable_upload()).ok());
  const Outcome malformed = client.run(&RunClient::Runs::Forward, request);
  EXPECT_EQ(malformed.code, grpc::StatusCode::INVALID_ARGUMENT) << malformed.message;
  EXPECT_EQ(malformed.field, "upload");
  std::string left;
  ASSERT_TRUE(client.upload(small.SerializeAsString(), &left).ok());
  EXPECT_TRUE(client.upload_state(left).ok());
  EXPECT_TRUE(client.close().ok());
  EXPECT_TRUE(eventually(20s, [&] {
    return client.upload_state(left).reason == "UPLOAD_NOT_FOUND";
  })) << "it goes with its run";
  shut_down();
}

TEST_F(RunE2e, AfterKillOfEverythingAClientGoesOnFromTheNamedStateToTheSameWeights) {
  start();
  const v1::Mesh mesh = mesh_of(1, 2, 1, 1);
  const auto data = batches(job_config(mesh));
  std::string undisturbed;
  {
    RunClient client(address_);
    ASSERT_TRUE(client.create(run_spec(mesh, "undisturbed")));
    for (const auto& batch : data) step(client, batch);
    undisturbed = client.weights(state_);
    EXPECT_TRUE(client.close().ok());
  }
  RunClient client(address_);
  ASSERT_TRUE(client.create(run_spec(mesh, "killed")));
  for (std::size_t i = 0; i < 3; ++i) step(client, data[i]);
  ASSERT_TRUE(client.save_state("three").ok());
  step(client, data[3]);
  EXPECT_TRUE(client.forward_backward(data[4]).ok());  // is lost with everything since the state
  kill_everything();
  start();

  RunClient again(address_);
  again.name = client.name;
  again.token = client.token;
  again.epoch = client.epoch;
  again.next_seq = client.next_seq;
  const Outcome lost = again.optim_step();
  EXPECT_EQ(lost.code, grpc::StatusCode::ABORTED);
  EXPECT_EQ(lost.reason, "RUN_RECOVERED") << lost.message;
  EXPECT_NE(lost.message.find("runs/killed/states/three"), std::string::npos) << lost.message;
  ASSERT_TRUE(again.wait_ready());
  EXPECT_EQ(again.epoch, client.epoch + 1);
  EXPECT_EQ(again.next_seq, again.get().saved(0).next_seq());
  EXPECT_EQ(again.get().step(), 3);
  for (std::size_t i = 3; i < data.size(); ++i) step(again, data[i]);
  EXPECT_TRUE(again.weights(state_) == undisturbed);
  EXPECT_TRUE(again.close().ok());
  shut_down();
}

TEST_F(RunE2e, AfterAKillADamagedNewestStateIsSkippedForAnOlderOne) {
  start();
  const v1::Mesh mesh = mesh_of(2, 1, 1, 1);
  const auto data = batches(job_config(mesh));
  RunClient client(address_);
  ASSERT_TRUE(client.create(run_spec(mesh, "skips")));
  step(client, data[0]);
  ASSERT_TRUE(client.save_state("sound").ok());
  const double expected = step(client, data[1]);
  const Outcome newest = client.save_state("damaged");
  ASSERT_TRUE(newest.ok()) << newest.message;
  kill_everything();
  for (const auto& item :
       fs::directory_iterator(state_ / newest.operation.result().saved_state().folder()))
    if (item.path().extension() == ".safetensors")
      fs::resize_file(item.path(), item.file_size() - 1);
  start();

  RunClient again(address_);
  again.name = client.name;
  again.token = client.token;
  ASSERT_TRUE(again.wait_ready());
  const v1::Run run = again.get();
  EXPECT_EQ(run.epoch(), client.epoch + 2) << "the one of the damaged state, and that behind it";
  EXPECT_EQ(run.step(), 1);
  EXPECT_EQ(run.cause().info().reason(), "STATE_DAMAGED");
  EXPECT_NE(run.cause().message().find("runs/skips/states/damaged was skipped"), std::string::npos)
      << run.cause().message();
  EXPECT_EQ(run.saved(1).damage().info().reason(), "CHECKPOINT_DAMAGED");
  EXPECT_EQ(step(again, data[1]), expected);
  EXPECT_TRUE(again.close().ok());
  shut_down();
}

TEST_F(RunE2e, AJobWaitsForTheRanksOfARunAndARunForThoseOfAJob) {
  start();
  const v1::Mesh mesh = mesh_of(2, 1, 1, 1);
  RunClient first(address_);
  ASSERT_TRUE(first.create(run_spec(mesh, "first")));
  submit_job(mesh, "job");
  RunClient second(address_);
  ASSERT_TRUE(second.submit(run_spec(mesh, "second")).ok());
  const auto data = batches(job_config(mesh));
  for (const auto& batch : data) step(first, batch);
  EXPECT_EQ(job("job")["state"], "queued");
  const v1::Run waiting = second.get();
  EXPECT_EQ(waiting.state(), v1::RUN_STATE_QUEUED);
  ASSERT_GE(waiting.ahead_size(), 2) << waiting.ShortDebugString();
  EXPECT_EQ(waiting.ahead(0), "runs/first");
  EXPECT_EQ(waiting.ahead(1), "jobs/job");
  EXPECT_TRUE(first.close().ok());
  EXPECT_TRUE(reaches("job", "succeeded")) << job("job").dump(2);
  ASSERT_TRUE(second.wait_ready());
  step(second, data[0]);
  EXPECT_TRUE(second.close().ok());
  shut_down();
}

TEST_F(RunE2e, TheClientMakesShowsSamplesSavesAndClosesARun) {
  start();
  const std::string token = create_run("by-hand");
  EXPECT_EQ(token.size(), 32u);
  const Json gradients = client_json({"run", "forward-backward", "by-hand", "--token", token,
                                      "--data", "text.txt", "--samples", "3", "--first", "4"});
  EXPECT_EQ(gradients["result"]["loss"]["outputs"].size(), 3u) << gradients.dump();
  const Json stepped =
      client_json({"run", "optim-step", "by-hand", "--token", token, "--lr", "0.001"});
  EXPECT_EQ(stepped["result"]["optim_step"]["step"], 1) << stepped.dump();
  const auto beyond = client({"run", "forward", "by-hand", "--token", token, "--data", "text.txt",
                              "--first", "1000000", "--json"});
  EXPECT_NE(beyond.output.find("DATA_OUT_OF_RANGE"), std::string::npos)
      << beyond.output << beyond.errors;
  const Json drawn = client_json({"run", "sample", "by-hand", "--token", token, "--prompt", "ab",
                                  "--samples", "3", "--max-tokens", "5"});
  EXPECT_EQ(drawn["result"]["sample"]["sequences"].size(), 3u) << drawn.dump();
  const Json saved = client_json({"run", "save-state", "by-hand", "s1", "--token", token});
  EXPECT_EQ(saved["result"]["saved_state"]["name"], "runs/by-hand/states/s1") << saved.dump();
  const auto twice = client({"run", "save-state", "by-hand", "s1", "--token", token});
  EXPECT_EQ(twice.exit_code, 1) << twice.output;
  EXPECT_NE(twice.errors.find("exists already"), std::string::npos) << twice.errors;
  const Json weights = client_json({"run", "save-weights", "by-hand", "hf", "--token", token});
  EXPECT_EQ(weights["result"]["saved_weights"]["folder"], "runs/by-hand/weights/hf");
  const std::string copy = (data_ / "copy").string();
  const Json got = client_json({"run", "download-weights", "runs/by-hand/weights/hf", copy});
  EXPECT_GE(got["files"].get<int>(), 2) << got.dump();
  EXPECT_TRUE(read_file(copy + "/model.safetensors") ==
              read_file(state_ / "runs/by-hand/weights/hf/model.safetensors"));
  EXPECT_EQ(client({"run", "download-weights", "runs/by-hand/weights/hf", copy}).exit_code, 2);
  const Json all = client_json({"operation", "list", "by-hand"});
  EXPECT_EQ(all["operations"].size(), 7u) << all.dump(2);
  const auto shown = client({"operation", "show", "operations/by-hand/1/5"});
  EXPECT_NE(shown.output.find("STATE_EXISTS"), std::string::npos) << shown.output;
  EXPECT_EQ(client({"operation", "cancel", "operations/by-hand/1/1", "--token", token}).exit_code,
            1);
  EXPECT_EQ(client({"run", "close", "by-hand", "--token", "0"}).exit_code, 1);
  EXPECT_EQ(client({"run", "close", "by-hand", "--token", token}).exit_code, 0);
  EXPECT_TRUE(eventually(30s, [&] {
    return client_json({"run", "list"})["runs"][0]["state"] == "closed";
  }));
  const auto wrong =
      client({"run", "create", write_text("bad.yaml", "config:\n  model: {preset: x}\n")});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.errors.find("bad.yaml:2: "), std::string::npos) << wrong.errors;
  shut_down();
}

TEST_F(RunE2e, AStateThatAllRanksReadInPartAloneEndsTheEpochAndTheNewestIsGoneOnWith) {
  start();
  v1::Mesh mesh;
  mesh.set_dp(2);
  const v1::LossBatch batch = batches(job_config(mesh)).front();
  RunClient run(address_);
  ASSERT_TRUE(run.create(run_spec(mesh, "half")));
  const auto step = [&] {
    EXPECT_TRUE(run.forward_backward(batch).ok());
    return run.optim_step();
  };
  step();
  const Outcome first = run.save_state("first");
  ASSERT_TRUE(first.ok()) << first.message;
  step();
  ASSERT_TRUE(run.save_state("second").ok());
  const double expected = step().operation.result().optim_step().loss();
  // Whole files of which the manifest says less: every rank reads what is before it.
  const fs::path folder = state_ / first.operation.result().saved_state().folder();
  train::Manifest manifest = train::read_manifest(folder);
  manifest.files.back().pieces.pop_back();
  std::ofstream(folder / train::kManifestName, std::ios::trunc)
      << train::manifest_to_json(manifest);
  v1::LoadStateRequest load;
  load.set_state("runs/half/states/first");
  const Outcome half = run.run(&RunClient::Runs::LoadState, load);
  EXPECT_EQ(half.code, grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(half.reason, "CHECKPOINT_DAMAGED") << half.message;
  ASSERT_TRUE(eventually(30s, [&] { return run.get().epoch() == 2; }));
  ASSERT_TRUE(run.wait_ready());
  EXPECT_EQ(run.get().step(), 2);
  run.epoch = 2;
  run.next_seq = run.get().next_seq();
  EXPECT_EQ(step().operation.result().optim_step().loss(), expected);
  EXPECT_TRUE(run.close().ok());
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
