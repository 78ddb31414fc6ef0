// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/sampling/chat_turns.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "daemon/base/utf8.h"
#include "daemon/cli/output/terminal.h"

namespace meshloom::cli {
namespace {

void add(v1::Conversation& chat, const char* role, const std::string& content) {
  v1::ChatMessage& message = *chat.add_messages();
  message.set_role(role);
  message.set_content(content);
}

/// Returns what the user says next; nothing where the input has ended.
std::optional<std::string> next_turn(bool is_terminal) {
  for (std::string line; true;) {
    if (is_terminal) {
      std::fputs("> ", stderr);
      std::fflush(stderr);
    }
    if (!std::getline(std::cin, line)) break;
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (base::is_utf8(line)) return line;
    if (!is_terminal) throw CliError(kUsage, "standard input: a line has bytes that are no UTF-8");
    fmt::print(stderr, "the line has bytes that are no UTF-8\n");
  }
  if (is_terminal) std::fputs("\n", stderr);
  return std::nullopt;
}

}  // namespace

v1::Conversation first_turn(const std::string& system, const std::string& text) {
  v1::Conversation chat;
  if (!system.empty()) add(chat, "system", system);
  add(chat, "user", text);
  return chat;
}

ExitCode chat_by_turns(
    const std::string& system,
    const std::function<std::optional<std::string>(const v1::Conversation&)>& answer) {
  const bool is_terminal = cli::is_terminal(STDIN_FILENO);
  if (is_terminal) fmt::print(stderr, "A line a turn; Ctrl-C breaks an answer off, Ctrl-D ends\n");
  v1::Conversation chat;
  if (!system.empty()) add(chat, "system", system);
  while (const auto line = next_turn(is_terminal)) {
    add(chat, "user", *line);
    if (const auto text = answer(chat))
      add(chat, "assistant", *text);
    else
      chat.mutable_messages()->RemoveLast();
  }
  return kOk;
}

}  // namespace meshloom::cli
