// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/chat_renderer.h"

#include <gtest/gtest.h>

#include "daemon/text/chat_reading.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"

namespace meshloom::text {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr const char* kTrimmed =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content|trim + '<|im_end|>\\n' "
    "}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr const char* kMarked =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}{% else %}"
    "{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}";
/// Earlier answers lose their thoughts, as those of Qwen 3.
constexpr const char* kForgetful =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and not loop.last %}"
    "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

Ordered messages(std::initializer_list<std::pair<const char*, const char*>> turns) {
  Ordered made = Ordered::array();
  for (const auto& [role, content] : turns) made.push_back({{"role", role}, {"content", content}});
  return made;
}

ChatRenderer renderer(const std::string& text) {
  return ChatRenderer({text, "test.jinja"}, {{"bos_token", "<s>"}}, 0);
}

/// What of a rendering is learnt.
std::vector<std::string> answers(const RenderedChat& rendered) {
  std::vector<std::string> texts;
  for (const auto& [begin, end] : rendered.answers)
    texts.push_back(rendered.text.substr(begin, end - begin));
  return texts;
}

const Ordered kTwoTurns =
    messages({{"user", "q1"}, {"assistant", "a1"}, {"user", "q2"}, {"assistant", "a2"}});

TEST(ChatRenderer, AnswersAreWhatAMessageAddsToThoseBeforeIt) {
  const RenderedChat rendered = renderer(kChatMl).render(kTwoTurns);
  EXPECT_EQ(rendered.text,
            "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n"
            "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\na2<|im_end|>\n");
  EXPECT_EQ(answers(rendered), (std::vector<std::string>{"a1<|im_end|>\n", "a2<|im_end|>\n"}));
  EXPECT_FALSE(rendered.has_last_answer_alone);
}

TEST(ChatRenderer, AnswersAreWhatTheTemplateMarks) {
  const RenderedChat rendered = renderer(kMarked).render(kTwoTurns);
  EXPECT_EQ(answers(rendered), (std::vector<std::string>{"a1<|im_end|>", "a2<|im_end|>"}));
  EXPECT_EQ(rendered.text, renderer(kChatMl).render(kTwoTurns).text);
}

TEST(ChatRenderer, TheLastAnswerAloneCountsWhereEarlierOnesChange) {
  const Ordered thoughts = messages({{"user", "q1"},
                                     {"assistant", "<think>x</think>a1"},
                                     {"user", "q2"},
                                     {"assistant", "<think>y</think>a2"}});
  const RenderedChat rendered = renderer(kForgetful).render(thoughts);
  EXPECT_EQ(answers(rendered), std::vector<std::string>{"<think>y</think>a2</s>"});
  EXPECT_TRUE(rendered.has_last_answer_alone);
  EXPECT_EQ(rendered.text,
            "<user>q1</s><assistant>a1</s><user>q2</s><assistant><think>y</think>a2</s>");
  // What follows the last answer cannot be learnt from, and would change it.
  Ordered asked = thoughts;
  asked.push_back({{"role", "user"}, {"content", "q3"}});
  EXPECT_EQ(renderer(kForgetful).render(asked).text, rendered.text);
  // Without thoughts nothing changes.
  EXPECT_FALSE(renderer(kForgetful).render(kTwoTurns).has_last_answer_alone);
}

TEST(ChatRenderer, AnAnswerThatBeginsOtherwiseThanOneToBeGivenIsFound) {
  const auto found = renderer(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
      "{% if add_generation_prompt %}<assistant><think>\n{% endif %}");
  const RenderedChat rendered = found.render(messages({{"user", "q"}, {"assistant", "a"}}));
  EXPECT_EQ(answers(rendered), std::vector<std::string>{"a</s>"});
  EXPECT_FALSE(rendered.has_last_answer_alone) << "there is no other";
}

TEST(ChatRenderer, AnAnswerThatChangesWhatIsBeforeItIsRefused) {
  const auto counting =
      renderer("{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(test::reason_of([&] {
              counting.render(messages({{"user", "q"}, {"assistant", "a"}}));
            }),
            "NO_ANSWER_FOUND");
}

TEST(ChatRenderer, AConversationMayBeginWithAnAnswer) {
  const Ordered greeting = messages({{"assistant", " hello "}, {"user", "q"}, {"assistant", "a"}});
  const std::vector<std::string> expected = {"hello<|im_end|>\n", "a<|im_end|>\n"};
  EXPECT_EQ(answers(renderer(kTrimmed).render(greeting)), expected);
  const std::string first = "{% if messages[0]['role'] == 'system' %}s{% endif %}";
  EXPECT_EQ(answers(renderer(first + kTrimmed).render(greeting)), expected);
  // Its words stand in what is before it, too.
  for (const std::string content : {"a", "end", "assistant", ""}) {
    const Ordered short_one =
        messages({{"assistant", content.c_str()}, {"user", "q"}, {"assistant", "a"}});
    EXPECT_EQ(answers(renderer(first + kTrimmed).render(short_one)),
              (std::vector<std::string>{content + "<|im_end|>\n", "a<|im_end|>\n"}));
  }
  // A template that renders no messages otherwise does not tell by them what is before the answer.
  const std::string begun = "{% if messages %}<s>{% endif %}";
  EXPECT_EQ(answers(renderer(begun + kTrimmed).render(greeting)), expected);
}

TEST(ChatRenderer, AnswersThatShareTheirTextCountAsTheLastAlone) {
  const auto forgetful = renderer(
      "{% if not add_generation_prompt %}{% for m in messages %}{{ m.content }};{% endfor %}"
      "{% endif %}");
  const RenderedChat rendered = forgetful.render(kTwoTurns);
  EXPECT_TRUE(rendered.has_last_answer_alone);
  EXPECT_EQ(answers(rendered), std::vector<std::string>{"q1;a1;q2;a2;"});
}

TEST(ChatRenderer, AnAnswerBeginsWithAWholeCharacter) {
  const auto accents = renderer(
      "{% for m in messages %}{% if m.role == 'assistant' %}\xC3\xA8{% endif %}{{ m.content }}"
      "{% endfor %}{% if add_generation_prompt %}\xC3\xA9{% endif %}");
  EXPECT_EQ(answers(accents.render(messages({{"user", "q"}, {"assistant", "z"}}))),
            std::vector<std::string>{"\xC3\xA8z"});
}

TEST(ChatRenderer, RenderingOftenGivesNoMoreMemory) {
  // Every part of the conversation is rendered twice; one of the last makes a large text.
  const auto late =
      renderer(std::string(kChatMl) +
               "{% if messages|length == 38 %}{% set x = 'a' * 8000000 %}{% endif %}");
  const std::string content(1024, 'c');
  Ordered turns = Ordered::array();
  for (int i = 0; i < 20; ++i) {
    turns.push_back({{"role", "user"}, {"content", content}});
    turns.push_back({{"role", "assistant"}, {"content", content}});
  }
  EXPECT_EQ(test::reason_of([&] { late.render(turns); }), "TOKENIZER_LIMIT");
  EXPECT_EQ(renderer(kChatMl).render(turns).answers.size(), 20u);
}

TEST(ChatRenderer, TooManyAnswersAreRefusedAlsoWhereTheTemplatePrintsNothing) {
  Ordered turns = Ordered::array();
  for (int i = 0; i < 120; ++i) {
    turns.push_back({{"role", "user"}, {"content", "q"}});
    turns.push_back({{"role", "assistant"}, {"content", "a"}});
  }
  turns.push_back({{"role", "user"}, {"content", std::string(std::size_t{4} << 20, 'c')}});
  EXPECT_EQ(test::reason_of([&] { renderer("{% for m in messages %}{% endfor %}").render(turns); }),
            "CONVERSATION_TOO_LONG");
}

/// Of a line all of whose tokens are learnt.
ChatText wholly_learnt(const std::string& source, const Ordered& turns) {
  const ChatReading reading{LineKind::kMessages, true,
                            std::make_shared<const ChatRenderer>(renderer(source))};
  const std::filesystem::path path = "a.jsonl";
  Ordered line;
  line["messages"] = turns;
  return chat_text_of_line(line.dump(), reading, {path, 1});
}

TEST(ChatReading, WhereAllIsLearntNothingIsLookedForAndNothingIsLeftOut) {
  const Ordered turns = messages({{"user", "q1"},
                                  {"assistant", "<think>x</think>a1"},
                                  {"user", "q2"},
                                  {"assistant", "<think>y</think>a2"},
                                  {"user", "q3"}});
  const ChatText whole = wholly_learnt(kForgetful, turns);
  EXPECT_EQ(whole.text, "<user>q1</s><assistant>a1</s><user>q2</s><assistant>a2</s><user>q3</s>");
  EXPECT_EQ(whole.learnt, (std::vector<ByteRange>{{0, whole.text.size()}}));
  EXPECT_FALSE(whole.has_last_answer_alone);
  const ChatText counted =
      wholly_learnt("{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}",
                    messages({{"user", "q"}, {"assistant", "a"}}));
  EXPECT_EQ(counted.text, "2qa");
  EXPECT_EQ(counted.learnt, (std::vector<ByteRange>{{0, 3}}));
}

TEST(ChatRenderer, MessagesWithoutAnAnswerHaveNothingToLearn) {
  EXPECT_TRUE(renderer(kChatMl).render(messages({{"user", "q"}})).answers.empty());
  EXPECT_TRUE(renderer(kForgetful).render(messages({{"user", "q"}})).answers.empty());
}

TEST(ChatRenderer, WhatATemplateRaisesIsTheErrorOfTheCall) {
  const auto strict = renderer(
      "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}"
      "{{ raise_exception('only users and assistants') }}{% endif %}{% endfor %}");
  EXPECT_EQ(test::reason_of([&] { strict.render(messages({{"robot", "q"}})); }), "TEMPLATE_RAISED");
}

TEST(ChatRenderer, TellsWhatAnswersFollowAndWhatFollowsThem) {
  EXPECT_EQ(
      renderer("{{ bos_token }}" + std::string(kChatMl)).render_prompt(messages({{"user", "q"}})),
      "<s><|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(renderer(kChatMl).behind_answer(), "<|im_end|>\n");
  EXPECT_EQ(renderer("{{ raise_exception('no') }}").behind_answer(), "");
}

TEST(ChatTemplateSource, AFileOfItsOwnComesBeforeTheConfig) {
  const test::TempFolder folder;
  EXPECT_EQ(find_chat_template(folder.path()), std::nullopt);
  folder.write("tokenizer_config.json", R"({"chat_template": "from config"})");
  EXPECT_EQ(find_chat_template(folder.path())->text, "from config");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "one"},
                                     {"name": "tool_use", "template": "two"}]})");
  EXPECT_EQ(find_chat_template(folder.path())->text, "one");
  EXPECT_EQ(find_chat_template(folder.path(), "tool_use")->text, "two");
  EXPECT_EQ(test::reason_of([&] { find_chat_template(folder.path(), "rag"); }), "NO_CHAT_TEMPLATE");
  folder.write("chat_template.jinja", "from file");
  folder.write("additional_chat_templates/rag.jinja", "more");
  EXPECT_EQ(find_chat_template(folder.path())->text, "from file");
  EXPECT_EQ(find_chat_template(folder.path())->origin, "chat_template.jinja");
  EXPECT_EQ(find_chat_template(folder.path(), "rag")->text, "more");
  folder.write("chat_template.jinja", "\xFF");
  EXPECT_EQ(test::reason_of([&] { find_chat_template(folder.path()); }), "INVALID_ARGUMENT");
  folder.write("chat_template.jinja", std::string((1 << 20) + 1, 'a'));
  EXPECT_EQ(test::reason_of([&] { find_chat_template(folder.path()); }), "FILE_TOO_LARGE");
}

}  // namespace
}  // namespace meshloom::text
