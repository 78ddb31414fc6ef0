// SPDX-License-Identifier: Apache-2.0
// What a chat template tells of itself, its errors with their lines, and threads that share one.
#include "daemon/text/chat_template.h"

#include <gtest/gtest.h>

#include <thread>

#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

using Json = nlohmann::ordered_json;

std::string rendered(const std::string& source, const Json& variables = Json::object(),
                     std::int64_t now = 0) {
  Budget budget;
  return ChatTemplate(source, "t.jinja").render(variables, now, budget).text;
}

/// The error of a template, as "REASON: text".
std::string error_of(const std::string& source, const Json& variables = Json::object()) {
  try {
    return "it gave: " + rendered(source, variables);
  } catch (const Error& error) {
    return error.reason() + ": " + error.what();
  }
}

TEST(ChatTemplate, TellsWhatGenerationBlocksGaveInBytes) {
  const ChatTemplate marked(
      "{% for m in messages %}{% if m.role == 'assistant' %}<{% generation %}{{ m.content }}"
      "{% endgeneration %}>{% else %}{{ m.content }}{% endif %}{% endfor %}",
      "t");
  EXPECT_TRUE(marked.marks_generation());
  EXPECT_FALSE(ChatTemplate("{% if true %}generation{% endif %}", "t").marks_generation());
  Budget budget;
  const Json messages = {{{"role", "user"}, {"content", "é"}},
                         {{"role", "assistant"}, {"content", "東京"}},
                         {{"role", "assistant"}, {"content", ""}}};
  const ChatRendering rendering = marked.render({{"messages", messages}}, 0, budget);
  EXPECT_EQ(rendering.text, "é<東京><>");
  const std::vector<std::pair<std::size_t, std::size_t>> expected = {{3, 9}, {11, 11}};
  EXPECT_EQ(rendering.generated, expected);
}

TEST(ChatTemplate, NamesTheFileAndTheLineOfWhatIsWrong) {
  EXPECT_EQ(error_of("a\n{{ b +\n }}"),
            "TEMPLATE_SYNTAX: t.jinja:3: unexpected '}}', expected an expression");
  EXPECT_EQ(error_of("\n\n{% include 'x' %}"), "NOT_OFFERED: t.jinja:3: the tag {% include %}");
  EXPECT_EQ(error_of("{% if false %}\n{{ x | urlize }}{% endif %}"),
            "NOT_OFFERED: t.jinja:2: the filter 'urlize'");
  EXPECT_EQ(error_of("\n{{ x is nope }}"), "NOT_OFFERED: t.jinja:2: the test 'nope'");
  EXPECT_EQ(error_of("a\n{% for x in y %}\n{{ x.z.q }}{% endfor %}", {{"y", {1}}}),
            "TEMPLATE_ERROR: t.jinja:3: 'int' has no attribute 'z'");
  EXPECT_EQ(error_of("{% macro f() %}\n\n{% generation %}{% endgeneration %}{% endmacro %}"),
            "NOT_OFFERED: t.jinja:3: {% generation %} inside of a macro, a block or another one: "
            "where its text will be is not known there");
}

TEST(ChatTemplate, GivesTheMessageThatItRaises) {
  try {
    rendered("\n{{ raise_exception('roles must alternate') }}");
    ADD_FAILURE() << "nothing was raised";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.reason(), "TEMPLATE_RAISED");
    EXPECT_EQ(error.metadata().at("message"), "roles must alternate");
    EXPECT_EQ(error.metadata().at("line"), "2");
    EXPECT_STREQ(error.what(),
                 "t.jinja:2: the template refuses the conversation: roles must alternate");
  }
}

TEST(ChatTemplate, TellsTheTimeThatItIsGiven) {
  EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y %H:%M') }}", Json::object(), 1'732'543'199),
            "25 Nov 2024 13:59");
  EXPECT_EQ(rendered("{{ strftime_now('%-d/%j') }}", Json::object(), 0), "1/001");
  EXPECT_EQ(error_of("{{ strftime_now('%Q') }}").substr(0, 11), "NOT_OFFERED");
}

TEST(ChatTemplate, TakesBytesThatAreNoUtf8AsReplacementCharacters) {
  EXPECT_EQ(rendered("{{ x }}|{{ x | length }}", {{"x", "a\xFF"}}), "a\xEF\xBF\xBD|2");
  EXPECT_EQ(rendered("\xFF{{ 'é'\n | upper }}"), "\xEF\xBF\xBD\xC3\x89");
}

TEST(ChatTemplate, RefusesVariablesThatAreNoObject) {
  Budget budget;
  EXPECT_THROW(ChatTemplate("", "t").render(Json::array(), 0, budget), InvalidArgument);
}

TEST(ChatTemplate, IsRenderedByThreadsAtOnce) {
  const ChatTemplate shared(
      "{% macro f(x) %}{{ x | upper }}{% endmacro %}{% for m in messages %}{{ f(m) }}{% endfor %}",
      "t");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] {
      const std::string one(1, static_cast<char>('a' + i));
      for (int round = 0; round < 100; ++round) {
        Budget budget;
        texts[i] = shared.render({{"messages", {one, one, "ß"}}}, 0, budget).text;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(texts, (std::vector<std::string>{"AASS", "BBSS", "CCSS", "DDSS"}));
}

}  // namespace
}  // namespace meshloom::text
