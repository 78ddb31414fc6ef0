// SPDX-License-Identifier: Apache-2.0
// Where the chat template of a tokenizer's folder stands.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "daemon/text/budget.h"

namespace meshloom::text {

struct ChatTemplateSource {
  std::string text;
  std::string origin;  ///< the file that it is from, without its folder
};

/// Returns the template of a folder by its name, as transformers 5 takes them: chat_template.jinja
/// is "default" and additional_chat_templates/NAME.jinja another one; where there are none of
/// these, `chat_template` of tokenizer_config.json, which is the text of "default" or a list of
/// {name, template}. Nothing if the folder has no template at all. Throws InvalidArgument
/// (NO_CHAT_TEMPLATE) with the names that there are where it has others, and as read_chat_template.
std::optional<ChatTemplateSource> find_chat_template(const std::filesystem::path& folder,
                                                     const std::string& name = "default",
                                                     const StopCheck& stop = {});

/// Reads a file of its own. Throws as base::InputFile, InvalidArgument (FILE_TOO_LARGE) for one of
/// more than 1 MiB and for one that is no UTF-8.
ChatTemplateSource read_chat_template(const std::filesystem::path& file);

}  // namespace meshloom::text
