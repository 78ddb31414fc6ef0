// SPDX-License-Identifier: Apache-2.0
// Conversations: looked at, trained on, answered, and refused beside a job that trains.
#include <fmt/format.h>

#include <fstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/refusal.h"
#include "tests/support/source_folder.h"
#include "v1/data_service.grpc.pb.h"
#include "v1/generate_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;
using grpc::StatusCode;

constexpr const char* kChatMl =
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role') }}{% endif %}"
    "{% if m.role == 'system' and not loop.first %}{{ raise_exception('two systems') }}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

Json message(const char* role, const Json& content) {
  return {{"role", role}, {"content", content}};
}

class ChatE2e : public DaemonTest {
 protected:
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((data_ / name).parent_path());
    std::ofstream(data_ / name, std::ios::binary) << text;
  }
  /// DATA_DIR/model: a small GPT-2 with a tokenizer that has the marks of turns.
  void make_model(bool with_template = true) const {
    Json tokenizer =
        Json::parse(read_file(test::source_file("tests/golden/tokenizer/gpt2.json")))["tokenizer"];
    std::size_t id = tokenizer["model"]["vocab"].size();
    for (const char* mark : {"<|im_start|>", "<|im_end|>"})
      tokenizer["added_tokens"].push_back({{"id", id++},
                                           {"content", mark},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", true}});
    Json config = Json::parse(read_file(test::source_file("configs/models/byte_gpt_tiny.json")));
    config["vocab_size"] = id;
    write("model/config.json", config.dump());
    write("model/tokenizer.json", tokenizer.dump());
    write("model/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    if (with_template) write("model/chat_template.jinja", kChatMl);
  }
  /// With samples that have room for a conversation.
  void submit_chat(const TinyJob& job, const std::string& name) const {
    const auto result = client({"job", "submit", write_job(job, name + ".yaml"), "--name", name,
                                "--set", "training.seq_len=128"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  void write_chat(const std::string& name, int lines) const {
    std::string text;
    for (int i = 0; i < lines; ++i)
      text += Json{{"messages",
                    {message("system", "brief"), message("user", fmt::format("ask {}", i % 7)),
                     message("assistant", "the fox"), message("user", "and"),
                     message("assistant", "they said")}}}
                  .dump() +
              "\n";
    write(name, text);
  }
};

TEST_F(ChatE2e, IsLookedAtTrainedOnAndAnswered) {
  make_model();
  write_chat("chat.jsonl", 300);
  start(2);
  const Json seen = client_json({"data", "inspect", "--tokenizer", "model", "chat.jsonl"});
  EXPECT_EQ(seen["chat"]["kind"], "messages");
  EXPECT_EQ(seen["chat"]["template"], "chat_template.jinja");
  EXPECT_EQ(seen["chat"]["conversations"], 300);
  std::string counted;
  for (const Json& part : seen["sample_parts"])
    if (part.value("counts", false)) counted += part["text"].get<std::string>() + "|";
  EXPECT_EQ(counted, "the fox<|im_end|>\n|they said<|im_end|>\n|");
  const auto shown = client({"data", "inspect", "--tokenizer", "model", "chat.jsonl"});
  EXPECT_NE(shown.output.find("<|im_start|>assistant\n[[the fox<|im_end|>"), std::string::npos)
      << shown.output;

  TinyJob chat;
  chat.model = "{config: model/config.json}";
  chat.data = "chat.jsonl";
  chat.steps = 150;
  chat.validation_interval = 50;
  chat.optimizer = "{lr: 5.0e-3}";
  chat.extra =
      "  export: {hf_folder: hf}\n  sample: {prompt: ask 1, params: {max_tokens: 20, temperature: "
      "0}}\n";
  ASSERT_NO_FATAL_FAILURE(submit_chat(chat, "chat"));
  ASSERT_TRUE(reaches("chat", "succeeded")) << job("chat").dump(2);
  const Json done = job("chat");
  EXPECT_EQ(done["resolved"]["data"]["chat"]["kind"], "messages");
  EXPECT_EQ(done["resolved"]["data"]["document_mask"], true);
  EXPECT_EQ(done["data"]["chat"]["conversations"], 300);
  EXPECT_GT(done["data"]["chat"]["counted_tokens"], 0);
  EXPECT_LT(done["last_validation"]["loss"], 0.1) << "the answers are always the same";
  EXPECT_NE(done["sample"].get<std::string>().find("the fox"), std::string::npos) << done["sample"];

  const Arguments ask = {"generate", "--job", "chat",          "--chat", "--system",     "brief",
                         "--prompt", "ask 3", "--temperature", "0",      "--max-tokens", "20"};
  EXPECT_EQ(client(ask).output, "the fox\n");
  Arguments json = ask;
  json.emplace_back("--json");
  const auto records = client(json);
  EXPECT_NE(records.output.find("\"finish_reason\":\"stop\""), std::string::npos) << records.output;
  EXPECT_NE(records.output.find(
                "<|im_start|>system\\nbrief<|im_end|>\\n<|im_start|>user\\nask 3<|im_end|>\\n"
                "<|im_start|>assistant\\n"),
            std::string::npos)
      << records.output;
  // A conversation, a line of standard input a turn.
  const auto talk = run_command(
      {"/bin/sh", "-c",
       fmt::format("printf 'ask 2\\n\\nand\\n' | '{}' --address {} generate --job chat --chat "
                   "--system brief --temperature 0 --max-tokens 20",
                   test::program("meshloom"), address_)},
      60s);
  EXPECT_EQ(talk.output, "the fox\nthey said\n") << talk.errors;
  EXPECT_EQ(talk.errors.find("draws the same"), std::string::npos) << talk.errors;
  const auto by_chance = run_command(
      {"/bin/sh", "-c",
       fmt::format("printf 'ask 2\\nand\\n' | '{}' --address {} generate --job chat --chat "
                   "--max-tokens 20",
                   test::program("meshloom"), address_)},
      60s);
  const auto told = by_chance.errors.find("draws the same again");
  EXPECT_NE(told, std::string::npos) << by_chance.errors;
  EXPECT_EQ(told, by_chance.errors.rfind("draws the same again")) << "once for both turns";
  shut_down();
}

TEST_F(ChatE2e, TokensInAFileKeepWhatIsLearnt) {
  make_model();
  write_chat("chat.jsonl", 60);
  start(1);
  const Json made =
      client_json({"data", "tokenize", "--tokenizer", "model", "--out", "chat.bin", "chat.jsonl"});
  EXPECT_EQ(made["chat"]["conversations"], 60);
  TinyJob from_lines;
  from_lines.model = "{config: model/config.json}";
  from_lines.data = "chat.jsonl";
  TinyJob from_tokens = from_lines;
  from_tokens.data = "chat.bin";
  ASSERT_NO_FATAL_FAILURE(submit_chat(from_lines, "lines"));
  ASSERT_NO_FATAL_FAILURE(submit_chat(from_tokens, "tokens"));
  ASSERT_TRUE(reaches("lines", "succeeded"));
  ASSERT_TRUE(reaches("tokens", "succeeded"));
  expect_same_losses("lines", "tokens");
  shut_down();
}

TEST_F(ChatE2e, WhatIsNoConversationIsRefusedBesideAJobThatTrains) {
  make_model();
  const std::string good =
      Json{{"messages", {message("user", "a"), message("assistant", "b")}}}.dump() + "\n";
  const auto line = [&](const Json& json) { return good + json.dump() + "\n"; };
  write("good.jsonl", good);
  write("role.jsonl", line({{"messages", Json::array({message("robot", "a")})}}));
  write("systems.jsonl", line({{"messages", {message("system", "a"), message("system", "b")}}}));
  write("empty.jsonl", line({{"messages", Json::array()}}));
  write("parts.jsonl",
        line({{"messages", Json::array({message(
                               "user", Json::array({Json{{"type", "image"}, {"url", "x"}}}))})}}));
  write("tools.jsonl", line({{"messages", Json::array({message("user", "a")})},
                             {"tools", Json::array({Json{{"type", "function"}}})}}));
  write("mixed.jsonl", line({{"prompt", "a"}, {"completion", "b"}}));
  write("array.jsonl", good + "[1]\n");
  write("deep.jsonl", good + "{\"messages\": " + std::string(100000, '[') + "\n");
  write("other.jsonl", "{\"conversations\": []}\n");
  write("loop.jinja", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  write("long.jinja", "{{ 'a' * 1000000000 }}");
  write("broken.jinja", "{% if %}");
  start();
  submit_endless("dp2", "undisturbed", 1000);
  ASSERT_NO_FATAL_FAILURE(cancel("undisturbed"));
  submit_endless("dp2", "beside", 3);
  Refusals refusals;
  const auto add = [&](const std::string& name, StatusCode code, const char* reason,
                       const char* field, const auto& fill) {
    v1::JobSpec spec;
    v1::RunConfig& run = *spec.mutable_run();
    run.mutable_model()->set_config("model/config.json");
    run.mutable_training()->set_steps(2);
    run.mutable_training()->set_global_batch_size(4);
    run.mutable_data()->set_path("good.jsonl");
    fill(*run.mutable_data());
    refusals.push_back({name, code, reason, field, [spec, address = address_](RunClient& client) {
                          v1::SubmitJobRequest request;
                          *request.mutable_spec() = spec;
                          const auto stub = v1::JobService::NewStub(
                              grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
                          return client.call(*stub, &v1::JobService::Stub::SubmitJob, request);
                        }});
  };
  const auto add_file = [&](const char* file, StatusCode code, const char* reason) {
    add(file, code, reason, "run.data.path", [&](v1::DataConfig& d) { d.set_path(file); });
  };
  constexpr StatusCode kInvalid = StatusCode::INVALID_ARGUMENT;
  add_file("role.jsonl", kInvalid, "TEMPLATE_RAISED");
  add_file("systems.jsonl", kInvalid, "TEMPLATE_RAISED");
  add_file("empty.jsonl", kInvalid, "BAD_CONVERSATION");
  add_file("parts.jsonl", StatusCode::UNIMPLEMENTED, "NOT_OFFERED");
  add_file("tools.jsonl", StatusCode::UNIMPLEMENTED, "NOT_OFFERED");
  add_file("mixed.jsonl", kInvalid, "NO_CONVERSATION");
  add_file("array.jsonl", kInvalid, "NO_CONVERSATION");
  add_file("deep.jsonl", kInvalid, "INVALID_ARGUMENT");
  add_file("other.jsonl", kInvalid, "NO_FIELD");
  refusals.back().field = "run.data.field";
  const auto add_template = [&](const char* file, StatusCode code, const char* reason,
                                const char* field) {
    add(file, code, reason, field,
        [&](v1::DataConfig& d) { d.mutable_chat()->set_template_(file); });
  };
  add_template("broken.jinja", kInvalid, "TEMPLATE_SYNTAX", "run.data.chat.template");
  add_template("none", kInvalid, "NO_CHAT_TEMPLATE", "run.data.chat.template");
  add_template("loop.jinja", StatusCode::RESOURCE_EXHAUSTED, "TOKENIZER_LIMIT", "run.data.path");
  add_template("long.jinja", StatusCode::RESOURCE_EXHAUSTED, "TOKENIZER_LIMIT", "run.data.path");
  v1::GenerateRequest without_template;
  without_template.set_job("beside");
  without_template.add_prompts()->mutable_chat()->add_messages()->set_role("user");
  refusals.push_back({"a model without a template", StatusCode::FAILED_PRECONDITION,
                      "NO_CHAT_TEMPLATE", "prompts[0].chat",
                      [request = without_template, address = address_](RunClient& client) {
                        const auto stub = v1::GenerateService::NewStub(
                            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
                        return client.call(*stub, &v1::GenerateService::Stub::Generate, request);
                      }});
  RunClient client(address_);
  expect_refused(client, refusals);
  EXPECT_EQ(job("beside")["state"], "running");
  ASSERT_NO_FATAL_FAILURE(cancel("beside"));
  expect_same_losses("beside", "undisturbed");
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
