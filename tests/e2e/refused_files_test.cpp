// SPDX-License-Identifier: Apache-2.0
// Files that are refused wherever a request names them: data, configs, weights, tokenizers, and
// weights that a dtype does not hold. A job that trains meanwhile keeps its losses.
#include <fmt/format.h>

#include <fstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/refusal.h"
#include "tests/support/source_folder.h"
#include "v1/checkpoint_service.grpc.pb.h"
#include "v1/data_service.grpc.pb.h"
#include "v1/evaluate_service.grpc.pb.h"
#include "v1/generate_service.grpc.pb.h"
#include "v1/model_service.grpc.pb.h"
#include "v1/plan_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;
using grpc::StatusCode;

constexpr StatusCode kInvalid = StatusCode::INVALID_ARGUMENT;
constexpr const char* kPlain = "INVALID_ARGUMENT";
constexpr const char* kLfs = "GIT_LFS_POINTER";
constexpr const char* kWide = "TOKENS_TOO_WIDE";
constexpr const char* kUnknown = "UNSUPPORTED_MODEL_CONFIG";
constexpr const char* kWeights = "INVALID_HF_FOLDER";

/// Sends requests of one service.
template <typename Service>
class Sender {
 public:
  explicit Sender(const std::string& address)
      : stub_(Service::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {}

  /// A request as `fill` leaves it.
  template <typename Request, typename Method, typename Fill>
  auto of(Method method, const Fill& fill) const {
    Request request;
    fill(request);
    return [stub = stub_, method, request](RunClient& client) {
      return client.call(*stub, method, request);
    };
  }

 private:
  std::shared_ptr<typename Service::Stub> stub_;
};

/// A small job of bytes, as `fill` changes it.
template <typename Fill>
v1::RunConfig small_job(const Fill& fill) {
  v1::RunConfig config;
  config.mutable_model()->set_preset("byte_gpt_tiny");
  config.mutable_training()->set_steps(2);
  config.mutable_training()->set_seq_len(16);
  config.mutable_training()->set_global_batch_size(4);
  config.mutable_data()->set_path("text.txt");
  fill(config);
  return config;
}

class RefusedFilesE2e : public DaemonTest {
 protected:
  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((data_ / name).parent_path());
    std::ofstream(data_ / name, std::ios::binary) << bytes;
  }
  void make_data() const {
    std::string of_32_bits, of_64_bits, lines;
    for (int i = 0; i < 500; ++i) {
      of_32_bits += {static_cast<char>('a' + i % 20), '\0', '\0', '\0'};
      of_64_bits += of_32_bits.substr(of_32_bits.size() - 4) + std::string(4, '\0');
    }
    write("wide.bin", of_32_bits);
    write("wider.bin", of_64_bits);
    write("narrow.bin", std::string(2000, '\1'));
    write("pointer.bin", kPointer);
    write("pointer.txt", kPointer);
    write("pointer.jsonl", kPointer);
    write("page.bin", "<!DOCTYPE html><html>" + std::string(1000, ' '));
    write("first.jsonl", "{\"text\": \"a\"}\n{\"text\": null}\n");
    for (int i = 0; i < 3000; ++i) lines += "{\"text\": \"one of many lines with text\"}\n";
    write("late.jsonl", lines + "{\"body\": \"x\"}\n" + lines);
    write("broken.jsonl", lines + "{\"text\": \"x\"\n" + lines);
  }
  void make_configs() const {
    const Json tiny =
        Json::parse(read_file(test::source_file("configs/models/byte_gpt_tiny.json")));
    const Json rope{{"model_type", "llama"},
                    {"vocab_size", 256},
                    {"hidden_size", 16},
                    {"num_hidden_layers", 1},
                    {"num_attention_heads", 2},
                    {"intermediate_size", 24},
                    {"max_position_embeddings", 64},
                    {"rope_scaling", {{"factor", 4.0}}}};
    const auto write_rope = [&](const char* name, const Json& scaling) {
      Json config = rope;
      config["rope_scaling"].update(scaling);
      write(name, config.dump());
    };
    write_rope("longrope.json",
               {{"rope_type", "longrope"}, {"short_factor", {1, 1}}, {"long_factor", {1, 1}}});
    write_rope("strange_rope.json", {{"rope_type", "spiral"}});
    write_rope("misspelt_rope.json", {{"rope_type", "yarn"}, {"beta_fats", 16}});
    Json config = tiny;
    config["n_embed"] = 32;
    write("misspelt.json", config.dump());
    config = tiny;
    config["architectures"] = {"GPTNeoXForCausalLM"};
    write("architecture.json", config.dump());
    write("pointer.json", kPointer);
    config = tiny;
    config["initializer_range"] = 1e5;
    write("large.json", config.dump());
  }
  /// A folder with a tiny config.json and one tensor as its weights.
  void make_weights(const std::string& folder, const std::string& tensor, const char* dtype,
                    int bytes) const {
    const Json entry{
        {"dtype", dtype}, {"shape", {256, 64}}, {"data_offsets", {0, 256 * 64 * bytes}}};
    const std::string header = Json{{tensor, entry}}.dump();
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    write(folder + "/config.json",
          read_file(test::source_file("configs/models/byte_gpt_tiny.json")));
    write(folder + "/model.safetensors", file + header + std::string(256 * 64 * bytes, '\0'));
  }
  void make_folders() const {
    make_weights("wrapped", "_orig_mod.transformer.wte.weight", "F32", 4);
    make_weights("float8", "transformer.wte.weight", "F8_E4M3", 1);
    make_weights("lfs", "x", "F32", 4);
    write("lfs/model.safetensors", kPointer);
    make_weights("lfs_index", "x", "F32", 4);
    fs::remove(data_ / "lfs_index/model.safetensors");
    write("lfs_index/model.safetensors.index.json", kPointer);
    write("lfs_tokenizer/tokenizer.model", kPointer);
    write("lfs_tokenizer/tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
    write("lfs_json/tokenizer.json", kPointer);
    write("without_eos/tokenizer.json", R"({"version": "1.0", "added_tokens": [],
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
    write("length/tokenizer.json", R"({"version": "1.0", "added_tokens": [],
        "pre_tokenizer": {"type": "FixedLength", "length": 0},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  }
  /// The checkpoint of a job whose weights float16 does not hold.
  void make_large_weights() {
    TinyJob large;
    large.steps = 1;
    large.model = "{config: large.json}";
    large.extra = "  export: {hf_folder: out, dtype: float16}\n";
    submit(large, "large");
    ASSERT_TRUE(reaches("large", "succeeded")) << job("large").dump(2);
    EXPECT_NE(job("large")["notes"].dump().find("float32"), std::string::npos)
        << job("large")["notes"].dump(2);
  }

  /// What jobs and runs are refused for alike, said of a job. Both a job that is only to be checked
  /// and one that is to be kept are sent.
  template <typename Fill>
  void add_job(const std::string& name, const Fill& fill, StatusCode code, const char* reason,
               const char* field) {
    for (const bool validate_only : {true, false}) {
      const auto send = Sender<v1::JobService>(address_).of<v1::SubmitJobRequest>(
          &v1::JobService::Stub::SubmitJob, [&](v1::SubmitJobRequest& request) {
            request.set_validate_only(validate_only);
            *request.mutable_spec()->mutable_run() = small_job(fill);
          });
      refusals_.push_back(
          {name + (validate_only ? " of a dry run" : " of a job"), code, reason, field, send});
    }
  }
  void add_data() {
    const auto add = [&](const char* path, const char* reason, const char* field) {
      add_job(
          path, [&](v1::RunConfig& c) { c.mutable_data()->set_path(path); }, kInvalid, reason,
          field);
    };
    add("wide.bin", kWide, "run.data.path");
    add("wider.bin", kWide, "run.data.path");
    add("pointer.bin", kLfs, "run.data.path");
    add("pointer.txt", kLfs, "run.data.path");
    add("pointer.jsonl", kLfs, "run.data.path");
    add("page.bin", "WEB_PAGE", "run.data.path");
    add("first.jsonl", "NO_FIELD", "run.data.field");
    add("late.jsonl", "NO_FIELD", "run.data.field");
    add("broken.jsonl", kPlain, "run.data.path");
    const auto add_option = [&](const char* name, const auto& set, const char* field) {
      add_job(
          name, [&](v1::RunConfig& c) { set(*c.mutable_data()); }, kInvalid, kPlain, field);
    };
    add_option(
        "positions without a mask", [](auto& d) { d.set_reset_positions(true); },
        "run.data.reset_positions");
    add_option(
        "positions of tokens without an end",
        [](auto& d) {
          d.set_path("narrow.bin");
          d.set_document_mask(true);
          d.set_reset_positions(true);
        },
        "run.data.document_end");
    add_option(
        "lines to skip of no lines", [](auto& d) { d.set_skip_lines_without_text(true); },
        "run.data.skip_lines_without_text");
    add_option(
        "special tokens of bytes", [](auto& d) { d.set_add_special_tokens(true); },
        "run.data.add_special_tokens");
    const auto add_tokenizer = [&](const char* folder, const char* reason, const char* field) {
      add_job(
          folder, [&](v1::RunConfig& c) { c.mutable_data()->set_tokenizer(folder); }, kInvalid,
          reason, field);
    };
    add_tokenizer("lfs_tokenizer", kLfs, "run.data.tokenizer");
    add_tokenizer("lfs_json", kLfs, "run.data.tokenizer");
    add_job(
        "without_eos",
        [](v1::RunConfig& c) {
          c.mutable_data()->set_tokenizer("without_eos");
          c.mutable_data()->set_append_eos(true);
        },
        kInvalid, kPlain, "run.data.append_eos");
    const std::string part = (data_ / "length/tokenizer.json.pre_tokenizer.length").string();
    add_tokenizer("length", kPlain, part.c_str());
  }
  struct WrongModel {
    const char* file;
    StatusCode code;
    const char* reason;
  };
  inline static const std::vector<WrongModel> kConfigs = {
      {"longrope.json", StatusCode::UNIMPLEMENTED, kUnknown},
      {"strange_rope.json", StatusCode::UNIMPLEMENTED, kUnknown},
      {"misspelt_rope.json", kInvalid, "INVALID_MODEL_CONFIG"},
      {"misspelt.json", kInvalid, "INVALID_MODEL_CONFIG"},
      {"architecture.json", StatusCode::UNIMPLEMENTED, kUnknown},
      {"pointer.json", kInvalid, kLfs}};
  inline static const std::vector<WrongModel> kFolders = {{"wrapped", kInvalid, kWeights},
                                                          {"float8", kInvalid, kWeights},
                                                          {"lfs", kInvalid, kLfs},
                                                          {"lfs_index", kInvalid, kLfs}};

  /// Of jobs, runs and plans.
  void add_models() {
    const auto add = [&](const WrongModel& wrong, const auto& name_it, const char* field) {
      const auto fill = [&](v1::RunConfig& c) {
        c.mutable_model()->Clear();
        name_it(c.mutable_model(), wrong.file);
      };
      add_job(wrong.file, fill, wrong.code, wrong.reason, field);
      v1::RunSpec run;
      run.set_name("refused");
      *run.mutable_config() = small_job(fill);
      run.mutable_config()->clear_data();
      run.mutable_config()->mutable_training()->clear_steps();
      run.mutable_config()->mutable_training()->clear_global_batch_size();
      refusals_.push_back({wrong.file + std::string(" of a run"), wrong.code, wrong.reason, field,
                           [run](RunClient& client) { return client.submit(run); }});
    };
    for (const WrongModel& wrong : kConfigs)
      add(
          wrong, [](auto* model, const char* file) { model->set_config(file); },
          "run.model.config");
    for (const WrongModel& wrong : kFolders)
      add(
          wrong, [](auto* model, const char* folder) { model->set_hf_folder(folder); },
          "run.model.hf_folder");
    for (const WrongModel& wrong : kConfigs) {
      const auto send = Sender<v1::PlanService>(address_).of<v1::EstimatePlanRequest>(
          &v1::PlanService::Stub::EstimatePlan,
          [&](auto& request) { request.mutable_model()->set_config(wrong.file); });
      refusals_.push_back(
          {wrong.file + std::string(" of a plan"), wrong.code, wrong.reason, "", send});
    }
  }
  /// What is asked of the same files without a job.
  void add_services() {
    const auto add = [&](const std::string& name, const WrongModel& wrong, const char* field,
                         const auto& send) {
      refusals_.push_back({wrong.file + (" to " + name), wrong.code, wrong.reason, field, send});
    };
    const Sender<v1::GenerateService> generate(address_);
    const Sender<v1::EvaluateService> evaluate(address_);
    const Sender<v1::ModelService> models(address_);
    for (const WrongModel& wrong : kFolders) {
      add("draw from", wrong, "hf_folder",
          generate.of<v1::GenerateRequest>(&v1::GenerateService::Stub::Generate, [&](auto& r) {
            r.set_hf_folder(wrong.file);
            r.set_prompt("a");
          }));
      add("evaluate", wrong, "hf_folder",
          evaluate.of<v1::EvaluateRequest>(&v1::EvaluateService::Stub::Evaluate, [&](auto& r) {
            r.set_hf_folder(wrong.file);
            r.mutable_data()->set_path("text.txt");
          }));
      add("make a model of", wrong, "",
          models.of<v1::CreateModelRequest>(&v1::ModelService::Stub::CreateModel, [&](auto& r) {
            r.set_name("refused");
            r.set_data_folder(wrong.file);
          }));
    }
    for (const WrongModel& wrong : kConfigs)
      add("make a model of", wrong, "",
          models.of<v1::CreateModelRequest>(&v1::ModelService::Stub::CreateModel, [&](auto& r) {
            r.set_name("refused");
            r.set_config(read_file(data_ / wrong.file));
          }));
    add_data_services();
    add("export", {"large", StatusCode::FAILED_PRECONDITION, "VALUE_OVERFLOWS"}, "",
        Sender<v1::CheckpointService>(address_).of<v1::ExportCheckpointRequest>(
            &v1::CheckpointService::Stub::ExportCheckpoint, [](auto& r) {
              r.set_name("checkpoints/large");
              r.set_dtype("float16");
            }));
  }
  void add_data_services() {
    const Sender<v1::DataService> data(address_);
    const auto tokenize = [&](const char* path, const char* tokenizer) {
      return data.of<v1::TokenizeDataRequest>(&v1::DataService::Stub::TokenizeData, [&](auto& r) {
        r.add_paths(path);
        r.mutable_reading()->set_tokenizer(tokenizer);
        if (tokenizer == std::string("without_eos")) r.mutable_reading()->set_append_eos(true);
        r.set_out("refused.bin");
      });
    };
    const auto inspect = [&](const char* path) {
      return data.of<v1::InspectDataRequest>(&v1::DataService::Stub::InspectData,
                                             [&](auto& r) { r.set_path(path); });
    };
    const Refusals more = {
        {"wide.bin looked at", kInvalid, kWide, "run.data.path", inspect("wide.bin")},
        {"pointer.txt looked at", kInvalid, kLfs, "run.data.path", inspect("pointer.txt")},
        {"pointer.bin looked at", kInvalid, kLfs, "run.data.path", inspect("pointer.bin")},
        {"late.jsonl looked at", kInvalid, "NO_FIELD", "run.data.field", inspect("late.jsonl")},
        {"pointer.txt to tokenize", kInvalid, kLfs, "", tokenize("pointer.txt", "bytes")},
        {"late.jsonl to tokenize", kInvalid, "NO_FIELD", "", tokenize("late.jsonl", "bytes")},
        {"a pointer to tokenize with", kInvalid, kLfs, "run.data.tokenizer",
         tokenize("text.txt", "lfs_tokenizer")},
        {"no end to tokenize with", kInvalid, kPlain, "run.data.append_eos",
         tokenize("text.txt", "without_eos")}};
    refusals_.insert(refusals_.end(), more.begin(), more.end());
  }

  /// Texts, tokens and configs that are sent whole.
  void add_texts() {
    const Sender<v1::DataService> data(address_);
    const auto encode = [&](const char* preset, const std::string& text) {
      return data.of<v1::EncodeTextRequest>(&v1::DataService::Stub::EncodeText, [&](auto& r) {
        r.mutable_source()->mutable_model()->set_preset(preset);
        r.mutable_prompt()->set_prompt(text);
      });
    };
    const auto decode =
        data.of<v1::DecodeTokensRequest>(&v1::DataService::Stub::DecodeTokens, [](auto& r) {
          r.mutable_source()->mutable_model()->set_preset("byte_gpt_tiny");
          r.add_token_ids(65);
          r.add_token_ids(256);
        });
    const auto chat =
        data.of<v1::EncodeTextRequest>(&v1::DataService::Stub::EncodeText, [](auto& r) {
          r.mutable_source()->mutable_model()->set_preset("byte_gpt_tiny");
          v1::ChatMessage& message = *r.mutable_prompt()->mutable_chat()->add_messages();
          message.set_role("user");
          message.set_content("a");
        });
    const auto read = [&](const std::string& text) {
      return Sender<v1::JobService>(address_).of<v1::ReadConfigRequest>(
          &v1::JobService::Stub::ReadConfig, [&](auto& r) { r.set_text(text); });
    };
    const std::string deep(200'000, '['), aliases = "a: &a [x, x]\nb: &b [*a, *a]\nrun: *b";
    const Refusals more = {
        {"text of tokens alone", StatusCode::UNIMPLEMENTED, "TOKENIZER_NEEDED", "source.model",
         encode("gpt2_124m", "a")},
        {"text of no model", StatusCode::NOT_FOUND, "PRESET_NOT_FOUND", "run.model.preset",
         encode("gpt_none", "a")},
        {"too much text", StatusCode::RESOURCE_EXHAUSTED, "TEXT_TOO_LONG", "prompt.prompt",
         encode("byte_gpt_tiny", std::string((1 << 20) + 1, 'a'))},
        {"a token of another model", kInvalid, kPlain, "token_ids[1]", decode},
        {"chat without a template", StatusCode::FAILED_PRECONDITION, "NO_CHAT_TEMPLATE",
         "prompt.chat", chat},
        {"a config that is none", kInvalid, "CONFIG_INVALID", "", read("run: [")},
        {"a config too deep", kInvalid, "CONFIG_INVALID", "", read(deep)},
        {"a config of aliases", kInvalid, "CONFIG_INVALID", "", read(aliases)},
        {"a config too long", kInvalid, kPlain, "text", read(std::string(300'000, ' '))}};
    refusals_.insert(refusals_.end(), more.begin(), more.end());
  }

  inline static const std::string kPointer =
      "version https://git-lfs.github.com/spec/v1\n"
      "oid sha256:4665cb5dc1e46e2c3ab8ee3e11ca5c7e2d0ea5a2ea2e7a1ed3b2b3f2e1ad2b0a\n"
      "size 548118077\n";
  Refusals refusals_;
};

TEST_F(RefusedFilesE2e, AJobThatTrainsKeepsItsLosses) {
  make_data();
  make_configs();
  make_folders();
  start();
  make_large_weights();
  submit_endless("dp2", "undisturbed", 2000);
  ASSERT_NO_FATAL_FAILURE(cancel("undisturbed"));

  submit_endless("dp2", "beside", 3);
  add_data();
  add_models();
  add_services();
  add_texts();
  RunClient client_of_all(address_);
  expect_refused(client_of_all, refusals_);
  EXPECT_FALSE(fs::exists(data_ / "refused.bin"));
  EXPECT_TRUE(client_json({"model", "list"}).value("models", Json::array()).empty());
  EXPECT_EQ(client_json({"job", "list"})["jobs"].size(), 3u) << "none that was refused is there";
  EXPECT_EQ(job("beside")["state"], "running");
  ASSERT_NO_FATAL_FAILURE(cancel("beside"));
  expect_same_losses("beside", "undisturbed");
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
