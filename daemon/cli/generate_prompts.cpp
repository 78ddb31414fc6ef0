// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/generate_prompts.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "daemon/cli/exit_code.h"

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

}  // namespace

std::vector<v1::Prompt> read_prompts(const PromptOptions& options) {
  std::vector<v1::Prompt> prompts;
  const std::string& file = options.file;
  if (file.empty()) {
    for (const std::string& text : options.texts) prompts.push_back(text_prompt(text));
    for (const std::string& list : options.tokens) prompts.push_back(token_prompt(list));
    return prompts;
  }
  std::ifstream in(file);
  if (!in) throw CliError(kUsage, fmt::format("--prompts-file {}: cannot be read", file));
  for (std::string line; std::getline(in, line);) {
    if (line.empty())
      throw CliError(kUsage, fmt::format("{}:{}: a prompt is expected, the line is empty", file,
                                         prompts.size() + 1));
    prompts.push_back(text_prompt(line));
  }
  if (in.bad()) throw CliError(kUsage, fmt::format("--prompts-file {}: cannot be read", file));
  if (prompts.empty()) throw CliError(kUsage, fmt::format("{}: there is no prompt in it", file));
  return prompts;
}

}  // namespace meshloom::cli
