// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/chat_template_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <vector>

#include "daemon/base/input_file.h"
#include "daemon/base/utf8.h"
#include "daemon/text/json_part.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "chat_template.jinja";
constexpr const char* kOthers = "additional_chat_templates";
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kDefault = "default";
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostConfigBytes = std::uint64_t{128} << 20;
constexpr std::size_t kMostTemplates = 64;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string checked(std::string text, const std::string& origin) {
  if (text.size() > kMostBytes)
    throw InvalidArgument(fmt::format("{}: the chat template has {} bytes, more than {}", origin,
                                      text.size(), kMostBytes),
                          "FILE_TOO_LARGE", {{"path", origin}});
  if (!base::is_utf8(text))
    throw InvalidArgument(fmt::format("{}: the chat template is not UTF-8", origin),
                          "INVALID_ARGUMENT", {{"path", origin}});
  return text;
}

using Templates = std::map<std::string, ChatTemplateSource>;

/// Those that have files of their own, of which there are only as many as somebody asks for.
Templates in_files(const fs::path& folder, const std::string& name) {
  Templates found;
  if (is_there(folder / kFile)) found[kDefault] = read_chat_template(folder / kFile);
  const fs::path other = folder / kOthers / (name + ".jinja");
  const bool is_name = name.find('/') == std::string::npos && name != kDefault;
  if (is_name && is_there(other)) found[name] = read_chat_template(other);
  return found;
}

Templates in_config(const fs::path& folder, const StopCheck& stop) {
  if (!is_there(folder / kConfig)) return {};
  const std::string path = (folder / kConfig).string();
  const nlohmann::json json =
      parse_json(base::InputFile(folder / kConfig).read_text(kMostConfigBytes), path, stop);
  const JsonPart config(json, path);
  if (!json.is_object() || !config.has("chat_template")) return {};
  Templates found;
  const auto add = [&](const std::string& name, const JsonPart& text) {
    found[name] = {checked(text.text(), text.path()), kConfig};
  };
  if (json["chat_template"].is_array())
    for (const JsonPart& item : config.elements("chat_template", kMostTemplates))
      add(item.text("name"), item.at("template"));
  else
    add(kDefault, config.at("chat_template"));
  return found;
}

}  // namespace

ChatTemplateSource read_chat_template(const fs::path& file) {
  return {checked(base::InputFile(file).read_text(kMostBytes), file.string()),
          file.filename().string()};
}

std::optional<ChatTemplateSource> find_chat_template(const fs::path& folder,
                                                     const std::string& name,
                                                     const StopCheck& stop) {
  Templates found = in_files(folder, name);
  if (found.empty()) found = in_config(folder, stop);
  if (found.empty()) return std::nullopt;
  if (const auto at = found.find(name); at != found.end()) return at->second;
  std::vector<std::string> names;
  for (const auto& [known, source] : found) names.push_back(known);
  throw InvalidArgument(
      fmt::format("{} has no chat template of the name \"{}\", but {}", folder.string(),
                  base::printable_text(name, 80, false), fmt::join(names, ", ")),
      "NO_CHAT_TEMPLATE", {{"path", folder.string()}});
}

}  // namespace meshloom::text
