// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/notes.h"

#include <gtest/gtest.h>

#include "daemon/base/utf8.h"

namespace meshloom::control {
namespace {

std::size_t bytes_of_all(const Notes& notes) {
  std::size_t bytes = 0;
  for (const std::string& note : notes) bytes += note.size();
  return bytes;
}

TEST(Notes, AJobKeepsTheFirstAndARunTheNewest) {
  Notes first, newest;
  for (int i = 0; i < kMostNotes + 20; ++i) {
    EXPECT_EQ(keep_first_note(std::to_string(i), &first), i < kMostNotes);
    keep_newest_note(std::to_string(i), &newest);
  }
  ASSERT_EQ(first.size(), kMostNotes);
  ASSERT_EQ(newest.size(), kMostNotes);
  EXPECT_EQ(first.Get(0), "0");
  EXPECT_EQ(newest.Get(0), "20");
  EXPECT_EQ(*newest.rbegin(), std::to_string(kMostNotes + 19));
}

TEST(Notes, TheirBytesAreLimited) {
  Notes first, newest;
  const std::string large(kLongestNote + 100, 'n');
  for (int i = 0; i < 50; ++i) {
    keep_first_note(large, &first);
    keep_newest_note(large, &newest);
  }
  EXPECT_EQ(first.Get(0).size(), kLongestNote);
  EXPECT_LE(bytes_of_all(first), kMostNoteBytes);
  EXPECT_LE(bytes_of_all(newest), kMostNoteBytes);
  EXPECT_EQ(first.size(), static_cast<int>(kMostNoteBytes / kLongestNote));
  EXPECT_EQ(newest.size(), first.size());
  EXPECT_FALSE(keep_first_note("one more", &first));
  keep_newest_note("one more", &newest);
  EXPECT_EQ(*newest.rbegin(), "one more");
}

TEST(Notes, AreTextWhateverTheyWere) {
  Notes notes;
  std::string cut(kLongestNote - 1, 'n');
  cut += "\xc3\xa9 is cut off whole";
  EXPECT_TRUE(keep_first_note(cut, &notes));
  EXPECT_TRUE(keep_first_note("a name \xff\x1b[2J", &notes));
  EXPECT_EQ(notes.Get(0).size(), kLongestNote - 1);
  EXPECT_TRUE(base::is_utf8(notes.Get(0)));
  EXPECT_EQ(notes.Get(1), "a name \\xff\\x1b[2J");
}

}  // namespace
}  // namespace meshloom::control
