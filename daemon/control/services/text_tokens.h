// SPDX-License-Identifier: Apache-2.0
// The tokens of a text, and the text of tokens, by the tokenizer of a model.
#pragma once

#include "daemon/control/jobs/model_folders.h"
#include "daemon/control/jobs/tokenization.h"
#include "daemon/control/services/call_host.h"
#include "v1/data_service.pb.h"

namespace meshloom::control {

/// Throws with the field: TOKENIZER_NEEDED for a model without text, ResourceExhausted
/// (TEXT_TOO_LONG) above 1 MiB, what ModelFolders, Tokenization and the tokenizer throw, and what
/// `go_on` throws.
v1::EncodeTextResponse encode_text(const v1::EncodeTextRequest& request, ModelFolders& folders,
                                   Tokenization& tokenization, const CallHost::GoOn& go_on);
/// The same for more tokens, or more text of them, than an answer holds.
v1::DecodeTokensResponse decode_tokens(const v1::DecodeTokensRequest& request,
                                       ModelFolders& folders, Tokenization& tokenization,
                                       const CallHost::GoOn& go_on);

}  // namespace meshloom::control
