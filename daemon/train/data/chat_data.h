// SPDX-License-Identifier: Apache-2.0
// Conversations as training data: which lines hold them, what renders them, and what of a config
// decides about their tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "daemon/text/chat_reading.h"
#include "daemon/text/chat_template_source.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/data/sound_lines.h"
#include "daemon/train/data/text_data.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Fills in what a config leaves open of conversations, before anything else of its data is looked
/// at: data.chat with its kind and loss where the first line of .jsonl is one and data.field is not
/// given, and document_mask and reset_positions, also for files of tokens of conversations. Nothing
/// for other data. `field` is the path of config.data. Throws InvalidArgument with the field for
/// data.chat of other files, beside fields of text, or where the first line is of no
/// kind or there is none (NO_CONVERSATION), as text::json_of_line for a first line that is no JSON,
/// and what opening the files throws.
void resolve_chat(v1::DataConfig& data, const RunFiles& files, const std::string& field,
                  base::Disk& disk = base::own_disk());

/// Returns the template that data.chat.template names: a file below data_dir, if it ends in .jinja,
/// else the name of a template of the tokenizer's folder, which is empty for bytes; "default" where
/// it says nothing. Nothing for "none", and where it says nothing and the folder has no template.
/// Throws with the field, as find_chat_template and read_chat_template and InvalidArgument for a
/// name that is not there.
std::optional<text::ChatTemplateSource> find_chat_source(const v1::ChatConfig& chat,
                                                         const std::filesystem::path& folder,
                                                         const std::filesystem::path& data_dir,
                                                         const std::string& field);

/// Returns the time that a template is told when it asks for it: seconds of UTC since 1970.
std::int64_t seconds_now();

/// The setup makes texts of the lines of a config with data.chat.
struct ChatSetup {
  text::ChatReading reading;
  /// This text tells apart everything that decides about the texts.
  std::string identity;
  std::string origin;       ///< ChatData.template
  bool tells_time = false;  ///< the template asks for it
};
/// Makes the setup. `folder` is that of the tokenizer, empty for bytes. Throws with the field
/// data.chat.template: InvalidArgument (NO_CHAT_TEMPLATE) for messages without one, and as
/// find_chat_source and text::ChatTemplate.
ChatSetup chat_setup(const v1::DataConfig& data, const text::FolderTokenizer& tokenizer,
                     const std::filesystem::path& folder, const std::filesystem::path& data_dir,
                     const std::string& field);

/// Tells whether a config has data.chat, and a template for it.
bool renders_chat(const v1::DataConfig& data, const std::filesystem::path& folder,
                  const std::filesystem::path& data_dir);

/// Fills in and checks which tokens stand around conversations, and data.chat.time where the
/// template tells it.
void resolve_chat_tokens(v1::DataConfig& data, const text::FolderTokenizer& tokenizer,
                         const ChatSetup& setup, bool is_bytes, const std::string& field);

/// Renders the first lines of a file, which are a few KiB, until `until` at most. Throws as
/// text::chat_text_of_line and text::for_each_chat_line.
void check_first_chat_lines(const text::DocumentFile& file, const text::ChatReading& reading,
                            std::chrono::steady_clock::time_point until);

/// Renders, as check_first_chat_lines does, all lines of all files of a resolved config, until
/// `until` at most, but for files that are known to be sound; adds those that it found so. Nothing
/// where it has no chat.
void check_chat_lines(const v1::RunConfig& resolved, const std::filesystem::path& folder,
                      const std::filesystem::path& data_dir,
                      std::chrono::steady_clock::time_point until, SoundLines& sound);

}  // namespace meshloom::train
