// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/names.h"

#include <gtest/gtest.h>

#include "daemon/control/net/grpc_server.h"
#include "daemon/control/net/secret.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/launch_card.h"
#include "daemon/control/stores/checkpoint_files.h"

namespace meshloom::control {
namespace {

TEST(Names, JobNamesThatCouldBePathsAreRefused) {
  EXPECT_EQ(parse_job_name("jobs/a-b_1"), "a-b_1");
  EXPECT_EQ(parse_job_name("x"), "x");
  EXPECT_EQ(parse_job_name(std::string(63, 'a')).size(), 63u);
  for (const std::string& bad :
       {std::string(), std::string("jobs/"), std::string(".."), std::string("a/b"),
        std::string("/etc"), std::string("A"), std::string("-a"), std::string("a b"),
        std::string("a%2e"), std::string("a\0b", 3), std::string("ü"), std::string(64, 'a'),
        std::string(4096, 'a'), std::string("jobs/jobs/a")})
    EXPECT_THROW(parse_job_name(bad), InvalidArgument) << bad;
}

TEST(Names, CheckpointNamesHoldTwoPlainNames) {
  const auto name = parse_checkpoint_name("checkpoints/job-1/step-20");
  EXPECT_EQ(name.job, "job-1");
  EXPECT_EQ(name.folder, "step-20");
  for (const char* bad :
       {"", "checkpoints/a", "checkpoints/a/", "checkpoints/a/..", "checkpoints/a/b/c",
        "checkpoints/../a", "checkpoints/a/.hidden", "/checkpoints/a/b", "jobs/a/b"})
    EXPECT_THROW(parse_checkpoint_name(bad), InvalidArgument) << bad;
  EXPECT_TRUE(is_export_name("hf"));
  for (const char* bad :
       {"", "checkpoints", "step-3", "metrics.jsonl", "a/b", "..", "resolved.yaml", "tensorboard",
        "job.log", "hf-step-3", "hf-step-x", "resolved.yaml.new"})
    EXPECT_FALSE(is_export_name(bad)) << bad;
}

TEST(Names, PageTokensAreOfOneList) {
  EXPECT_EQ(parse_page_token("jobs", ""), 0);
  EXPECT_EQ(parse_page_token("jobs", make_page_token("jobs", 12345)), 12345);
  EXPECT_THROW(parse_page_token("checkpoints of a", make_page_token("jobs", 1)), InvalidArgument);
  EXPECT_EQ(parse_place_token("jobs", ""), "");
  EXPECT_EQ(parse_place_token("jobs", make_place_token("jobs", "a/b")), "a/b");
  EXPECT_THROW(parse_place_token("all", make_place_token("jobs", "a/b")), InvalidArgument);
  for (const char* bad : {"a", "00000000.", "00000000.a/b", "a/b/c/d/e/f"})
    EXPECT_THROW(parse_place_token("jobs", bad), InvalidArgument) << bad;
  for (const char* bad : {"1", "1.", "-1.00000000", "1.00000000", "zz", "1.00000000 "})
    EXPECT_THROW(parse_page_token("jobs", bad), InvalidArgument) << bad;
  EXPECT_EQ(page_size_or_default(std::nullopt), 50);
  EXPECT_EQ(page_size_or_default(100'000, 500), 500);
  EXPECT_THROW(page_size_or_default(0), InvalidArgument);
  EXPECT_THROW(page_size_or_default(-1), InvalidArgument);
}

TEST(Status, ErrorsSurviveTheJourney) {
  const NumericError error("loss is nan at step 3", "NUMERIC_ERROR",
                           {{"step", "3"}, {"field", "run.optimizer.lr"}});
  const auto details = to_details(error);
  const Error back = to_error(details);
  EXPECT_EQ(back.kind(), ErrorKind::kNumeric);
  EXPECT_EQ(back.reason(), "NUMERIC_ERROR");
  EXPECT_STREQ(back.what(), error.what());
  EXPECT_EQ(back.metadata().at("step"), "3");
  const grpc::Status status = to_status(details);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  v1::RpcStatus wire;
  ASSERT_TRUE(wire.ParseFromString(status.error_details()));
  EXPECT_EQ(wire.code(), status.error_code());
  ASSERT_EQ(wire.details_size(), 2);
  EXPECT_EQ(wire.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
  EXPECT_EQ(wire.details(1).type_url(), "type.googleapis.com/google.rpc.BadRequest");
}

TEST(Status, AnythingThrownBecomesAStatus) {
  EXPECT_TRUE(guarded("Test", [] {}).ok());
  EXPECT_EQ(guarded("Test", [] { throw std::runtime_error("x"); }).error_code(),
            grpc::StatusCode::INTERNAL);
  EXPECT_EQ(guarded("Test", [] { throw 3; }).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(guarded("Test", [] { throw std::bad_alloc(); }).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto huge = guarded("Test", [] { throw InvalidArgument(std::string(1 << 20, '\xFF')); });
  EXPECT_LT(huge.error_message().size() + huge.error_details().size(), 8000u);
}

TEST(Secret, IsFreshAndComparedWhole) {
  const std::string secret = random_secret();
  EXPECT_EQ(secret.size(), 32u);
  EXPECT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(secret, random_secret());
  EXPECT_TRUE(same_secret(secret, secret));
  EXPECT_FALSE(same_secret("x" + secret.substr(1), secret));
  EXPECT_FALSE(same_secret(secret.substr(1) + "x", secret));
  EXPECT_FALSE(same_secret(secret.substr(1), secret));
  EXPECT_FALSE(same_secret("", secret));
}

TEST(LaunchCard, TravelsAsBytes) {
  const auto card = launch_card_from(to_bytes({"127.0.0.1:5", "127.0.0.1:6", random_secret(), ""}));
  EXPECT_EQ(card.address, "127.0.0.1:5");
  EXPECT_EQ(card.beats, "127.0.0.1:6");
  EXPECT_EQ(card.secret.size(), 32u);
  EXPECT_EQ(launch_card_from(to_bytes({"", "", "", "why"})).failure, "why");
}

}  // namespace
}  // namespace meshloom::control
