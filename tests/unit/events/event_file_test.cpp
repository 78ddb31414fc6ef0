// SPDX-License-Identifier: Apache-2.0
#include "daemon/events/event_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "daemon/events/event_record.h"
#include "tests/support/full_disk.h"
#include "tests/support/temp_folder.h"

namespace meshloom::events {
namespace {

Event at_step(std::int64_t step) {
  Event event;
  event.set_step(step);
  event.mutable_summary()->add_value()->set_tag("a");
  return event;
}

EventsRead read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EventsRead read = read_events(bytes);
  EXPECT_EQ(read.bytes, bytes.size()) << "not whole";
  return read;
}

TEST(EventFile, BeginsWithItsVersion) {
  const test::TempFolder folder;
  EXPECT_FALSE(has_event_files(folder / "new"));
  EventFile file(folder / "new", "x", {at_step(1)});
  ASSERT_TRUE(file.append({at_step(2), at_step(3)}));
  EXPECT_TRUE(has_event_files(folder / "new"));
  const EventsRead read = read_file(file.path());
  ASSERT_EQ(read.events.size(), 4u);
  EXPECT_EQ(read.events[0].file_version(), "brain.Event:2");
  for (int i = 1; i < 4; ++i) EXPECT_EQ(read.events[static_cast<std::size_t>(i)].step(), i);
}

TEST(EventFile, NamesGrowAlsoWhereTheClockGoesBack) {
  const test::TempFolder folder;
  // A clock was far ahead.
  std::ofstream(folder / "events.out.tfevents.4000000000.x") << "";
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) {
    EventFile file(folder.path(), "x", {});
    ASSERT_TRUE(file.append({}));
    names.push_back(file.path().filename().string());
  }
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(names[2], "events.out.tfevents.4000000003.x");
}

TEST(EventFile, AFullDiskCostsWholeEvents) {
  const test::TempFolder folder;
  EventFile file(folder.path(), "x", {});
  ASSERT_TRUE(file.append({at_step(1)}));
  const auto size = std::filesystem::file_size(file.path());
  {
    const test::FileSizeLimit full(size + 5);
    EXPECT_FALSE(file.append({at_step(2)}));
    EXPECT_EQ(file.error(), EFBIG);
    EXPECT_EQ(std::filesystem::file_size(file.path()), size);
  }
  EXPECT_TRUE(file.append({at_step(3)}));
  EXPECT_EQ(read_file(file.path()).events.size(), 3u);
}

TEST(EventFile, IsMadeOnceTheDiskTakesIt) {
  const test::TempFolder folder;
  EventFile file(folder.path(), "x", {at_step(1)});
  {
    const test::FileSizeLimit full(5);
    EXPECT_FALSE(file.append({at_step(2)}));
  }
  EXPECT_FALSE(has_event_files(folder.path()));
  ASSERT_TRUE(file.append({at_step(3)}));
  EXPECT_EQ(read_file(file.path()).events.size(), 3u);
}

}  // namespace
}  // namespace meshloom::events
