// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/chat_data.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "daemon/base/enum_names.h"
#include "daemon/base/field_error.h"
#include "daemon/text/document_files.h"
#include "daemon/train/files/paths.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kPlain = "none";
constexpr const char* kFileEnding = ".jinja";
/// So many bytes of each file's lines are rendered before a job is taken.
constexpr std::uint64_t kFirstBytes = std::uint64_t{64} << 10;
constexpr std::size_t kDeepestLine = 64;

v1::LineKind kind_in_config(text::LineKind kind) {
  switch (kind) {
    case text::LineKind::kMessages: return v1::LINE_KIND_MESSAGES;
    case text::LineKind::kCompletion: return v1::LINE_KIND_COMPLETION;
    case text::LineKind::kInstruction: return v1::LINE_KIND_INSTRUCTION;
  }
  return v1::LINE_KIND_UNSPECIFIED;
}

text::LineKind kind_of_config(v1::LineKind kind) {
  if (kind == v1::LINE_KIND_COMPLETION) return text::LineKind::kCompletion;
  return kind == v1::LINE_KIND_INSTRUCTION ? text::LineKind::kInstruction
                                           : text::LineKind::kMessages;
}

/// The first line that is not blank, of the first file that has one.
struct FirstLine {
  nlohmann::json json = nlohmann::json::value_t::discarded;
  std::string place;
};

/// It is discarded where there is none or it is no JSON, which is refused where it has to be a
/// conversation.
FirstLine first_line(const DataFiles& files, const v1::DataConfig& data) {
  FirstLine first;
  for (const text::DocumentFile& file : documents_of(files, data.format())) {
    if (file.format != text::DocumentFormat::kJsonLines) continue;
    text::for_each_json_line(file, [&](const std::string& line, std::int64_t number) {
      const text::LinePlace place{file.path, number};
      first.place = place.text();
      try {
        first.json = text::json_of_line(line, place, kDeepestLine).json;
      } catch (const InvalidArgument&) {
        if (data.has_chat()) throw;
      }
      return false;
    });
    if (!first.place.empty()) return first;
  }
  if (data.has_chat())
    throw InvalidArgument(fmt::format("there is no line in {}", data.path()), "NO_CONVERSATION");
  return first;
}

bool has_text(const nlohmann::json& line) {
  return line.is_object() && line.contains("text") && line["text"].is_string();
}

/// What is about text, and about documents that a token ends.
void refuse_beside_chat(const v1::DataConfig& data, const std::string& field) {
  const auto refuse = [&](const char* name, const char* why) {
    base::refuse_field(fmt::format("{}.{}", field, name), "is not for chat: {}", why);
  };
  if (!data.field().empty()) refuse("field", "data.chat.kind says which keys a line has");
  if (data.skip_lines_without_text()) refuse("skip_lines_without_text", "every line counts");
  if (data.has_document_end()) refuse("document_end", "conversations are told apart without it");
  if (data.has_masked_lm()) refuse("masked_lm", "a masked language model answers nothing");
}

void check_values(const v1::ChatConfig& chat, const std::string& field) {
  if (!v1::LineKind_IsValid(chat.kind()))
    base::refuse_field(field + ".kind", "has the unknown value {}", static_cast<int>(chat.kind()));
  if (!v1::LossTokens_IsValid(chat.loss()))
    base::refuse_field(field + ".loss", "has the unknown value {}", static_cast<int>(chat.loss()));
}

/// Whether the lines of a config are conversations, whose kind is then filled in.
bool find_kind(v1::DataConfig& data, const RunFiles& files, const std::string& field) {
  const bool is_lines = files.training.format == TokenFormat::kJsonLines;
  if (data.has_chat()) {
    check_values(data.chat(), field + ".chat");
    if (!is_lines)
      base::refuse_field(field + ".chat", "is for .jsonl, {} is {}", data.path(),
                         token_format_name(files.training.format));
    if (data.chat().kind() != v1::LINE_KIND_UNSPECIFIED) return true;
  } else if (!is_lines || !data.field().empty()) {
    return false;
  }
  const FirstLine first =
      base::with_field(field + ".path", [&] { return first_line(files.training, data); });
  const auto kind = text::kind_of(first.json);
  if (!data.has_chat() && (!kind || has_text(first.json))) return false;
  if (!kind)
    throw InvalidArgument(
        fmt::format("{}.chat.kind: {}the line has {}, expected \"messages\", \"prompt\" and "
                    "\"completion\", or \"instruction\" and \"output\"",
                    field, first.place, text::keys_of_line(first.json)),
        "NO_CONVERSATION", {{"field", field + ".chat.kind"}});
  data.mutable_chat()->set_kind(kind_in_config(*kind));
  return true;
}

[[noreturn]] void refuse_without_template(const fs::path& folder, const std::string& field) {
  throw InvalidArgument(
      fmt::format(
          "{}: the tokenizer{} has no chat template (chat_template.jinja, or chat_template "
          "in tokenizer_config.json), without which messages are no text: give a file below "
          "--data-dir that ends in .jinja",
          field, folder.empty() ? "" : " of " + folder.filename().string()),
      "NO_CHAT_TEMPLATE", {{"field", field}});
}

/// Ends the rendering of a line at a time.
struct TimeIsOver {};
text::StopCheck stop_at(Clock::time_point until) {
  return [until] {
    if (Clock::now() >= until) throw TimeIsOver();
  };
}

void check_lines_of(const text::DocumentFile& file, const text::ChatReading& reading,
                    const text::StopCheck& stop,
                    const std::function<bool(std::uint64_t bytes)>& goes_on) {
  std::uint64_t seen = 0;
  text::for_each_chat_line(file, [&](const std::string& line, std::int64_t number) {
    text::chat_text_of_line(line, reading, {file.path, number}, stop);
    seen += line.size();
    return goes_on(seen);
  });
}

/// Of everything that decides about the texts: a template speaks of the tokens by their names.
std::string chat_identity(const v1::ChatConfig& chat, bool tells_time,
                          const std::optional<text::ChatTemplateSource>& source,
                          const text::NamedTokens& named) {
  std::string identity = fmt::format("\nchat {} {} {} {}\n{}", static_cast<int>(chat.kind()),
                                     static_cast<int>(chat.loss()), source.has_value(),
                                     tells_time ? chat.time() : 0, source ? source->text : "");
  if (!source) return identity;
  for (const auto& [name, token] : named)
    identity += fmt::format("\n{} {} {} {}", name.size(), name, token.size(), token);
  return identity;
}

}  // namespace

std::int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::optional<text::ChatTemplateSource> find_chat_source(const v1::ChatConfig& chat,
                                                         const fs::path& folder,
                                                         const fs::path& data_dir,
                                                         const std::string& field) {
  const std::string& name = chat.template_();
  if (name == kPlain) return std::nullopt;
  return base::with_field(field, [&]() -> std::optional<text::ChatTemplateSource> {
    if (name.ends_with(kFileEnding)) {
      auto source = text::read_chat_template(resolve_path(name, data_dir, field));
      source.origin = name;
      return source;
    }
    auto found = folder.empty() ? std::nullopt
                                : text::find_chat_template(folder, name.empty() ? "default" : name);
    if (!found && !name.empty())
      base::refuse_field(field,
                         "\"{}\" names none of several templates of the tokenizer's folder, "
                         "and no file ending in {}",
                         name, kFileEnding);
    return found;
  });
}

void resolve_chat(v1::DataConfig& data, const RunFiles& files, const std::string& field,
                  base::Disk& disk) {
  if (find_kind(data, files, field)) {
    refuse_beside_chat(data, field);
    v1::ChatConfig& chat = *data.mutable_chat();
    if (chat.loss() == v1::LOSS_TOKENS_UNSPECIFIED) chat.set_loss(v1::LOSS_TOKENS_ANSWERS);
  } else {
    const bool is_chat =
        files.training.format == TokenFormat::kLlmc && base::with_field(field + ".path", [&] {
          return TokenStream::open(files.training, disk).is_chat();
        });
    if (!is_chat) return;
  }
  if (!data.has_document_mask()) data.set_document_mask(true);
  if (!data.has_reset_positions()) data.set_reset_positions(data.document_mask());
}

ChatSetup chat_setup(const v1::DataConfig& data, const text::FolderTokenizer& tokenizer,
                     const fs::path& folder, const fs::path& data_dir, const std::string& field) {
  const v1::ChatConfig& chat = data.chat();
  const std::string template_field = field + ".chat.template";
  return base::with_field(template_field, [&] {
    ChatSetup setup;
    setup.reading.kind = kind_of_config(chat.kind());
    setup.reading.learns_all = chat.loss() == v1::LOSS_TOKENS_ALL;
    const auto source = find_chat_source(chat, folder, data_dir, template_field);
    if (!source && setup.reading.kind == text::LineKind::kMessages)
      refuse_without_template(folder, template_field);
    if (source) {
      setup.reading.renderer =
          std::make_shared<const text::ChatRenderer>(*source, tokenizer.named, chat.time());
      setup.origin = source->origin;
      setup.tells_time = source->text.find("strftime_now") != std::string::npos;
    }
    setup.identity = chat_identity(chat, setup.tells_time, source, tokenizer.named);
    return setup;
  });
}

bool renders_chat(const v1::DataConfig& data, const fs::path& folder, const fs::path& data_dir) {
  return data.has_chat() &&
         find_chat_source(data.chat(), folder, data_dir, "run.data.chat.template").has_value();
}

void resolve_chat_tokens(v1::DataConfig& data, const text::FolderTokenizer& tokenizer,
                         const ChatSetup& setup, bool is_bytes, const std::string& field) {
  v1::ChatConfig& chat = *data.mutable_chat();
  if (!setup.reading.renderer) {
    resolve_document_tokens(data, tokenizer, is_bytes, field);
    data.clear_document_end();  // that of a stream without conversations
    return;
  }
  const auto refuse = [&](const char* name) {
    base::refuse_field(fmt::format("{}.{}", field, name),
                       "is true, but the chat template spells out which tokens stand around a "
                       "conversation");
  };
  if (data.append_eos()) refuse("append_eos");
  if (data.add_special_tokens()) refuse("add_special_tokens");
  data.set_append_eos(false);
  data.set_add_special_tokens(false);
  if (setup.tells_time && !chat.has_time()) chat.set_time(seconds_now());
}

void check_first_chat_lines(const text::DocumentFile& file, const text::ChatReading& reading,
                            Clock::time_point until) {
  const text::StopCheck stop = stop_at(until);
  try {
    check_lines_of(file, reading, stop, [&](std::uint64_t bytes) {
      stop();
      return bytes < kFirstBytes;
    });
  } catch (const TimeIsOver&) {
    // The others are read by check_chat_lines, and when the job begins.
  }
}

void check_chat_lines(const v1::RunConfig& resolved, const fs::path& folder,
                      const fs::path& data_dir, Clock::time_point until, SoundLines& sound) {
  const v1::DataConfig& data = resolved.data();
  if (!data.has_chat() || Clock::now() >= until) return;
  const text::FolderTokenizer tokenizer =
      folder.empty() ? byte_tokenizer() : text::open_tokenizer(folder);
  const ChatSetup setup = chat_setup(data, tokenizer, folder, data_dir, "run.data");
  const text::StopCheck stop = stop_at(until);
  try {
    for_each_document_file(data, find_run_files(resolved, data_dir, "run.data"), "run.data",
                           [&](const text::DocumentFile& file) {
                             const std::string key = SoundLines::key(file, setup.identity);
                             if (sound.has(key)) return;
                             check_lines_of(file, setup.reading, stop, [&](std::uint64_t) {
                               stop();
                               return true;
                             });
                             sound.add(key);
                           });
  } catch (const TimeIsOver&) {
    // A line behind those is refused when the job begins.
  }
}

}  // namespace meshloom::train
