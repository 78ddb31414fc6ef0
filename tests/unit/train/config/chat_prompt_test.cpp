// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/chat_prompt.h"

#include <gtest/gtest.h>

#include "tests/support/reason_of.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"

namespace meshloom::train {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role + ':' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

/// Letters, ':' and "</s>", which is special.
void write_tokenizer(const test::TempFolder& folder) {
  nlohmann::json vocab;
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = c - 'a';
  vocab[":"] = 26;
  vocab["</s>"] = 27;
  const nlohmann::json added = {{{"id", 27},
                                 {"content", "</s>"},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}}};
  const nlohmann::json json = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  folder.write("tokenizer.json", json.dump());
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
}

PromptLimits limits_of(const test::TempFolder& folder) {
  PromptLimits limits{28, 64};
  text::TokenizerCache opened;
  add_tokenizer(limits, folder.path(), opened);
  return limits;
}

v1::Conversation conversation(std::initializer_list<std::pair<const char*, const char*>> turns) {
  v1::Conversation chat;
  for (const auto& [role, content] : turns) {
    chat.add_messages()->set_role(role);
    chat.mutable_messages()->rbegin()->set_content(content);
  }
  return chat;
}

TEST(ChatPrompt, IsTheBeginningOfAnAnswer) {
  const test::TempFolder folder;
  write_tokenizer(folder);
  folder.write("chat_template.jinja", kTemplate);
  const PromptLimits limits = limits_of(folder);
  const ChatPrompt prompt = chat_prompt(conversation({{"user", "hi"}}), limits, "prompts[0].");
  EXPECT_EQ(prompt.text, "user:hi</s>assistant:");
  EXPECT_EQ(prompt.tokens.size(), 5 + 2 + 1 + 10u);
  EXPECT_EQ(prompt.turn_ends, std::vector<std::int64_t>{27});
  EXPECT_EQ(user_prompt("hi", limits, "run.sample.prompt").tokens, prompt.tokens);
}

TEST(ChatPrompt, WithoutATemplateOrMessagesIsRefused) {
  const test::TempFolder folder;
  write_tokenizer(folder);
  EXPECT_EQ(test::reason_of([&] {
              chat_prompt(conversation({{"user", "hi"}}), limits_of(folder), "");
            }),
            "NO_CHAT_TEMPLATE");
  folder.write("chat_template.jinja", kTemplate);
  const PromptLimits limits = limits_of(folder);
  EXPECT_EQ(test::reason_of([&] { chat_prompt({}, limits, ""); }), "BAD_CONVERSATION");
  EXPECT_EQ(test::reason_of([&] {
              chat_prompt(conversation({{"", "hi"}}), limits, "");
            }),
            "BAD_CONVERSATION");
  folder.write("chat_template.jinja", "{{ raise_exception('no') }}");
  const PromptLimits raising = limits_of(folder);
  EXPECT_EQ(test::reason_of([&] {
              chat_prompt(conversation({{"user", "a"}}), raising, "");
            }),
            "TEMPLATE_RAISED");
  folder.write("chat_template.jinja", "\xFF");
  EXPECT_NO_THROW(text_prompt_tokens("hi", limits_of(folder), "prompt"))
      << "a template that cannot be read is no matter of other prompts";
}

TEST(ChatPrompt, AJobsOwnTemplateTakesThePlaceOfTheModels) {
  const test::TempFolder folder;
  write_tokenizer(folder);
  folder.write("chat_template.jinja", kTemplate);
  folder.write("own.jinja", "own:{{ eos_token }}");
  PromptLimits limits = limits_of(folder);
  v1::DataConfig data;
  data.mutable_chat()->set_template_("own.jinja");
  set_chat_of_job(limits, data, folder.path(), folder.path());
  EXPECT_EQ(chat_prompt(conversation({{"user", "hi"}}), limits, "").text, "own:</s>");
  std::vector<CarriedFile> carried = {{"chat_template.jinja", "old"}, {"vocab.json", "{}"}};
  carry_chat_of_job(data, folder.path(), folder.path(), carried);
  ASSERT_EQ(carried.size(), 2u);
  EXPECT_EQ(carried.back().bytes, "own:{{ eos_token }}");
}

TEST(ChatPrompt, AJobsTemplateMayBeOneOfSeveralOfItsTokenizer) {
  const test::TempFolder folder;
  write_tokenizer(folder);
  folder.write("chat_template.jinja", kTemplate);
  folder.write("additional_chat_templates/brief.jinja", "brief:{{ eos_token }}");
  PromptLimits limits = limits_of(folder);
  v1::DataConfig data;
  data.mutable_chat()->set_template_("brief");
  set_chat_of_job(limits, data, folder.path(), folder.path());
  EXPECT_EQ(chat_prompt(conversation({{"user", "hi"}}), limits, "").text, "brief:</s>");
  std::vector<CarriedFile> carried = {{"chat_template.jinja", "old"}};
  carry_chat_of_job(data, folder.path(), folder.path(), carried);
  ASSERT_EQ(carried.size(), 1u);
  EXPECT_EQ(carried.back().bytes, "brief:{{ eos_token }}");
  data.mutable_chat()->set_template_("other");
  EXPECT_EQ(test::reason_of([&] { set_chat_of_job(limits, data, folder.path(), folder.path()); }),
            "NO_CHAT_TEMPLATE");
}

TEST(ChatPrompt, AJobThatSaysNoneHasNoTemplate) {
  const test::TempFolder folder;
  write_tokenizer(folder);
  folder.write("chat_template.jinja", kTemplate);
  PromptLimits limits = limits_of(folder);
  v1::DataConfig data;
  data.mutable_chat()->set_template_("none");
  set_chat_of_job(limits, data, folder.path(), folder.path());
  try {
    chat_prompt(conversation({{"user", "hi"}}), limits, "");
    FAIL() << "taken";
  } catch (const FailedPrecondition& error) {
    EXPECT_EQ(error.reason(), "NO_CHAT_TEMPLATE");
    EXPECT_NE(std::string(error.what()).find("run.data.chat.template"), std::string::npos)
        << error.what();
  }
}

TEST(ChatPrompt, ATemplateThatIsGoneIsNoMatterOfOtherPrompts) {
  const test::TempFolder folder;
  write_tokenizer(folder);
  folder.write("chat_template.jinja", kTemplate);
  PromptLimits limits = limits_of(folder);
  v1::DataConfig data;
  data.mutable_chat()->set_template_("gone.jinja");
  EXPECT_THROW(set_chat_of_job(limits, data, folder.path(), folder.path()), Error);
  EXPECT_NO_THROW(add_chat_of_job(limits, data, folder.path(), folder.path()));
  EXPECT_NO_THROW(text_prompt_tokens("hi", limits, "prompt"));
  EXPECT_EQ(test::reason_of([&] {
              chat_prompt(conversation({{"user", "hi"}}), limits, "");
            }),
            "NO_CHAT_TEMPLATE");
  EXPECT_NE(limits.no_chat.find("gone.jinja"), std::string::npos) << limits.no_chat;
}

}  // namespace
}  // namespace meshloom::train
