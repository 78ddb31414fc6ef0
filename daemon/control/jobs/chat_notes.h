// SPDX-License-Identifier: Apache-2.0
// What a job tells of its conversations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/text/document_encoder.h"
#include "v1/config.pb.h"
#include "v1/job.pb.h"

namespace meshloom::control {

/// Of text that was tokenized as data.chat of a resolved config says.
v1::ChatData chat_data(const v1::ChatConfig& chat, const std::string& origin,
                       const text::TokenizeSummary& summary);

/// What is worth a note: answers that do not count, and what seq_len has cut and left out. `field`
/// is that of the data.
std::vector<std::string> chat_notes(const v1::ChatData& chat, std::int64_t seq_len,
                                    const std::string& field);

}  // namespace meshloom::control
