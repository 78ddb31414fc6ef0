// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/notes.h"

#include "daemon/base/utf8.h"

namespace meshloom::control {
namespace {

std::size_t note_bytes(const Notes& notes) {
  std::size_t bytes = 0;
  for (const std::string& note : notes) bytes += note.size();
  return bytes;
}

std::string cut_note(const std::string& note) { return base::printable_text(note, kLongestNote); }

}  // namespace

bool keep_first_note(const std::string& note, Notes* notes) {
  std::string cut = cut_note(note);
  if (notes->size() >= kMostNotes || note_bytes(*notes) + cut.size() > kMostNoteBytes) return false;
  *notes->Add() = std::move(cut);
  return true;
}

void keep_newest_note(const std::string& note, Notes* notes) {
  *notes->Add() = cut_note(note);
  int gone = 0;
  for (std::size_t bytes = note_bytes(*notes);
       notes->size() - gone > kMostNotes || bytes > kMostNoteBytes; ++gone)
    bytes -= notes->Get(gone).size();
  notes->DeleteSubrange(0, gone);
}

}  // namespace meshloom::control
