// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/runs/run_token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "daemon/base/unique_fd.h"

namespace meshloom::cli {

void add_optional_token(CLI::App& command, CommandContext& context) {
  auto* token = command.add_option(
      "--token", context.run_token,
      "The run's, as run create printed it; others on this host can see it in the list of "
      "processes");
  command
      .add_option_function<std::string>(
          "--token-file",
          [&context](const std::string& path) { context.run_token = read_token_file(path); },
          "File that holds the run's token, as run create --token-file wrote it")
      ->excludes(token);
}

void add_needed_token(CLI::App& command, CommandContext& context, const CLI::Option* unless) {
  add_optional_token(command, context);
  command.parse_complete_callback([&context, unless] {
    if (context.run_token.empty()) context.run_token = context.default_run_token;
    if (context.run_token.empty() && !(unless && unless->count() > 0))
      throw CLI::RequiredError("one of --token-file, --token and MESHLOOM_RUN_TOKEN");
  });
}

std::string read_token_file(const std::filesystem::path& path) {
  const auto fail = [&](const std::string& why) {
    return CLI::ValidationError("--token-file", fmt::format("{} {}", path.string(), why));
  };
  const base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw fail(fmt::format("cannot be opened: {}", std::strerror(errno)));
  std::array<char, 512> bytes{};
  const ssize_t size = ::read(file.get(), bytes.data(), bytes.size());
  if (size < 0) throw fail(fmt::format("cannot be read: {}", std::strerror(errno)));
  std::string_view text(bytes.data(), static_cast<std::size_t>(size));
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = std::min(text.find_first_not_of(kBlanks), text.size());
  text.remove_prefix(first);
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  const bool visible =
      std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (text.empty() || !visible || static_cast<std::size_t>(size) == bytes.size())
    throw fail("holds no token: one word on one line");
  return std::string(text);
}

}  // namespace meshloom::cli
