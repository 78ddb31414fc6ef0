// SPDX-License-Identifier: Apache-2.0
// The identity of training data: enough of them to notice that they are other ones.
#pragma once

#include <string>

#include "daemon/train/files/token_stream.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Reads the first and last MiB of every file, less of each if there are very many.
v1::DataIdentity identify(const TokenStream& stream);
/// Identifies, as identify() does a stream, text whose tokens are made by `tokenizer`
/// (DataIdentity.tokenizer); `tokens` stays 0.
v1::DataIdentity identify_text(const DataFiles& text, const std::string& tokenizer,
                               base::Disk& disk = base::own_disk());

/// Returns what was and what is, if they differ; empty if they are the same. Numbers of tokens are
/// compared if both are known.
std::string difference(const v1::DataIdentity& before, const v1::DataIdentity& now);

/// Returns an empty text if they are the same; a note if they differ and may. Else throws
/// FailedPrecondition (DATA_CHANGED) that names the differences. `whose` says where `before` comes
/// from: "checkpoint step-20".
std::string check_same_data(const v1::DataIdentity& before, const v1::DataIdentity& now,
                            bool allow_changed, const std::string& whose);

/// Returns the identity as a checkpoint's manifest holds it.
std::string to_json_text(const v1::DataIdentity& identity);
/// Throws DataLoss for text that is none.
v1::DataIdentity data_identity_from_json(const std::string& text);

}  // namespace meshloom::train
