// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/request_log.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

v1::RequestRecord of(const std::string& resource, int number) {
  v1::RequestRecord record;
  record.set_request_id(fmt::format("{}-{}", resource, number));
  record.set_resource(resource);
  return record;
}

std::vector<std::string> ids_of(const RequestLog& log) {
  std::vector<std::string> ids;
  log.visit([&](const v1::RequestRecord& record) { ids.push_back(record.request_id()); });
  return ids;
}

TEST(RequestLog, OfALongLivedResourceTheFirstAndTheNewestAreKnown) {
  RequestLog log;
  log.remember(of("jobs/short", 1));
  for (int i = 1; i <= 12'000; ++i) log.remember(of("jobs/long", i));
  EXPECT_NE(log.find({"jobs/long-1", ""}), nullptr) << "a repeat must not make a second job";
  EXPECT_EQ(log.find({"jobs/long-2", ""}), nullptr);
  EXPECT_EQ(log.find({"jobs/long-2001", ""}), nullptr);
  EXPECT_NE(log.find({"jobs/long-2002", ""}), nullptr);
  EXPECT_NE(log.find({"jobs/long-12000", ""}), nullptr);
  EXPECT_NE(log.find({"jobs/short-1", ""}), nullptr);
  EXPECT_EQ(ids_of(log).size(), 10'001u);
  RequestLog replayed;
  log.visit([&](const v1::RequestRecord& record) { replayed.remember(record); });
  EXPECT_EQ(ids_of(replayed), ids_of(log)) << "and in the same order";
  log.forget_resource("jobs/long");
  EXPECT_TRUE(log.find({"jobs/long-12000", ""})->gone());
  EXPECT_FALSE(log.find({"jobs/short-1", ""})->gone());
}

}  // namespace
}  // namespace meshloom::control
