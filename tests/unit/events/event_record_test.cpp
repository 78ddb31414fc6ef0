// SPDX-License-Identifier: Apache-2.0
#include "daemon/events/event_record.h"

#include <gtest/gtest.h>

namespace meshloom::events {
namespace {

Event loss_of(std::int64_t step, float loss) {
  Event event;
  event.set_wall_time(1.5);
  event.set_step(step);
  Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag("train/loss");
  value.set_simple_value(loss);
  return event;
}

/// Written by TensorBoard's own EventFileWriter: Event(wall_time=1.0,
/// file_version="brain.Event:2").
TEST(EventRecord, BytesAreThoseOfTensorBoard) {
  Event event;
  event.set_wall_time(1.0);
  event.set_file_version("brain.Event:2");
  const std::string record = to_record(event);
  ASSERT_EQ(record.size(), 40u);
  const unsigned char expected[] = {0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xa3, 0x7f,
                                    0x4b, 0x22, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0,
                                    0x3f, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e, 0x2e, 0x45,
                                    0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, 0x86, 0xbf, 0x57, 0x7a};
  EXPECT_EQ(record, std::string(reinterpret_cast<const char*>(expected), sizeof expected));
}

TEST(EventRecord, AFileThatIsCutAnywhereIsReadUpToThere) {
  std::string file;
  std::vector<std::size_t> ends{0};
  for (int step = 0; step < 5; ++step) {
    file += to_record(loss_of(step, 0.5F * static_cast<float>(step)));
    ends.push_back(file.size());
  }
  for (std::size_t bytes = 0; bytes <= file.size(); ++bytes) {
    const EventsRead read = read_events(std::string_view(file).substr(0, bytes));
    std::size_t whole = 0;
    while (whole + 1 < ends.size() && ends[whole + 1] <= bytes) ++whole;
    ASSERT_EQ(read.events.size(), whole) << bytes;
    EXPECT_EQ(read.bytes, ends[whole]);
    for (std::size_t i = 0; i < whole; ++i) {
      EXPECT_EQ(read.events[i].step(), static_cast<std::int64_t>(i));
      EXPECT_EQ(read.events[i].summary().value(0).simple_value(), 0.5F * static_cast<float>(i));
    }
  }
}

TEST(EventRecord, AByteThatWasChangedEndsTheReading) {
  const std::string first = to_record(loss_of(1, 2.0F));
  const std::string file = first + to_record(loss_of(2, 3.0F));
  for (std::size_t at = first.size(); at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_EQ(read_events(damaged).events.size(), 1u) << at;
  }
}

}  // namespace
}  // namespace meshloom::events
