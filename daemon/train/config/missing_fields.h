// SPDX-License-Identifier: Apache-2.0
// What a job's config lacks, told at once.
#pragma once

#include "daemon/train/data/text_data.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Throws InvalidArgument (FIELDS_MISSING) naming all fields that a job needs and that neither its
/// config nor its model's folder gives, with the first of them as the field, where they are two or
/// more: whoever checks a single one says more of it. Takes what it cannot look at as given.
void check_missing_fields(const v1::RunConfig& config, const TokenizerSource& source);

}  // namespace meshloom::train
