// SPDX-License-Identifier: Apache-2.0
// What a record of the journal is about, in words.
#pragma once

#include <string>

#include "v1/journal.pb.h"

namespace meshloom::control {

/// "runs/a", "the note of jobs/a", ... Two records of one name are of the same thing, and the later
/// one says all of it that is to be known.
std::string record_name(const v1::JournalRecord& record);

/// The job, run, upload, model or plan that the record deletes ("jobs/a"); empty: none.
std::string deleted_resource(const v1::JournalRecord& record);

}  // namespace meshloom::control
