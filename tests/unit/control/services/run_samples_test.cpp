// SPDX-License-Identifier: Apache-2.0
// Samples of runs and the weights that they are drawn from, with fake runs on two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "daemon/base/sha256.h"
#include "daemon/train/config/sample_start.h"
#include "tests/support/eventually.h"
#include "tests/support/file_text.h"
#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

/// A byte and 100 is its token, which is decoded as a blank and the letter of its number; the first
/// of a text has no blank.
class LetterTokenizer final : public text::Tokenizer {
 public:
  using Tokenizer::decode;
  using Tokenizer::encode;
  void encode(std::string_view bytes, bool, text::WordCache&, text::Budget&,
              std::vector<text::TokenId>& out) const override {
    for (const char c : bytes) out.push_back(c + 100);
  }
  std::string decode(std::span<const text::TokenId> tokens, bool, text::Budget&) const override {
    std::string text;
    for (const text::TokenId token : tokens)
      text += std::string(text.empty() ? "" : " ") + static_cast<char>(token);
    return text;
  }
  text::TokenId end() const override { return 256; }
  std::optional<text::TokenId> find(std::string_view) const override { return std::nullopt; }
};

class RunSamplesTest : public RunServiceTest {
 protected:
  Client ready_client(const v1::RunSpec& spec = {}) {
    Client made = with_run(spec);
    made.wait_for(v1::RUN_STATE_READY);
    return made;
  }
  struct Download {
    std::map<std::string, std::string> files, xxh3, sha256;
    grpc::Status status;
  };
  Download download(const std::string& name, const std::string& after = "",
                    std::int64_t offset = 0) {
    v1::ReadCheckpointRequest request;
    request.set_name(name);
    request.set_after_file(after);
    request.set_offset(offset);
    request.set_sha256(true);
    grpc::ClientContext context;
    const auto reader =
        v1::CheckpointService::NewStub(daemon_->channel())->ReadCheckpoint(&context, request);
    Download got;
    for (v1::ReadCheckpointResponse piece; reader->Read(&piece);) {
      got.files[piece.file()] += piece.data();
      got.xxh3[piece.file()] = piece.xxh3_128();
      got.sha256[piece.file()] = piece.sha256();
    }
    got.status = reader->Finish();
    return got;
  }
};

TEST_F(RunSamplesTest, OneUnderWayIsCancelledAndOthersGoOn) {
  plan_.token_time = 2ms;
  start();
  Client client = ready_client();
  ASSERT_TRUE(client.sample(2, 100).ok());
  const std::string other = client.last_.name();
  ASSERT_TRUE(client.sample(2, 30'000).ok());
  const std::string cancelled = client.last_.name();
  std::this_thread::sleep_for(20ms);
  ASSERT_TRUE(client.cancel(cancelled).ok());
  EXPECT_EQ(client.wait(cancelled).state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_EQ(client.wait(cancelled).error().info().reason(), "CANCELLED_BY_CLIENT");
  EXPECT_TRUE(client.cancel(cancelled).ok()) << "a repeat";
  const v1::Operation done = client.wait(other);
  ASSERT_EQ(done.state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(done.result().sample().sequences(1).token_ids_size(), 100);
  client.forward_backward(1, {1});
  EXPECT_EQ(client.wait(1).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(info_of(client.cancel(other)).reason(), "OPERATION_ENDED");
}

TEST_F(RunSamplesTest, AStopStringIsTheLastOfTheTokensAndTheScores) {
  plan_.token_time = 1ms;
  start();
  Client client = ready_client();
  v1::SampleRequest request = client.sample_request(1, 12);
  const auto drawn = [&] {
    EXPECT_TRUE(client.sample(request).ok());
    return client.wait(client.last_.name()).result().sample().sequences(0);
  };
  const v1::SampledSequence whole = drawn();
  ASSERT_EQ(whole.token_ids_size(), 12);
  const std::string text(whole.token_ids().begin(), whole.token_ids().end());
  request.mutable_stop()->add_strings(text.substr(3, 2));
  request.set_exact_logprobs(true);
  const v1::SampledSequence stopped = drawn();
  EXPECT_EQ(std::string(stopped.token_ids().begin(), stopped.token_ids().end()), text.substr(0, 5));
  EXPECT_EQ(stopped.finish_reason(), "stop_string");
  EXPECT_EQ(stopped.exact_logprobs_size(), 5);
}

TEST_F(RunSamplesTest, SequencesEndWithTheModelsEndTokensAndItsContext) {
  plan_.ends_with_context = true;
  plan_.context_length = 6;
  plan_.generation.end_tokens = {{'a' + 'b' % 26 + 3}};
  plan_.generation.temperature = 0.5;
  plan_.generation.top_k = 3;
  plan_.on_sample = [](const std::vector<train::SampleStart>& starts) {
    EXPECT_EQ(starts.at(0).params.temperature(), 1.0) << "training divides by its log-probs";
    EXPECT_EQ(starts.at(0).params.top_k(), 0);
  };
  start();
  v1::RunSpec spec;
  spec.mutable_config()->mutable_training()->set_seq_len(6);
  Client client = ready_client(spec);
  v1::SampleRequest request = client.sample_request(1, 12);
  request.add_prompts()->set_prompt("abcdz");
  const auto drawn = [&](int sequence) {
    EXPECT_TRUE(client.sample(request).ok());
    return client.wait(client.last_.name()).result().sample().sequences(sequence);
  };
  EXPECT_EQ(drawn(0).finish_reason(), "eos");
  EXPECT_EQ(drawn(0).token_ids_size(), 4);
  EXPECT_EQ(drawn(1).finish_reason(), "context");
  EXPECT_EQ(drawn(1).token_ids_size(), 2);
  request.mutable_stop()->set_ignore_eos(true);
  EXPECT_EQ(drawn(0).finish_reason(), "context");
  request.set_exact_logprobs(true);
  EXPECT_EQ(drawn(1).exact_logprobs_size(), 2) << "Forward of a whole context, whatever was asked";
  request.mutable_params()->set_past_context(true);
  EXPECT_EQ(info_of(client.sample(request)).metadata().at("field"), "exact_logprobs");
  request.set_exact_logprobs(false);
  EXPECT_EQ(drawn(0).finish_reason(), "length");
  EXPECT_EQ(drawn(1).token_ids_size(), 12);
}

TEST_F(RunSamplesTest, TextIsTheTokenizersAlsoWhereThereAreAsManyTokensAsBytes) {
  plan_.token_time = 1ms;
  plan_.tokenizer = std::make_shared<LetterTokenizer>();
  start();
  Client client = ready_client();
  v1::SampleRequest request = client.sample_request(1, 12);
  const auto drawn = [&] {
    EXPECT_TRUE(client.sample(request).ok());
    const v1::SampledSequence sequence =
        client.wait(client.last_.name()).result().sample().sequences(0);
    return std::string(sequence.token_ids().begin(), sequence.token_ids().end()) + " " +
           sequence.finish_reason();
  };
  // The fake begins with the letter after "a" that the last token of the prompt, 'b' + 100, says.
  const std::string letters = "qrstuvwxyz{|";
  ASSERT_EQ(drawn(), letters + " length");
  request.mutable_stop()->add_strings(" s t");
  EXPECT_EQ(drawn(), "qrst stop_string");
  request.mutable_stop()->set_strings(0, " q");
  EXPECT_EQ(drawn(), "q stop_string") << "the first token has its blank behind the prompt";
}

TEST_F(RunSamplesTest, ScoresAreThoseOfTheFinishedSequences) {
  start();
  Client client = ready_client();
  v1::SampleRequest request = client.sample_request(2, 3);
  request.mutable_prompts(0)->set_prompt("xyz");
  request.add_prompts()->set_prompt("a");
  request.set_exact_logprobs(true);
  request.set_prompt_logprobs(true);
  ASSERT_TRUE(client.sample(request).ok());
  const v1::Operation done = client.wait(client.last_.name());
  ASSERT_EQ(done.state(), v1::OPERATION_STATE_SUCCEEDED) << done.error().message();
  const v1::SampleOutput& output = done.result().sample();
  ASSERT_EQ(output.prompts_size(), 2);
  // A token's score is its id, in the fake.
  EXPECT_EQ(
      std::vector<float>(output.prompts(0).logprobs().begin(), output.prompts(0).logprobs().end()),
      (std::vector<float>{'y', 'z'}));
  EXPECT_EQ(output.prompts(1).logprobs_size(), 0);
  ASSERT_EQ(output.sequences_size(), 4);
  for (const v1::SampledSequence& sequence : output.sequences())
    EXPECT_EQ(
        std::vector<float>(sequence.exact_logprobs().begin(), sequence.exact_logprobs().end()),
        std::vector<float>(sequence.token_ids().begin(), sequence.token_ids().end()));
}

TEST_F(RunSamplesTest, WhatCannotBeDrawnIsRefusedByField) {
  start();
  v1::RunSpec spec;
  spec.mutable_config()->mutable_training()->set_seq_len(8);
  Client client = ready_client(spec);
  const auto refused = [&](const auto& change) {
    v1::SampleRequest request = client.sample_request(1, 4);
    change(request);
    const grpc::Status status = client.sample(request);
    EXPECT_FALSE(status.ok());
    const v1::ErrorInfo info = info_of(status);
    return info.reason() +
           (info.metadata().contains("field") ? " " + info.metadata().at("field") : std::string());
  };
  EXPECT_EQ(refused([](auto& r) { r.mutable_stop()->add_strings(""); }),
            "INVALID_ARGUMENT stop.strings[0]");
  EXPECT_EQ(refused([](auto& r) { r.mutable_stop()->add_token_ids(256); }),
            "INVALID_ARGUMENT stop.token_ids[0]");
  EXPECT_EQ(refused([](auto& r) {
              r.set_exact_logprobs(true);
              r.mutable_params()->set_max_tokens(8);
            }),
            "INVALID_ARGUMENT exact_logprobs");
  EXPECT_EQ(refused([](auto& r) { r.set_weights("states/x"); }), "NAME_INVALID");
  EXPECT_EQ(refused([](auto& r) { r.set_weights("runs/other/weights/x"); }),
            "INVALID_ARGUMENT weights");
  EXPECT_EQ(refused([&](auto& r) { r.set_weights(client.weights_name("x")); }),
            "SNAPSHOT_STALE weights");
  plan_.vocab_size = 300;
  Client other = with_run();
  client.close();
  other.wait_for(v1::RUN_STATE_READY);
  v1::SampleRequest request = other.sample_request(1, 4);
  request.mutable_prompts(0)->clear_prompt();
  request.mutable_prompts(0)->add_token_ids(1);
  request.mutable_stop()->add_strings("x");
  EXPECT_EQ(info_of(other.sample(request)).reason(), "TOKENIZER_NEEDED");
  plan_.no_tokenizer = "tokenizer.json: no model of merges";
  request = other.sample_request(1, 4);
  const grpc::Status refused_text = other.sample(request);
  EXPECT_EQ(info_of(refused_text).reason(), "TOKENIZER_NEEDED");
  EXPECT_NE(refused_text.error_message().find(plan_.no_tokenizer), std::string::npos)
      << refused_text.error_message();
}

TEST_F(RunSamplesTest, WeightsInMemoryAreDrawnFromUntilTheyAreDeleted) {
  start();
  Client client = ready_client();
  client.forward_backward(1, {1});
  client.optim_step(2);
  client.save_weights(3, "one", v1::WEIGHTS_STORAGE_MEMORY);
  client.forward_backward(4, {1});
  client.optim_step(5);
  const v1::Operation saved = client.wait(3);
  ASSERT_EQ(saved.state(), v1::OPERATION_STATE_SUCCEEDED) << saved.error().message();
  EXPECT_EQ(saved.result().saved_weights().name(), client.weights_name("one"));
  EXPECT_EQ(saved.result().saved_weights().step(), 1);
  client.wait(5);
  v1::SampleRequest request = client.sample_request(1, 4);
  request.set_weights(client.weights_name("one"));
  request.set_weights_step(1);
  ASSERT_TRUE(client.sample(request).ok());
  const v1::SampleOutput drawn = client.wait(client.last_.name()).result().sample();
  ASSERT_EQ(drawn.sequences_size(), 1);
  EXPECT_EQ(drawn.sequences(0).weights_step(), 1);
  EXPECT_EQ(drawn.sequences(0).first_weights_step(), 1);
  request.set_weights_step(2);
  EXPECT_EQ(info_of(client.sample(request)).reason(), "WEIGHTS_STALE");
  client.save_weights(6, "one", v1::WEIGHTS_STORAGE_MEMORY);
  EXPECT_EQ(client.wait(6).error().info().reason(), "WEIGHTS_EXIST");
  ASSERT_EQ(client.get().weights_size(), 1);
  EXPECT_EQ(plan_.snapshots, 1);
  ASSERT_TRUE(client.delete_weights("one").ok());
  EXPECT_EQ(plan_.snapshots, 0);
  EXPECT_EQ(client.get().weights_size(), 0);
  EXPECT_EQ(info_of(client.sample(request)).reason(), "SNAPSHOT_STALE");
  EXPECT_EQ(info_of(client.delete_weights("one")).reason(), "WEIGHTS_NOT_FOUND");
  int seq = 7;
  for (int i = 0; i < 8; ++i)
    client.save_weights(seq++, "w" + std::to_string(i), v1::WEIGHTS_STORAGE_MEMORY);
  client.save_weights(seq, "w8", v1::WEIGHTS_STORAGE_MEMORY);
  EXPECT_EQ(client.wait(seq).error().info().reason(), "TOO_MANY_SNAPSHOTS");
  EXPECT_EQ(plan_.snapshots, 8);
  client.close();
  client.wait_for(v1::RUN_STATE_CLOSED);
  EXPECT_EQ(plan_.snapshots, 0);
  EXPECT_EQ(client.get().weights_size(), 0);
}

TEST_F(RunSamplesTest, TheNextEpochHasNoWeightsInMemoryButThoseOnDisk) {
  plan_.fail_alone_at_step = 1;
  start();
  Client client = ready_client();
  client.save_weights(1, "memory", v1::WEIGHTS_STORAGE_MEMORY);
  client.save_weights(2, "disk", v1::WEIGHTS_STORAGE_DISK);
  client.wait(2);
  EXPECT_EQ(client.get().weights_size(), 2);
  client.forward_backward(3, {1});
  client.optim_step(4);
  client.wait(4);
  plan_.fail_alone_at_step = -1;
  test::eventually([&] { return client.get().epoch() == 2; });
  ASSERT_EQ(client.get().weights_size(), 1);
  EXPECT_EQ(client.get().weights(0).name(), client.weights_name("disk"));
  EXPECT_EQ(plan_.snapshots, 0);
  restart();
  Client after = this->client();
  after.run_ = client.run_;
  ASSERT_EQ(after.get().weights_size(), 1);
  EXPECT_TRUE(download(client.weights_name("disk")).status.ok());
}

TEST_F(RunSamplesTest, WeightsOnDiskAreDownloadedAndGoneOnWith) {
  start();
  Client client = ready_client();
  client.save_weights(1, "disk", v1::WEIGHTS_STORAGE_DISK);
  const v1::SavedWeights saved = client.wait(1).result().saved_weights();
  EXPECT_EQ(saved.folder(), client.weights_name("disk")) << "of the state dir, which may be moved";
  EXPECT_THAT(test::file_text(daemon_->state().journal()),
              Not(HasSubstr(daemon_->state().root().string())));
  const Download whole = download(saved.name());
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  ASSERT_EQ(whole.files.size(), 2u);
  const std::string& model = whole.files.at("model.safetensors");
  EXPECT_GT(model.size(), 2'500'000u);
  base::Sha256 digest;
  digest.update(std::as_bytes(std::span(model)));
  EXPECT_EQ(whole.sha256.at("model.safetensors"), digest.hex());
  const Download rest = download(saved.name(), "config.json", 1'700'000);
  ASSERT_EQ(rest.files.size(), 1u);
  EXPECT_EQ(rest.files.at("model.safetensors"), model.substr(1'700'000));
  EXPECT_EQ(rest.sha256, (std::map<std::string, std::string>{{"model.safetensors", digest.hex()}}));
  EXPECT_EQ(rest.xxh3.at("model.safetensors"), whole.xxh3.at("model.safetensors"));
  EXPECT_TRUE(download(saved.name(), "model.safetensors").files.empty());
  EXPECT_EQ(info_of(download(saved.name(), "config.json", 3'000'000).status).reason(),
            "OFFSET_INVALID");
  client.save_weights(2, "memory", v1::WEIGHTS_STORAGE_MEMORY);
  client.wait(2);
  EXPECT_EQ(info_of(download(client.weights_name("memory")).status).reason(), "WEIGHTS_IN_MEMORY");
  ASSERT_TRUE(client.delete_weights("disk").ok());
  EXPECT_EQ(info_of(download(saved.name()).status).reason(), "WEIGHTS_NOT_FOUND");
  EXPECT_FALSE(std::filesystem::exists(saved.folder()));
}

TEST_F(RunSamplesTest, DeletedWeightsCountAsLongAsASampleDrawsFromThem) {
  plan_.token_time = 2ms;
  start();
  Client client = ready_client();
  client.save_weights(1, "one", v1::WEIGHTS_STORAGE_MEMORY);
  client.wait(1);
  v1::SampleRequest request = client.sample_request(1, 30'000);
  request.set_weights(client.weights_name("one"));
  ASSERT_TRUE(client.sample(request).ok());
  const std::string drawing = client.last_.name();
  ASSERT_TRUE(client.delete_weights("one").ok());
  EXPECT_EQ(plan_.snapshots, 1);
  client.save_weights(2, "one", v1::WEIGHTS_STORAGE_MEMORY);
  EXPECT_EQ(client.wait(2).state(), v1::OPERATION_STATE_SUCCEEDED) << "the name is free";
  EXPECT_EQ(plan_.snapshots, 2);
  client.cancel(drawing);
  client.wait(drawing);
  test::eventually([&] { return plan_.snapshots == 1; });
  EXPECT_EQ(plan_.snapshots, 1);
}

TEST_F(RunSamplesTest, WeightsOfVerbsInFlightAreCountedToo) {
  plan_.step_time = 300ms;
  start();
  Client client = ready_client();
  client.forward_backward(1, {1});  // the ranks are busy
  for (int i = 0; i < 9; ++i)
    client.save_weights(2 + i, "w" + std::to_string(i), v1::WEIGHTS_STORAGE_MEMORY);
  EXPECT_EQ(client.wait(9).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(client.wait(10).error().info().reason(), "TOO_MANY_SNAPSHOTS");
}

TEST_F(RunSamplesTest, OfSeveralDeletionsOneFindsTheWeights) {
  start();
  Client client = ready_client();
  int seq = 1;
  for (const auto storage : {v1::WEIGHTS_STORAGE_MEMORY, v1::WEIGHTS_STORAGE_DISK}) {
    for (int round = 0; round < 20; ++round) {
      client.save_weights(seq, "w", storage);
      ASSERT_EQ(client.wait(seq).state(), v1::OPERATION_STATE_SUCCEEDED)
          << client.wait(seq).error().message();
      ++seq;
      std::atomic<int> deleted{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
          const grpc::Status status = client.delete_weights("w");
          deleted += status.ok() ? 1 : 0;
          EXPECT_TRUE(status.ok() || info_of(status).reason() == "WEIGHTS_NOT_FOUND");
        });
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(deleted, 1);
    }
  }
}

TEST_F(RunSamplesTest, AFolderThatNoRecordKnowsOfTakesNoName) {
  start();
  Client client = ready_client();
  // As a daemon leaves it that dies between the ranks' answer and its record.
  const auto folder = daemon_->state().run(client.run_.name().substr(5)) / "weights/disk";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "left over") << "x";
  client.save_weights(1, "disk", v1::WEIGHTS_STORAGE_DISK);
  EXPECT_EQ(client.wait(1).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_FALSE(std::filesystem::exists(folder / "left over"));
  client.save_weights(2, "disk", v1::WEIGHTS_STORAGE_DISK);
  EXPECT_EQ(client.wait(2).error().info().reason(), "WEIGHTS_EXIST");
}

TEST_F(RunSamplesTest, WeightsOnDiskAreDrawnFromAndCountedMeanwhile) {
  plan_.token_time = 1ms;
  start();
  Client client = ready_client();
  client.forward_backward(1, {1});
  client.optim_step(2);
  client.save_weights(3, "disk", v1::WEIGHTS_STORAGE_DISK);
  client.forward_backward(4, {1});
  client.optim_step(5);
  client.wait(5);
  v1::SampleRequest request = client.sample_request(1, 200);
  request.set_weights(client.weights_name("disk"));
  request.set_weights_step(1);
  ASSERT_TRUE(client.sample(request).ok());
  const std::string first = client.last_.name();
  ASSERT_TRUE(client.sample(request).ok());
  EXPECT_EQ(plan_.snapshots, 1) << "both draw from one copy";
  EXPECT_EQ(client.wait(first).result().sample().sequences(0).weights_step(), 1);
  EXPECT_EQ(client.wait(client.last_.name()).state(), v1::OPERATION_STATE_SUCCEEDED);
  test::eventually([&] { return plan_.snapshots == 0; });
  EXPECT_EQ(plan_.snapshots, 0);
  request.set_weights_step(2);
  EXPECT_EQ(info_of(client.sample(request)).reason(), "WEIGHTS_STALE");
  std::filesystem::remove_all(daemon_->state().root() / client.get().weights(0).folder());
  request.set_weights_step(1);
  ASSERT_TRUE(client.sample(request).ok());
  EXPECT_EQ(client.wait(client.last_.name()).error().info().reason(), "NOT_FOUND");
  client.delete_weights("disk");
  EXPECT_EQ(info_of(client.sample(request)).reason(), "SNAPSHOT_STALE");
}

}  // namespace
}  // namespace meshloom::control
