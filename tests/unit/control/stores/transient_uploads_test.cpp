// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/transient_uploads.h"

#include <gtest/gtest.h>

#include <thread>

#include "daemon/base/crc32c.h"
#include "kernels/base/error.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

using test::reason_of;

class TransientUploadsTest : public ::testing::Test {
 protected:
  static v1::CreateUploadRequest request(std::int64_t size, const std::string& run = "runs/a") {
    v1::CreateUploadRequest request;
    request.set_kind(v1::UPLOAD_KIND_TRANSIENT);
    request.set_run(run);
    request.set_size_bytes(size);
    return request;
  }
  std::string create(std::int64_t size, const std::string& run = "runs/a") {
    return uploads_.create("me", request(size, run), {}).name().substr(8);
  }
  static void append(ChunkWriter& writer, std::int64_t at, const std::string& bytes) {
    writer.append(at, bytes, base::crc32c(std::as_bytes(std::span(bytes))));
  }
  std::string complete(const std::string& bytes, const std::string& run = "runs/a") {
    const std::string id = create(static_cast<std::int64_t>(bytes.size()), run);
    append(*uploads_.open_writer("me", id), 0, bytes);
    uploads_.finish("me", id);
    return id;
  }
  const test::TempFolder folder_;
  TransientUploads uploads_{folder_ / "transient"};
};

TEST_F(TransientUploadsTest, AreTakenOnceByTheirRunAlone) {
  const std::string bytes(3 << 20, 'x');
  const std::string id = create(3 << 20);
  EXPECT_TRUE(TransientUploads::is_id(id));
  {
    const auto writer = uploads_.open_writer("me", id);
    append(*writer, 0, bytes.substr(0, 1 << 20));
    EXPECT_EQ(reason_of([&] { uploads_.open_writer("me", id); }), "UPLOAD_BUSY");
    EXPECT_EQ(reason_of([&] { append(*writer, 5, "a"); }), "WRONG_OFFSET");
    EXPECT_EQ(reason_of([&] { writer->append(1 << 20, "a", 1); }), "CHUNK_CHECKSUM_MISMATCH");
  }
  EXPECT_EQ(uploads_.get("me", id).committed_bytes(), 1 << 20);
  EXPECT_EQ(reason_of([&] { uploads_.finish("me", id); }), "UPLOAD_INCOMPLETE");
  EXPECT_EQ(reason_of([&] { uploads_.check_complete("runs/a", id); }), "UPLOAD_INCOMPLETE");
  {
    const auto writer = uploads_.open_writer("me", id);
    for (std::int64_t at = 1 << 20; at < 3 << 20; at += 1 << 20)
      append(*writer, at, bytes.substr(static_cast<std::size_t>(at), 1 << 20));
    EXPECT_EQ(reason_of([&] { append(*writer, 3 << 20, "a"); }), "WRONG_OFFSET");
  }
  EXPECT_EQ(uploads_.finish("me", id).state(), v1::UPLOAD_STATE_COMPLETE);
  EXPECT_EQ(reason_of([&] { uploads_.open_writer("me", id); }), "UPLOAD_COMPLETE");
  EXPECT_EQ(reason_of([&] { uploads_.get("other", id); }), "UPLOAD_NOT_FOUND");
  EXPECT_EQ(reason_of([&] { uploads_.take("runs/b", id); }), "UPLOAD_NOT_FOUND");
  EXPECT_EQ(uploads_.take("runs/a", id), bytes);
  EXPECT_EQ(reason_of([&] { uploads_.take("runs/a", id); }), "UPLOAD_NOT_FOUND");
}

TEST_F(TransientUploadsTest, LeaveNothingBehind) {
  const std::string kept = complete("bytes", "runs/b");
  complete("more");
  EXPECT_EQ(uploads_.use_of("me").bytes, 9);
  EXPECT_EQ(uploads_.use_of("other").uploads, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "transient")) << "no file has a name";
  uploads_.drop_run("runs/a");
  EXPECT_EQ(uploads_.use_of("").uploads, 1);
  uploads_.end_idle(std::chrono::seconds(60));
  EXPECT_EQ(uploads_.use_of("").uploads, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  uploads_.end_idle(std::chrono::seconds(0));
  EXPECT_EQ(uploads_.use_of("").uploads, 0);
  EXPECT_EQ(reason_of([&] { uploads_.get("me", kept); }), "UPLOAD_NOT_FOUND");
}

TEST_F(TransientUploadsTest, AWriterOutlivesTheAbort) {
  const std::string id = create(4);
  const auto writer = uploads_.open_writer("me", id);
  uploads_.abort("me", id);
  append(*writer, 0, "abcd");
  EXPECT_EQ(reason_of([&] { uploads_.get("me", id); }), "UPLOAD_NOT_FOUND");
}

TEST_F(TransientUploadsTest, RepeatsAndLimits) {
  const RequestKey key{"id-1", "digest"};
  const std::string name = uploads_.create("me", request(9), key).name();
  EXPECT_EQ(uploads_.repeat("me", key)->name(), name);
  EXPECT_FALSE(uploads_.repeat("other", key));
  EXPECT_FALSE(uploads_.repeat("me", {}));
  EXPECT_EQ(reason_of([&] { uploads_.repeat("me", {"id-1", "another"}); }), "REQUEST_ID_REUSED");
  EXPECT_EQ(reason_of([&] { create(0); }), "INVALID_ARGUMENT");
  EXPECT_EQ(reason_of([&] { create(TransientUploads::kLargest + 1); }), "INVALID_ARGUMENT");
  v1::CreateUploadRequest digest = request(9);
  digest.set_sha256(std::string(64, 'a'));
  EXPECT_EQ(reason_of([&] { uploads_.create("me", digest, {}); }), "INVALID_ARGUMENT");
  for (auto there = uploads_.use_of("").uploads;
       there < Limits().of_all(LimitKind::kTransientUploads); ++there)
    create(1);
  EXPECT_EQ(reason_of([&] { create(1); }), "QUOTA_EXCEEDED");
}

}  // namespace
}  // namespace meshloom::control
