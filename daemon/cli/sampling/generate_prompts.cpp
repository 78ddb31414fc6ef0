// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/sampling/generate_prompts.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "daemon/base/utf8.h"
#include "daemon/cli/exit_code.h"
#include "daemon/text/text_mode.h"

namespace meshloom::cli {
namespace {

v1::Prompt text_prompt(const std::string& text) {
  v1::Prompt prompt;
  prompt.set_prompt(text);
  return prompt;
}

v1::Prompt token_prompt(const std::string& list) {
  v1::Prompt prompt;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    std::int64_t id = 0;
    const char* end = part.data() + part.size();
    const auto [stopped, error] = std::from_chars(part.data(), end, id);
    if (error != std::errc() || stopped != end)
      throw CliError(kUsage, fmt::format("--tokens {}: \"{}\" is no token id; ids are whole "
                                         "numbers, separated by commas",
                                         list, part));
    prompt.add_token_ids(id);
  }
  if (prompt.token_ids().empty()) throw CliError(kUsage, "--tokens: there is no token id");
  return prompt;
}

/// Returns the text of a file as Python's text mode reads it: newlines of any kind become \n.
std::string read_text_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream bytes;
  // An empty file gives nothing to insert, which is no error of the file.
  if (in && in.peek() != std::ifstream::traits_type::eof()) bytes << in.rdbuf();
  if (in.bad() || !bytes || !in.is_open())
    throw CliError(kUsage, fmt::format("--prompts-file {}: cannot be read", file));
  return text::read_text_mode(bytes.str());
}

}  // namespace

std::vector<v1::Prompt> read_prompts(const PromptOptions& options) {
  std::vector<v1::Prompt> prompts;
  const std::string& file = options.file;
  if (file.empty()) {
    for (const std::string& text : options.texts) prompts.push_back(text_prompt(text));
    for (const std::string& list : options.tokens) prompts.push_back(token_prompt(list));
    if (prompts.empty()) prompts.emplace_back();  // the model's own beginning
    return prompts;
  }
  std::istringstream lines(read_text_file(file));
  for (std::string line; std::getline(lines, line);) {
    const auto refuse = [&](const char* why) {
      throw CliError(kUsage, fmt::format("{}:{}: {}", file, prompts.size() + 1, why));
    };
    if (line.empty()) refuse("a prompt is expected, the line is empty");
    if (!base::is_utf8(line)) refuse("the line has bytes that are no UTF-8");
    prompts.push_back(text_prompt(line));
  }
  if (prompts.empty()) throw CliError(kUsage, fmt::format("{}: there is no prompt in it", file));
  return prompts;
}

}  // namespace meshloom::cli
