// SPDX-License-Identifier: Apache-2.0
// Verbs whose data come as transient uploads: the memory that they may take.
#include <gtest/gtest.h>

#include "daemon/base/crc32c.h"
#include "daemon/control/stores/names.h"
#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class RunUploadsTest : public RunServiceTest {
 protected:
  TransientUploads& uploads() { return daemon_->uploads(); }

  /// A batch of so many tokens 1, as a complete upload of the run.
  std::string upload(const Client& client, int tokens) {
    v1::LossBatch batch;
    batch.set_loss("cross_entropy");
    v1::Datum& datum = *batch.add_data();
    for (int i = 0; i < tokens; ++i) {
      datum.add_tokens(1);
      datum.add_targets(0);
    }
    const std::string bytes = batch.SerializeAsString();
    v1::CreateUploadRequest request;
    request.set_kind(v1::UPLOAD_KIND_TRANSIENT);
    request.set_run(client.run_.name());
    request.set_size_bytes(static_cast<std::int64_t>(bytes.size()));
    const std::string name = uploads().create("tester", request, {}).name();
    const std::string id = parse_upload_name(name);
    uploads()
        .open_writer("tester", id)
        ->append(0, bytes, base::crc32c(std::as_bytes(std::span(bytes))));
    uploads().finish("tester", id);
    size_ = static_cast<std::int64_t>(bytes.size());
    return name;
  }
  std::int64_t size_ = 0;  ///< of the last one
};

TEST_F(RunUploadsTest, VerbsInFlightTakeNoMoreThanTheirShare) {
  plan_.step_time = 100ms;
  options_.most_upload_bytes = 300;
  start();
  Client client = with_run();
  std::vector<std::string> names;
  for (int i = 0; i < 6; ++i) names.push_back(upload(client, 60));
  ASSERT_GT(size_, 100);
  ASSERT_LT(size_, 150);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(client.forward_backward_of(1 + i, names[i]).ok());
  client.optim_step(7);
  client.get_weight(8);
  EXPECT_EQ(weight(client.wait(8)), -360.0);
  EXPECT_EQ(plan_.most_upload_bytes, 2 * size_) << "two fit at a time";
  EXPECT_EQ(plan_.upload_bytes, 0);
}

TEST_F(RunUploadsTest, OneIsLargerThanTheShareOfAllButAlone) {
  options_.most_upload_bytes = 10;
  start();
  Client client = with_run();
  const std::string first = upload(client, 60), second = upload(client, 60);
  client.forward_backward_of(1, first);
  client.forward_backward_of(2, second);
  EXPECT_EQ(client.wait(2).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(plan_.most_upload_bytes, size_);
}

TEST_F(RunUploadsTest, ANameThatIsNoneIsRefusedAndTheRunGoesOn) {
  start();
  Client client = with_run();
  EXPECT_EQ(info_of(client.forward_backward_of(1, "no/upload/at all")).reason(), "NAME_INVALID");
  client.forward_backward_of(2, upload(client, 60));
  EXPECT_EQ(client.wait(2).state(), v1::OPERATION_STATE_SUCCEEDED);
}

TEST_F(RunUploadsTest, WhatTheHostHasNoMemoryForIsNotTaken) {
  start();
  Client client = with_run();
  client.wait_for(v1::RUN_STATE_READY);
  const std::string name = upload(client, 60);
  plan_.upload_room = size_ - 1;
  client.forward_backward_of(1, name);
  EXPECT_EQ(client.wait(1).error().info().reason(), kMemoryEstimate);
  client.optim_step(2);
  EXPECT_EQ(client.wait(2).error().info().reason(), "GRADIENTS_POISONED");
  plan_.upload_room = size_;
  client.forward_backward_of(3, name);  // it is there still
  client.optim_step(4);
  client.get_weight(5);
  EXPECT_EQ(weight(client.wait(5)), -60.0);
  EXPECT_EQ(uploads().use_of("").uploads, 0);
}

}  // namespace
}  // namespace meshloom::control
