// SPDX-License-Identifier: Apache-2.0
// `meshloom data` shows conversations as these functions write them.
#pragma once

#include <cstddef>
#include <string>

#include "v1/data_service.pb.h"

namespace meshloom::cli {

/// Returns "1,204 conversations, messages by chat_template.jinja; 30,112 tokens count; ..."
std::string chat_text(const v1::ChatData& chat);

/// Returns the parts of a sample, with at most `most` bytes of their text: what counts is green, or
/// without `colour` stands between [[ and ]].
std::string sample_parts_text(const v1::DataInspection& seen, std::size_t most, bool colour);

}  // namespace meshloom::cli
