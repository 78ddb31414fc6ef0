// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/conversation.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/reason_of.h"

namespace meshloom::text {
namespace {

const std::filesystem::path kPath = "chat.jsonl";

Conversation read(const std::string& line, LineKind kind = LineKind::kMessages) {
  return conversation_of_line(line, kind, {kPath, 3});
}

/// Reason and text of what a line is refused with.
std::string refused(const std::string& line, LineKind kind = LineKind::kMessages) {
  try {
    read(line, kind);
  } catch (const Error& error) {
    EXPECT_EQ(error.metadata().at("line"), "3");
    EXPECT_EQ(error.metadata().at("path"), "chat.jsonl");
    return error.reason() + " " + error.what();
  }
  return "accepted";
}

TEST(Conversation, KindsAreToldByTheirKeys) {
  const auto kind = [](const char* line) { return kind_of(nlohmann::json::parse(line)); };
  EXPECT_EQ(kind(R"({"messages": []})"), LineKind::kMessages);
  EXPECT_EQ(kind(R"({"prompt": "a", "completion": "b"})"), LineKind::kCompletion);
  EXPECT_EQ(kind(R"({"instruction": "a", "output": "b", "input": ""})"), LineKind::kInstruction);
  EXPECT_EQ(kind(R"({"text": "a"})"), std::nullopt);
  EXPECT_EQ(kind(R"({"prompt": "a"})"), std::nullopt);
  EXPECT_EQ(kind("[1]"), std::nullopt);
}

TEST(Conversation, MessagesAreGivenAsATemplateTakesThem) {
  const Conversation made = read(
      R"({"id": 7, "messages": [{"content": "hi", "role": "user", "name": null},
          {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
           "thinking": "hm", "weight": 1}]})");
  EXPECT_EQ(made.messages.dump(),
            R"([{"role":"user","content":"hi"},{"role":"assistant","content":"ab","thinking":"hm",)"
            R"("weight":1,"reasoning_content":"hm"}])");
  EXPECT_FALSE(made.has_lone_surrogates);
  EXPECT_TRUE(read(R"({"messages": [{"role": "user", "content": "\ud83d"}]})").has_lone_surrogates);
}

TEST(Conversation, PromptsAndInstructionsAreTurnsAndPlainText) {
  const Conversation completion =
      read(R"({"prompt": "1+1=", "completion": " 2"})", LineKind::kCompletion);
  EXPECT_EQ(completion.plain_prompt, "1+1=");
  EXPECT_EQ(completion.plain_answer, " 2");
  EXPECT_EQ(completion.messages.dump(),
            R"([{"role":"user","content":"1+1="},{"role":"assistant","content":" 2"}])");
  const Conversation plain =
      read(R"({"instruction": "Add", "output": "2"})", LineKind::kInstruction);
  EXPECT_EQ(plain.plain_prompt, "### Instruction:\nAdd\n\n### Response:\n");
  const Conversation with =
      read(R"({"instruction": "Add", "input": "1, 1", "output": "2"})", LineKind::kInstruction);
  EXPECT_EQ(with.plain_prompt, "### Instruction:\nAdd\n\n### Input:\n1, 1\n\n### Response:\n");
  EXPECT_EQ(with.messages[0]["content"], "Add\n\n1, 1");
}

TEST(Conversation, WhatIsNoneIsRefusedByFileAndLine) {
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refused("{"), "chat.jsonl:3: the line is no JSON")) << refused("{");
  EXPECT_TRUE(has(refused("[1]"), "NO_CONVERSATION"));
  EXPECT_TRUE(has(refused(R"({"text": "a"})"), "expected \"messages\""));
  // Another kind than the first line's.
  EXPECT_TRUE(has(refused(R"({"prompt": "a", "completion": "b"})"),
                  "the line has \"prompt\" and \"completion\", expected \"messages\""));
  EXPECT_TRUE(has(refused(R"({"messages": []})"), "messages is empty"));
  EXPECT_TRUE(has(refused(R"({"messages": {}})"), "messages is of the type object"))
      << refused(R"({"messages": {}})");
  EXPECT_TRUE(has(refused(R"({"messages": ["a"]})"), "messages[0] is of the type string"));
  EXPECT_TRUE(has(refused(R"({"messages": [{"content": "a"}]})"), "messages[0] has no role"));
  EXPECT_TRUE(has(refused(R"({"messages": [{"role": "user"}]})"), "messages[0] has no content"));
  EXPECT_TRUE(
      has(refused(R"({"messages": [{"role": "user", "content": 5}]})"), "is of the type number"));
  EXPECT_TRUE(has(refused(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
                  "NOT_OFFERED chat.jsonl:3: messages[0].content: a part of it is of the type"));
  EXPECT_TRUE(has(refused(R"({"messages": [{"role": "user", "content": [5]}]})"), "has no type"));
  EXPECT_TRUE(has(refused(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})"),
                  "NOT_OFFERED chat.jsonl:3: the line has tools"));
  EXPECT_TRUE(has(refused(R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})"),
                  "messages[0] calls a tool"));
  EXPECT_TRUE(has(refused(R"({"prompt": 1, "completion": "b"})", LineKind::kCompletion),
                  "what is under \"prompt\" is of the type number"));
  std::string deep = R"({"messages": [{"role": "user", "content": "a", "x": )";
  deep += std::string(100, '[') + std::string(100, ']') + "}]}";
  EXPECT_TRUE(has(refused(deep), "nests deeper than 64 levels"));
}

}  // namespace
}  // namespace meshloom::text
