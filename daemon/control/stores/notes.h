// SPDX-License-Identifier: Apache-2.0
// Notes of jobs and runs: things to know, of which only so many are kept.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstddef>
#include <string>

namespace meshloom::control {

inline constexpr int kMostNotes = 100;                    ///< of a job or a run
inline constexpr std::size_t kLongestNote = 8 << 10;      ///< what is behind is cut off
inline constexpr std::size_t kMostNoteBytes = 128 << 10;  ///< of all together

using Notes = google::protobuf::RepeatedPtrField<std::string>;

/// Of a job: those that came first stay; the others are in its log. False if there is no room.
bool keep_first_note(const std::string& note, Notes* notes);
/// Of a run: the oldest go.
void keep_newest_note(const std::string& note, Notes* notes);

}  // namespace meshloom::control
