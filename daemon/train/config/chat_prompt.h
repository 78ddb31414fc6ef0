// SPDX-License-Identifier: Apache-2.0
// Conversations as prompts: by the chat template of the model that answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "daemon/text/chat_template_source.h"
#include "daemon/text/special_tokens.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/config/sampling_params.h"
#include "daemon/train/files/carried_files.h"
#include "v1/chat.pb.h"

namespace meshloom::train {

/// A model's conversations are rendered with these.
struct ChatOfModel {
  text::ChatTemplateSource source;
  text::NamedTokens named;
};

/// Adds the chat template of a model's folder, if it has one; one that cannot be read is no error
/// before somebody gives a conversation.
void add_chat(PromptLimits& limits, const std::filesystem::path& folder,
              const text::NamedTokens& named, const text::StopCheck& stop = {});
/// Puts a job's data.chat.template, where it has one, in the place of the model's; "none" leaves no
/// template. `tokenizer` is the folder of the job's tokenizer. Throws as find_chat_source.
void set_chat_of_job(PromptLimits& limits, const v1::DataConfig& data,
                     const std::filesystem::path& tokenizer, const std::filesystem::path& data_dir);
/// Does for a job that was submitted what set_chat_of_job does: a template that is gone since is no
/// error before somebody gives a conversation.
void add_chat_of_job(PromptLimits& limits, const v1::DataConfig& data,
                     const std::filesystem::path& tokenizer, const std::filesystem::path& data_dir);

/// A job's own template goes along with its model, whose answers it then renders elsewhere, too.
/// "none" leaves the files of the model as they are. Throws as find_chat_source.
void carry_chat_of_job(const v1::DataConfig& data, const std::filesystem::path& tokenizer,
                       const std::filesystem::path& data_dir, std::vector<CarriedFile>& carried);

/// ChatPrompt is the beginning of an answer.
struct ChatPrompt {
  std::vector<std::int64_t> tokens;
  std::string text;  ///< that they are of
  /// Special tokens that the template puts behind an answer, beside the model's own ends.
  std::vector<std::int64_t> turn_ends;
};

/// Throws with the field, `where` and "chat": FailedPrecondition (NO_CHAT_TEMPLATE) for a model
/// without a template, InvalidArgument (BAD_CONVERSATION) for no messages or one without a role,
/// what the template refuses (text::ChatTemplate::render), and as text_prompt_tokens.
ChatPrompt chat_prompt(const v1::Conversation& chat, const PromptLimits& limits,
                       const std::string& where, const text::StopCheck& stop = {});
/// Makes the prompt of what a user says first, and throws as chat_prompt does.
ChatPrompt user_prompt(const std::string& text, const PromptLimits& limits,
                       const std::string& field, const text::StopCheck& stop = {});

/// Returns what users say in the samples of a job, which are conversations, with the field of each.
std::vector<std::pair<std::string, std::string>> user_prompts(const v1::SampleConfig& sample);

}  // namespace meshloom::train
