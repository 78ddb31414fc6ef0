// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "daemon/base/files.h"
#include "daemon/base/strict_json.h"
#include "daemon/base/system_message.h"
#include "daemon/base/unique_fd.h"
#include "daemon/control/access/roles.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;
constexpr int kVersion = 1;

[[noreturn]] void refuse(const fs::path& path, const char* reason, const std::string& why) {
  throw FailedPrecondition(fmt::format("file of tokens {}: {}", base::shown(path), why), reason);
}

bool is_hex(const std::string& text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Nothing where there is no file.
std::optional<std::string> private_text(const fs::path& path) {
  const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) refuse(path, "TOKENS_UNREADABLE", "cannot open it: " + base::system_message(errno));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0)
    refuse(path, "TOKENS_UNREADABLE", base::system_message(errno));
  if (!S_ISREG(status.st_mode))
    refuse(path, "TOKENS_UNREADABLE",
           S_ISDIR(status.st_mode) ? "it is a folder; expected a file"
                                   : "it is no regular file; expected one");
  if ((status.st_mode & 077) != 0)
    refuse(path, "TOKENS_NOT_PRIVATE",
           fmt::format("its mode is {:04o}, so that others may read or write it; chmod 600 it",
                       status.st_mode & 07777));
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    refuse(path, "TOKENS_NOT_PRIVATE",
           fmt::format("it belongs to the account with the number {}, this is {}; chown it",
                       status.st_uid, ::geteuid()));
  if (status.st_size > static_cast<off_t>(kMostFileBytes))
    refuse(path, "TOKENS_TOO_LARGE",
           fmt::format("it has {} bytes, at most {} are read", status.st_size, kMostFileBytes));
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t count = ::read(fd.get(), text.data() + got, text.size() - got);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(path, "TOKENS_UNREADABLE", base::system_message(errno));
    if (count == 0) break;
    got += static_cast<std::size_t>(count);
  }
  text.resize(got);
  return text;
}

TokenEntry entry_of(const nlohmann::json& json) {
  TokenEntry entry;
  json.at("name").get_to(entry.name);
  check_identity_name(entry.name, "name");
  entry.role = parse_role(json.at("role").get<std::string>(), "role");
  json.at("created").get_to(entry.created);
  json.at("expires").get_to(entry.expires);
  json.at("id").get_to(entry.id);
  json.at("salt").get_to(entry.salt);
  json.at("hash").get_to(entry.hash);
  check(is_hex(entry.id, 16) && is_hex(entry.salt, 32) && is_hex(entry.hash, 64),
        "id, salt and hash are not 16, 32 and 64 hexadecimal digits");
  return entry;
}

/// The parser's own words show what it has read, which is not for a log.
nlohmann::json json_of(const std::string& text) {
  try {
    return base::parse_strict_json(text, {.depth = 4, .values = 100'000});
  } catch (const Error&) {
    throw InvalidArgument("it is no JSON");
  }
}

std::vector<TokenEntry> entries_of(const std::string& text) {
  const nlohmann::json json = json_of(text);
  check(json.is_object() && json.value("version", 0) == kVersion && json.contains("tokens") &&
            json["tokens"].is_array(),
        "expected {{\"version\": {}, \"tokens\": [...]}}", kVersion);
  check(json["tokens"].size() <= kMostAccessTokens, "it has {} tokens, at most {} are taken",
        json["tokens"].size(), kMostAccessTokens);
  std::vector<TokenEntry> entries;
  std::set<std::string> names;
  for (const nlohmann::json& item : json["tokens"]) {
    entries.push_back(entry_of(item));
    check(names.insert(entries.back().name).second, "two tokens are called {}",
          entries.back().name);
  }
  return entries;
}

}  // namespace

std::vector<TokenEntry> read_token_file(const fs::path& path) {
  const std::optional<std::string> text = private_text(path);
  if (!text) return {};
  try {
    return entries_of(*text);
  } catch (const Error& error) {
    refuse(
        path, "TOKENS_DAMAGED",
        fmt::format("it is damaged or half written ({}); meshloom token makes it", error.what()));
  } catch (const nlohmann::json::exception&) {
    refuse(
        path, "TOKENS_DAMAGED",
        "it is damaged: a token lacks a field, or one has a wrong type; meshloom token makes it");
  }
}

void write_token_file(const fs::path& path, const std::vector<TokenEntry>& tokens) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const TokenEntry& entry : tokens)
    list.push_back({{"name", entry.name},
                    {"role", role_name(entry.role)},
                    {"created", entry.created},
                    {"expires", entry.expires},
                    {"id", entry.id},
                    {"salt", entry.salt},
                    {"hash", entry.hash}});
  const nlohmann::ordered_json file = {{"version", kVersion}, {"tokens", list}};
  base::replace_file(path, file.dump(1) + "\n", 0600);
}

}  // namespace meshloom::control
