// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/request_log.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "kernels/base/error.h"
#include "v1/job_service.pb.h"

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

RequestKey cancel_key(const std::string& client, const std::string& job) {
  v1::CancelJobRequest request;
  request.set_request_id("id-1");
  request.set_name(job);
  return make_request_key("CancelJob", request, client);
}

std::map<std::string, std::string> refusal_metadata(const RequestLog& log, const RequestKey& key) {
  try {
    log.find(key);
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.reason(), "REQUEST_ID_REUSED");
    return error.metadata();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(RequestLog, AnIdIsItsClientsOwn) {
  RequestLog log;
  const RequestKey first = cancel_key("one", "a");
  log.remember(*RequestLog::record_of(first, "jobs/a"));
  ASSERT_NE(log.find(first), nullptr);
  EXPECT_EQ(log.find(cancel_key("two", "a")), nullptr);
  EXPECT_EQ(log.find(cancel_key("two", "b")), nullptr);
  EXPECT_EQ(log.find(cancel_key("address:127.0.0.1", "a")), nullptr);
  const auto metadata = refusal_metadata(log, cancel_key("one", "b"));
  EXPECT_EQ(metadata.at("request_id"), "id-1");
  EXPECT_EQ(metadata.at("resource"), "jobs/a");
}

TEST(RequestLog, WhatEarlierDaemonsHaveNotedIsFoundWhoeverRepeatsIt) {
  RequestLog log;
  v1::RequestRecord earlier;
  earlier.set_request_id("id-1");
  earlier.set_digest(cancel_key("one", "a").digest);
  earlier.set_resource("jobs/a");
  log.remember(earlier);
  ASSERT_NE(log.find(cancel_key("one", "a")), nullptr);
  EXPECT_EQ(log.find(cancel_key("two", "a"))->resource(), "jobs/a");
  // Whose it was is not known, so that it is not told.
  const auto metadata = refusal_metadata(log, cancel_key("two", "b"));
  EXPECT_EQ(metadata.at("request_id"), "id-1");
  EXPECT_EQ(metadata.count("resource"), 0u);
}

}  // namespace
}  // namespace meshloom::control
