// SPDX-License-Identifier: Apache-2.0
// Conversations of jobs: found by their keys, rendered, checked and kept.
#include "daemon/train/data/chat_data.h"

#include "daemon/text/learned_tokens.h"
#include "daemon/text/token_file.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/data/data_identity.h"
#include "tests/unit/train/data/text_job_test.h"

namespace meshloom::train {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('no such role') }}{% endif %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

std::string chat_line(const std::string& question, const std::string& answer) {
  return nlohmann::json{{"messages",
                         {{{"role", "user"}, {"content", question}},
                          {{"role", "assistant"}, {"content", answer}}}}}
             .dump() +
         "\n";
}

/// A model of bytes, whose template is a file.
class ChatDataTest : public TextJobTest {
 protected:
  void SetUp() override {
    write_model("model", 256);
    folder_.write_text("t.jinja", kTemplate);
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += chat_line(fmt::format("q{}", i), "a");
    folder_.write_text("chat.jsonl", lines);
  }
  v1::RunConfig chat(const std::string& path = "chat.jsonl") const {
    v1::RunConfig c = config();
    c.mutable_data()->set_path(path);
    c.mutable_data()->mutable_chat()->set_template_("t.jinja");
    c.mutable_training()->set_seq_len(16);
    return c;
  }
  std::string refused(const std::function<void(v1::RunConfig&)>& change) const {
    return refused_when([&](v1::RunConfig& given) {
      given = chat();
      change(given);
    });
  }
  std::string refused_lines(const std::string& lines) const {
    folder_.write_text("bad.jsonl", lines);
    return refused([](v1::RunConfig& c) { c.mutable_data()->set_path("bad.jsonl"); });
  }
};

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_F(ChatDataTest, LinesAreFoundByTheirKeys) {
  v1::RunConfig given = chat();
  const v1::RunConfig resolved = resolve(given);
  EXPECT_EQ(resolved.data().chat().kind(), v1::LINE_KIND_MESSAGES);
  EXPECT_EQ(resolved.data().chat().loss(), v1::LOSS_TOKENS_ANSWERS);
  EXPECT_TRUE(resolved.data().document_mask());
  EXPECT_TRUE(resolved.data().reset_positions());
  EXPECT_FALSE(resolved.data().append_eos());
  EXPECT_FALSE(resolved.data().chat().has_time()) << "the template tells no time";
  EXPECT_FALSE(resolved.data().identity().tokenizer().empty());
  // A resolved config stays as it is.
  EXPECT_EQ(resolve(resolved).SerializeAsString(), resolved.SerializeAsString());
  folder_.write_text("pairs.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  given = config();
  given.mutable_data()->set_path("pairs.jsonl");
  EXPECT_EQ(resolve(given).data().chat().kind(), v1::LINE_KIND_COMPLETION);
  folder_.write_text("both.jsonl", "{\"text\": \"a b c d e f g\", \"messages\": []}\n");
  given.mutable_data()->set_path("both.jsonl");
  EXPECT_FALSE(resolve(given).data().has_chat()) << "a line with a text is text, as it was";
  EXPECT_FALSE(resolve(given).data().has_document_mask());
}

TEST_F(ChatDataTest, TokensHaveWhatIsLearnt) {
  folder_.write_text("one.jsonl", chat_line("hi", "yes"));
  v1::RunConfig given = chat("one.jsonl");
  given.mutable_training()->set_global_batch_size(1);
  const v1::RunConfig resolved = resolve(given);
  const TokenizedText made = tokenize(resolved);
  const text::TokenFile file(made.tokens);
  EXPECT_TRUE(file.is_chat());
  std::string all, learnt;
  for (const text::TokenId token : file.read(0, 100)) {
    all.push_back(static_cast<char>(text::id_of(token)));
    if ((token & text::kNotLearnt) == 0) learnt.push_back(static_cast<char>(token));
  }
  EXPECT_EQ(all, "<user>hi\n<assistant>yes\n");
  EXPECT_EQ(learnt, "yes\n");
  EXPECT_EQ(made.chat_template, "t.jinja");
  given.mutable_data()->mutable_chat()->set_loss(v1::LOSS_TOKENS_ALL);
  const v1::RunConfig whole = resolve(given);
  EXPECT_NE(whole.data().identity().tokenizer(), resolved.data().identity().tokenizer());
  EXPECT_EQ(text::TokenFile(tokenize(whole).tokens).summary()->learnt_tokens, file.size());
}

TEST_F(ChatDataTest, TheTimeOfTheSubmissionIsKept) {
  folder_.write_text("time.jinja", std::string("{{ strftime_now('%Y') }}") + kTemplate);
  v1::RunConfig given = chat();
  given.mutable_data()->mutable_chat()->set_template_("time.jinja");
  const v1::RunConfig resolved = resolve(given);
  EXPECT_GT(resolved.data().chat().time(), 1'700'000'000);
  EXPECT_EQ(resolve(resolved).data().identity().tokenizer(),
            resolved.data().identity().tokenizer());
  given.mutable_data()->mutable_chat()->set_time(0);
  EXPECT_EQ(resolve(given).data().chat().time(), 0);
  EXPECT_NE(resolve(given).data().identity().tokenizer(), resolved.data().identity().tokenizer());
}

TEST_F(ChatDataTest, AJobThatGoesOnTellsTheTimeOfTheFirst) {
  folder_.write_text("time.jinja", std::string("{{ strftime_now('%Y') }}") + kTemplate);
  v1::RunConfig given = chat();
  given.mutable_data()->mutable_chat()->set_template_("time.jinja");
  v1::RunConfig at_first = given;
  at_first.mutable_data()->mutable_chat()->set_time(1'000'000'000);
  const v1::RunConfig before = resolve(at_first);
  write_checkpoint(before);
  const v1::RunConfig next = settled(given);
  EXPECT_EQ(next.data().chat().time(), 1'000'000'000);
  EXPECT_EQ(next.data().identity().tokenizer(), before.data().identity().tokenizer());
  given.mutable_data()->mutable_chat()->set_time(1'000'000'001);
  try {
    settled(given);
    FAIL() << "taken";
  } catch (const FailedPrecondition& error) {
    EXPECT_EQ(error.reason(), "CHECKPOINT_MISMATCH");
    EXPECT_EQ(error.metadata().at("key"), "data.chat");
  }
}

TEST_F(ChatDataTest, TheTokensThatATemplateNamesDecideAboutTheText) {
  v1::RunConfig given = chat();
  given.mutable_data()->mutable_chat()->set_kind(v1::LINE_KIND_MESSAGES);
  text::FolderTokenizer tokenizer = byte_tokenizer();
  const auto identity = [&](const text::NamedTokens& named) {
    tokenizer.named = named;
    return chat_setup(given.data(), tokenizer, {}, folder_.path(), "run.data").identity;
  };
  const std::string without = identity({});
  EXPECT_EQ(identity({}), without);
  EXPECT_NE(identity({{"bos_token", "<s>"}}), without);
  EXPECT_NE(identity({{"bos_token", "<s>"}}), identity({{"bos_token", "<b>"}}));
  EXPECT_NE(identity({{"bos_token", "<s>"}}), identity({{"eos_token", "<s>"}}));
  // Plain text has none of them.
  given.mutable_data()->mutable_chat()->set_kind(v1::LINE_KIND_COMPLETION);
  given.mutable_data()->mutable_chat()->set_template_("none");
  EXPECT_EQ(identity({}), identity({{"bos_token", "<s>"}}));
}

TEST_F(ChatDataTest, ATemplateThatChangesIsAnotherTokenizer) {
  const v1::RunConfig resolved = resolve(chat());
  folder_.write_text("t.jinja", std::string("-") + kTemplate);
  try {
    tokenize(resolved);
    FAIL() << "taken";
  } catch (const FailedPrecondition& error) {
    EXPECT_EQ(error.reason(), "DATA_CHANGED");
  }
}

TEST_F(ChatDataTest, BadLinesAreRefusedAtSubmissionByPlace) {
  const std::string good = chat_line("q", "a");
  EXPECT_TRUE(has(refused_lines(good + "{\"messages\": []}\n"), "bad.jsonl:2: messages is empty"));
  EXPECT_TRUE(
      has(refused_lines(good + "{\"prompt\": \"a\", \"completion\": \"b\"}\n"),
          "bad.jsonl:2: the line has \"prompt\" and \"completion\", expected \"messages\""));
  EXPECT_TRUE(has(refused_lines(good + "no json\n"), "bad.jsonl:2: the line is no JSON"));
  EXPECT_TRUE(
      has(refused_lines(good + "{\"messages\": [{\"role\": \"robot\", \"content\": \"a\"}]}\n"),
          "TEMPLATE_RAISED"));
  EXPECT_TRUE(has(refused_lines("{\"conversations\": []}\n"), "run.data.chat.kind"));
  EXPECT_TRUE(has(refused_lines("[1, 2]\n"), "NO_CONVERSATION"));
  EXPECT_TRUE(has(refused_lines("[1, 2]\n"), "no keys, it is of the type array"));
  EXPECT_TRUE(has(refused_lines("no json\n"), "bad.jsonl:1: the line is no JSON"));
  EXPECT_TRUE(has(refused_lines("no json\n"), "run.data.path"));
  EXPECT_TRUE(has(refused_lines("\n \n"), "run.data.path: there is no line in bad.jsonl"));
}

TEST_F(ChatDataTest, WhatDoesNotBelongToChatIsRefusedByField) {
  const auto field = [&](const std::function<void(v1::DataConfig&)>& change) {
    return refused([&](v1::RunConfig& c) { change(*c.mutable_data()); });
  };
  EXPECT_TRUE(has(field([](auto& d) { d.set_field("text"); }), "run.data.field"));
  EXPECT_TRUE(has(field([](auto& d) { d.set_document_end(0); }), "run.data.document_end"));
  EXPECT_TRUE(has(field([](auto& d) { d.set_append_eos(true); }), "run.data.append_eos"));
  EXPECT_TRUE(has(field([](auto& d) { d.set_skip_lines_without_text(true); }),
                  "run.data.skip_lines_without_text"));
  EXPECT_TRUE(has(field([](auto& d) { d.mutable_chat()->set_template_("gone.jinja"); }),
                  "run.data.chat.template"));
  EXPECT_TRUE(has(field([](auto& d) { d.mutable_chat()->set_template_("none"); }),
                  "NO_CHAT_TEMPLATE run.data.chat.template"));
  EXPECT_TRUE(has(field([](auto& d) { d.mutable_chat()->set_template_("tool_use"); }),
                  "run.data.chat.template"));
  folder_.write_text("text.txt", "some text that is long enough to be trained on, and longer");
  EXPECT_TRUE(has(field([](auto& d) { d.set_path("text.txt"); }), "run.data.chat: is for .jsonl"));
  folder_.write_text("broken.jinja", "{% if %}");
  EXPECT_TRUE(has(field([](auto& d) { d.mutable_chat()->set_template_("broken.jinja"); }),
                  "TEMPLATE_SYNTAX"));
}

TEST_F(ChatDataTest, FirstLinesAreReadWhileThereIsTime) {
  const text::DocumentFile file = text::document_file(
      folder_.write_text("late.jsonl", chat_line("q", "a") + "{\"messages\": []}\n"));
  const v1::RunConfig resolved = resolve(chat());
  const text::ChatReading reading =
      chat_setup(resolved.data(), byte_tokenizer(), {}, folder_.path(), "run.data").reading;
  const auto now = std::chrono::steady_clock::now();
  EXPECT_NO_THROW(check_first_chat_lines(file, reading, now));
  EXPECT_THROW(check_first_chat_lines(file, reading, now + std::chrono::minutes(5)),
               InvalidArgument);
}

TEST_F(ChatDataTest, AllLinesAreReadAtSubmissionWhileThereIsTime) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += chat_line("a question that is not short", "an answer");
  folder_.write_text("long.jsonl", lines + "{\"messages\": []}\n");
  const v1::RunConfig resolved = resolve(chat("long.jsonl"));
  SoundLines sound;
  const auto now = std::chrono::steady_clock::now();
  EXPECT_NO_THROW(check_chat_lines(resolved, {}, folder_.path(), now, sound));
  try {
    check_chat_lines(resolved, {}, folder_.path(), now + std::chrono::minutes(5), sound);
    FAIL() << "taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.metadata().at("line"), "3001");
    EXPECT_EQ(error.metadata().at("field"), "run.data.path");
  }
}

}  // namespace
}  // namespace meshloom::train
