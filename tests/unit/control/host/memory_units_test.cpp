// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/memory_units.h"

#include <gtest/gtest.h>

#include <optional>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

TEST(MemoryUnits, CountTheirBytesUntilTheyGoBack) {
  MemoryCount count;
  MemoryUnits first = count.take({{"host", 5}, {"device", 7}});
  EXPECT_TRUE(first);
  MemoryUnits second = count.take({{"host", 3}});
  EXPECT_EQ(count.taken("host"), 8);
  EXPECT_EQ(count.taken("device"), 7);
  EXPECT_EQ(count.taken("nothing"), 0);
  first.release();
  EXPECT_FALSE(first);
  first.release();
  EXPECT_EQ(count.taken("host"), 3);
  EXPECT_EQ(count.taken("device"), 0);
  second = MemoryUnits();
  EXPECT_EQ(count.taken("host"), 0);
}

TEST(MemoryUnits, OfWhatIsRefusedTakeNothing) {
  MemoryCount count;
  const MemoryUnits taken = count.take({{"run", 4}, {"all", 4}});
  const auto check = [](const MemoryCount::Share& share, std::int64_t others) {
    if (share.account == "all" && others + share.bytes > 6) throw ResourceExhausted("full");
  };
  EXPECT_THROW(count.take({{"run", 3}, {"all", 3}}, check), ResourceExhausted);
  EXPECT_EQ(count.taken("run"), 4);
  EXPECT_EQ(count.taken("all"), 4);
  const MemoryUnits fits = count.take({{"run", 2}, {"all", 2}}, check);
  EXPECT_EQ(count.taken("all"), 6);
}

TEST(MemoryUnits, MayOutliveTheCount) {
  std::optional<MemoryCount> count(std::in_place);
  MemoryUnits units = count->take({{"host", 1}});
  count.reset();
  units.release();
  EXPECT_FALSE(units);
}

}  // namespace
}  // namespace meshloom::control
