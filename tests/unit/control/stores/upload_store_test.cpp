// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/upload_store.h"

#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "daemon/control/stores/journal.h"
#include "daemon/control/stores/names.h"
#include "tests/support/full_disk.h"
#include "tests/support/source_folder.h"
#include "tests/unit/control/stores/transfer_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class UploadStoreTest : public TransferTest {
 protected:
  std::int64_t blob_count() const {
    std::int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(state() / "blobs"))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }
  bool incoming(const std::string& id) const { return fs::exists(state() / "blobs/incoming" / id); }
};

TEST_F(UploadStoreTest, BytesThatWereSentAreThereUnderTheirDigest) {
  open();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, 3 * kLargestChunk + 17}) {
    const std::string bytes = random_bytes(size, 1);
    const std::string id = send("tokens.bin", bytes);
    const v1::Upload upload = uploads().get("me", id);
    EXPECT_EQ(upload.state(), v1::UPLOAD_STATE_COMPLETE);
    EXPECT_EQ(upload.committed_bytes(), static_cast<std::int64_t>(size));
    EXPECT_EQ(file_text(uploads().content("me", id).path), bytes);
    EXPECT_FALSE(incoming(id));
  }
}

TEST_F(UploadStoreTest, TheSameBytesTakeNoMoreDiskAndOnlyTheirSenderSkipsSending) {
  open();
  const std::string bytes = random_bytes(5000, 2);
  send("a.bin", bytes);
  EXPECT_EQ(uploads().get("me", create("b.bin", bytes)).state(), v1::UPLOAD_STATE_COMPLETE);
  const std::string other = create("c.bin", bytes, "other");
  EXPECT_EQ(uploads().get("other", other).state(), v1::UPLOAD_STATE_RECEIVING);
  EXPECT_EQ(reason_of([&] { uploads().finish("other", other); }), "UPLOAD_INCOMPLETE");
  append(*uploads().open_writer("other", other), bytes);
  uploads().finish("other", other);
  EXPECT_EQ(blob_count(), 1);
  EXPECT_EQ(uploads().get("other", create("d.bin", bytes, "other")).state(),
            v1::UPLOAD_STATE_COMPLETE);
}

TEST_F(UploadStoreTest, ABlobKnowsSoManySendersAndNoMore) {
  open();
  const std::string bytes = "the same";
  for (int i = 0; i <= 100; ++i) {
    const std::string client = "client-" + std::to_string(i);
    uploads().abort(client, send("a.bin", bytes, client), {});
  }
  const auto state_for = [&](const std::string& client) {
    return uploads().get(client, create("b.bin", bytes, client)).state();
  };
  EXPECT_EQ(state_for("client-0"), v1::UPLOAD_STATE_RECEIVING) << "it has to send them again";
  EXPECT_EQ(state_for("client-1"), v1::UPLOAD_STATE_COMPLETE);
  EXPECT_EQ(state_for("client-100"), v1::UPLOAD_STATE_COMPLETE);
}

TEST_F(UploadStoreTest, AClientSeesItsOwnUploadsOnly) {
  open();
  const std::string id = create("a.bin", "abc");
  EXPECT_EQ(reason_of([&] { uploads().get("other", id); }), "UPLOAD_NOT_FOUND");
  EXPECT_EQ(reason_of([&] { uploads().open_writer("other", id); }), "UPLOAD_NOT_FOUND");
  EXPECT_EQ(reason_of([&] { uploads().finish("other", id); }), "UPLOAD_NOT_FOUND");
  EXPECT_EQ(reason_of([&] { uploads().abort("other", id, {}); }), "UPLOAD_NOT_FOUND");
  EXPECT_TRUE(uploads().list("other", 0, 10).first.empty());
  EXPECT_EQ(uploads().list("me", 0, 10).first.size(), 1u);
}

TEST_F(UploadStoreTest, WrongChunksAreRefusedAndWhatCameBeforeStays) {
  open();
  const std::string bytes = random_bytes(100, 3);
  const std::string id = create("a.bin", bytes);
  const auto crc = [](const std::string& text) {
    return base::crc32c(std::as_bytes(std::span(text)));
  };
  {
    const auto writer = uploads().open_writer("me", id);
    append(*writer, bytes.substr(0, 40));
    for (const std::int64_t offset : {0, 39, 41, 100, -1})
      EXPECT_EQ(reason_of([&] { writer->append(offset, "x", crc("x")); }), "WRONG_OFFSET");
    EXPECT_EQ(reason_of([&] { writer->append(40, "x", crc("y")); }), "CHUNK_CHECKSUM_MISMATCH");
    const std::string large(kLargestChunk + 1, 'x');
    EXPECT_EQ(reason_of([&] { writer->append(40, large, crc(large)); }), "CHUNK_TOO_LARGE");
    const std::string past(61, 'x');
    EXPECT_EQ(reason_of([&] { writer->append(40, past, crc(past)); }), "WRONG_OFFSET");
    EXPECT_EQ(reason_of([&] { uploads().open_writer("me", id); }), "UPLOAD_BUSY");
    EXPECT_EQ(reason_of([&] { uploads().finish("me", id); }), "UPLOAD_BUSY");
  }
  EXPECT_EQ(uploads().get("me", id).committed_bytes(), 40);
  append(*uploads().open_writer("me", id), bytes.substr(40));
  EXPECT_EQ(uploads().finish("me", id).state(), v1::UPLOAD_STATE_COMPLETE);
  EXPECT_EQ(uploads().finish("me", id).state(), v1::UPLOAD_STATE_COMPLETE);
  EXPECT_EQ(reason_of([&] { uploads().open_writer("me", id); }), "UPLOAD_COMPLETE");
}

TEST_F(UploadStoreTest, AWrongDigestDiscardsTheUpload) {
  open();
  const std::string id = create("a.bin", "abc");
  append(*uploads().open_writer("me", id), "abd");
  EXPECT_EQ(reason_of([&] { uploads().finish("me", id); }), "DIGEST_MISMATCH");
  EXPECT_EQ(reason_of([&] { uploads().get("me", id); }), "UPLOAD_NOT_FOUND");
  EXPECT_FALSE(incoming(id));
  EXPECT_EQ(blob_count(), 0);
}

TEST_F(UploadStoreTest, WrongRequestsAreRefusedWithTheirField) {
  open();
  const auto field_of = [&](const v1::CreateUploadRequest& asked) -> std::string {
    try {
      uploads().create("me", asked, {});
    } catch (const InvalidArgument& error) {
      return error.metadata().at("field");
    }
    return "";
  };
  for (const std::string name : {"", "../a", "a/b", ".hidden", "..", "a\nb", "-a", "\xFF"}) {
    auto asked = request("a", "abc");
    asked.set_file_name(name);
    EXPECT_EQ(field_of(asked), "file_name") << name;
  }
  auto asked = request(std::string(129, 'a'), "abc");
  EXPECT_EQ(field_of(asked), "file_name");
  asked = request("a", "abc");
  asked.set_size_bytes(-1);
  EXPECT_EQ(field_of(asked), "size_bytes");
  asked = request("a", "abc");
  asked.set_sha256("../../etc/passwd");
  EXPECT_EQ(field_of(asked), "sha256");
}

TEST_F(UploadStoreTest, TransientUploadsCountAgainstTheSameQuotas) {
  limits_.set_client_bytes(1000);
  limits_.set_client_uploads(3);
  open();
  send("a.bin", random_bytes(300, 4));
  v1::CreateUploadRequest asked;
  asked.set_kind(v1::UPLOAD_KIND_TRANSIENT);
  asked.set_run("runs/a");
  asked.set_size_bytes(600);
  const std::string id = parse_upload_name(uploads().create("me", asked, {}).name());
  EXPECT_EQ(uploads().get("me", id).kind(), v1::UPLOAD_KIND_TRANSIENT);
  EXPECT_EQ(reason_of([&] { create("b.bin", random_bytes(101, 5)); }), "QUOTA_EXCEEDED");
  asked.set_size_bytes(101);
  EXPECT_EQ(reason_of([&] { uploads().create("me", asked, {}); }), "QUOTA_EXCEEDED");
  asked.set_size_bytes(1);
  uploads().create("me", asked, {});
  EXPECT_EQ(reason_of([&] { uploads().create("me", asked, {}); }), "QUOTA_EXCEEDED") << "a fourth";
  uploads().abort("me", id, {});
  create("b.bin", random_bytes(600, 5));
  EXPECT_EQ(uploads().list("me", 0, 10).first.size(), 2u) << "they are not listed";
  // Files that are kept belong to no run.
  v1::CreateUploadRequest kept = request("c", "abc");
  kept.set_run("runs/a");
  EXPECT_EQ(reason_of([&] { uploads().create("me", kept, {}); }), "INVALID_ARGUMENT");
}

TEST_F(UploadStoreTest, QuotasAreKeptBeforeAnyByteIsTaken) {
  limits_.set_client_bytes(1000);
  limits_.set_total_bytes(1500);
  limits_.set_client_uploads(3);
  open();
  send("a.bin", random_bytes(600, 4));
  EXPECT_EQ(reason_of([&] { create("b.bin", random_bytes(401, 5)); }), "QUOTA_EXCEEDED");
  create("b.bin", random_bytes(400, 5));
  EXPECT_EQ(reason_of([&] { create("c.bin", "x"); }), "QUOTA_EXCEEDED");
  EXPECT_EQ(reason_of([&] { create("c.bin", random_bytes(501, 6), "other"); }), "QUOTA_EXCEEDED");
  create("c.bin", random_bytes(500, 6), "other");
  // Bytes that this client has sent already cost nothing more, but each upload counts.
  create("d.bin", random_bytes(600, 4));
  EXPECT_EQ(reason_of([&] { create("e.bin", random_bytes(600, 4)); }), "QUOTA_EXCEEDED");
  // A file that no disk has room for.
  limits_ = {};
  limits_.set_client_bytes(std::int64_t{1} << 62);
  limits_.set_total_bytes(std::int64_t{1} << 62);
  stores_.reset();
  open();
  auto huge = request("huge.bin", "x");
  huge.set_size_bytes(std::int64_t{1} << 60);
  EXPECT_EQ(reason_of([&] { uploads().create("me", huge, {}); }), "DISK_FULL");
}

TEST_F(UploadStoreTest, AKilledDaemonGoesOnFromTheCommittedSize) {
  open();
  const std::string bytes = random_bytes(2 * kLargestChunk + 99, 7);
  const std::string id = create("a.bin", bytes);
  auto writer = uploads().open_writer("me", id);
  append(*writer, bytes.substr(0, kLargestChunk));
  writer->commit();
  append(*writer, bytes.substr(kLargestChunk, 50));
  const std::string next = state_name_ + "x";
  ASSERT_EQ(
      std::system(fmt::format("cp -a {} {}", state().string(), (folder_ / next).string()).c_str()),
      0);
  writer.reset();
  stores_.reset();
  state_name_ = next;
  open();
  const std::int64_t committed = uploads().get("me", id).committed_bytes();
  EXPECT_EQ(committed, static_cast<std::int64_t>(kLargestChunk));
  append(*uploads().open_writer("me", id), bytes.substr(kLargestChunk, kLargestChunk));
  append(*uploads().open_writer("me", id), bytes.substr(2 * kLargestChunk));
  reopen_as_killed();
  EXPECT_EQ(uploads().finish("me", id).state(), v1::UPLOAD_STATE_COMPLETE);
  reopen_as_killed();
  EXPECT_EQ(file_text(uploads().content("me", id).path), bytes);
}

TEST_F(UploadStoreTest, AnyBreaksInAnyPlaceGiveTheSameBytes) {
  open();
  std::mt19937 random(8);
  for (unsigned round = 0; round < 6; ++round) {
    const std::string bytes = random_bytes(random() % 200'000, 9 + round);
    const std::string id = create("a.bin", bytes);
    std::unique_ptr<ChunkWriter> writer;
    std::int64_t known = 0;
    while (known < static_cast<std::int64_t>(bytes.size())) {
      if (!writer) writer = uploads().open_writer("me", id);
      const auto at = static_cast<std::size_t>(writer->position());
      append(*writer, bytes.substr(at, random() % 40'000));
      if (random() % 2 == 0) writer.reset();
      if (!writer && random() % 3 == 0) reopen_as_killed();
      const std::int64_t committed = uploads().get("me", id).committed_bytes();
      ASSERT_GE(committed, known) << "a committed size never decreases";
      known = committed;
    }
    writer.reset();
    uploads().finish("me", id);
    ASSERT_EQ(file_text(uploads().content("me", id).path), bytes);
  }
}

TEST_F(UploadStoreTest, ARepeatedRequestGetsTheFirstAnswerAlsoAfterARestart) {
  open();
  const std::string id = create("a.bin", "abc", "me", "request-1");
  EXPECT_EQ(create("a.bin", "abc", "me", "request-1"), id);
  EXPECT_EQ(reason_of([&] { create("b.bin", "abc", "me", "request-1"); }), "REQUEST_ID_REUSED");
  reopen_as_killed();
  EXPECT_EQ(create("a.bin", "abc", "me", "request-1"), id);
  const auto asked = [&] {
    v1::AbortUploadRequest abort;
    abort.set_request_id("request-2");
    abort.set_name(id);
    return make_request_key("AbortUpload", abort, "me");
  }();
  uploads().abort("me", id, asked);
  uploads().abort("me", id, asked);
  EXPECT_EQ(reason_of([&] { create("a.bin", "abc", "me", "request-1"); }), "UPLOAD_NOT_FOUND");
  EXPECT_NE(create("a.bin", "abc"), id) << "a name is given out once";
  reopen_as_killed();
  EXPECT_EQ(reason_of([&] { uploads().get("me", id); }), "UPLOAD_NOT_FOUND");
}

TEST_F(UploadStoreTest, IdleUploadsEndAndBytesThatNobodyNeedsGo) {
  limits_.set_idle_seconds(1);
  limits_.set_keep_blobs_seconds(2);
  open();
  const std::string idle = create("a.bin", "abc");
  const std::string sent = send("b.bin", "bytes");
  const std::string written = create("c.bin", "long");
  const auto writer = uploads().open_writer("me", written);
  uploads().upkeep();
  EXPECT_TRUE(incoming(idle));
  std::this_thread::sleep_for(1500ms);
  uploads().upkeep();
  EXPECT_FALSE(incoming(idle));
  EXPECT_EQ(reason_of([&] { uploads().get("me", sent); }), "UPLOAD_NOT_FOUND");
  EXPECT_EQ(uploads().get("me", written).committed_bytes(), 0) << "one that is written is not idle";
  EXPECT_EQ(blob_count(), 1);
  // The same bytes again while they wait to be collected: they are kept.
  const std::string again = send("d.bin", "bytes");
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(500ms);
    uploads().get("me", again);
    uploads().upkeep();
  }
  EXPECT_EQ(blob_count(), 1);
  for (int i = 0; i < 9; ++i) {
    std::this_thread::sleep_for(500ms);
    uploads().upkeep();
  }
  EXPECT_EQ(blob_count(), 0);
  EXPECT_EQ(uploads().get("me", create("e.bin", "bytes")).state(), v1::UPLOAD_STATE_RECEIVING);
}

TEST_F(UploadStoreTest, UptimeGoesOnOverRestarts) {
  open();
  std::this_thread::sleep_for(1100ms);
  create("a.bin", "abc");
  reopen_as_killed();
  EXPECT_GE(uploads().uptime(), 1);
}

TEST_F(UploadStoreTest, FilesThatBelongToNothingAreRemovedAtTheStart) {
  open();
  const std::string id = create("a.bin", "abc");
  send("b.bin", "bytes");
  const fs::path stray = state() / "blobs" / std::string(64, 'a');
  const fs::path stray_upload = state() / "blobs/incoming/upload-99";
  std::ofstream(stray) << "x";
  std::ofstream(stray_upload) << "x";
  stores_.reset();
  open();
  EXPECT_FALSE(fs::exists(stray));
  EXPECT_FALSE(fs::exists(stray_upload));
  EXPECT_TRUE(incoming(id));
  EXPECT_EQ(blob_count(), 1);
}

TEST_F(UploadStoreTest, AFullDiskRefusesBytesAndLosesNone) {
  const test::SmallDisk disk(64);
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
  fs::remove_all(state());
  fs::create_directory_symlink(disk / "", state());
  open();
  const std::string bytes = random_bytes(3 * kLargestChunk, 30);
  const std::string id = create("a.bin", bytes);
  append(*uploads().open_writer("me", id), bytes.substr(0, kLargestChunk));
  disk.fill();
  EXPECT_EQ(reason_of([&] { create("b.bin", bytes); }), "DISK_FULL");
  EXPECT_EQ(reason_of([&] {
              append(*uploads().open_writer("me", id), bytes.substr(kLargestChunk, kLargestChunk));
            }),
            "DISK_FULL");
  EXPECT_EQ(uploads().get("me", id).committed_bytes(), static_cast<std::int64_t>(kLargestChunk));
  fs::remove(disk / "filler");
  append(*uploads().open_writer("me", id), bytes.substr(kLargestChunk, kLargestChunk));
  append(*uploads().open_writer("me", id), bytes.substr(2 * kLargestChunk));
  EXPECT_EQ(uploads().finish("me", id).state(), v1::UPLOAD_STATE_COMPLETE);
  stores_.reset();
}

TEST_F(UploadStoreTest, LimitsHaveDefaultsMayBe0AndAreNotNegative) {
  EXPECT_EQ(with_upload_defaults({}).idle_seconds(), 86'400);
  EXPECT_EQ(with_upload_defaults(limits_).keep_blobs_seconds(), 7 * 86'400);
  limits_.set_client_uploads(0);
  EXPECT_EQ(with_upload_defaults(limits_).client_uploads(), 0) << "no uploads are taken";
  limits_.set_total_uploads(-1);
  EXPECT_THROW(with_upload_defaults(limits_), InvalidArgument);
  limits_.clear_total_uploads();
  limits_.set_idle_seconds(0);
  EXPECT_THROW(with_upload_defaults(limits_), InvalidArgument);
}

TEST_F(UploadStoreTest, NothingIsWrittenThroughALink) {
  open();
  const std::string id = create("a.bin", "abc");
  const fs::path file = state() / "blobs/incoming" / id;
  const fs::path outside = folder_ / "outside";
  std::ofstream(outside) << "mine";
  fs::remove(file);
  fs::create_symlink(outside, file);
  EXPECT_THROW(uploads().open_writer("me", id), Error);
  fs::remove(file);
  fs::create_hard_link(outside, file);
  EXPECT_EQ(reason_of([&] { uploads().open_writer("me", id); }), "UPLOAD_FILE_REPLACED");
  EXPECT_EQ(file_text(outside), "mine");
}

TEST_F(UploadStoreTest, AHeaderThatLiesIsRefusedWhenItsBytesHaveCome) {
  open();
  const fs::path cases = test::source_file("tests/golden/malformed");
  for (const std::string name :
       {"truncated", "header_too_large", "header_length_past_end", "header_not_json", "short_file",
        "overlapping_offsets", "offsets_past_end", "offsets_reversed", "shape_size_mismatch",
        "shape_overflow", "unknown_dtype"}) {
    const std::string bytes = file_text(cases / (name + ".safetensors"));
    ASSERT_FALSE(bytes.empty()) << name;
    const std::string id = create("model.safetensors", bytes);
    EXPECT_EQ(reason_of([&] {
                const auto writer = uploads().open_writer("me", id);
                for (const char byte : bytes) append(*writer, std::string(1, byte));
              }),
              "MALFORMED_SAFETENSORS")
        << name;
    EXPECT_EQ(reason_of([&] { uploads().get("me", id); }), "UPLOAD_NOT_FOUND") << name;
    EXPECT_FALSE(incoming(id)) << name;
  }
  const std::string empty = create("model.safetensors", "");
  EXPECT_EQ(reason_of([&] { uploads().finish("me", empty); }), "MALFORMED_SAFETENSORS");
  const std::string good = file_text(cases / "good.safetensors");
  EXPECT_FALSE(send("model.safetensors", good).empty());
}

TEST_F(UploadStoreTest, UpkeepLooksAtWhatHasChangedAlone) {
  constexpr std::size_t kUploads = 10'000;
  constexpr int kTimes = 5;
  const auto digest = [](std::size_t i) { return fmt::format("{:064x}", i + 1); };
  {
    v1::JournalRecord group;
    fs::create_directories(state() / "blobs");
    for (std::size_t i = 0; i < kUploads; ++i) {
      std::ofstream(state() / "blobs" / digest(i)) << 'x';
      v1::JournalRecord& record = *group.add_group();
      record.mutable_upload()->set_id(fmt::format("upload-{}", i + 1));
      record.mutable_upload()->set_client("me");
      record.mutable_upload()->set_size_bytes(1);
      record.mutable_upload()->set_sha256(digest(i));
      record.mutable_upload()->set_complete(true);
      record.mutable_blob()->set_sha256(digest(i));
      record.mutable_blob()->set_size_bytes(1);
    }
    Journal journal(state() / "journal", [](std::string_view) {});
    journal.append(group.SerializeAsString());
  }
  limits_.set_keep_blobs_seconds(0);
  open();
  uploads().upkeep();  // the first of a daemon looks at all
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimes; ++i) uploads().upkeep();
  const std::chrono::duration<double, std::milli> each =
      (std::chrono::steady_clock::now() - begin) / kTimes;
  RecordProperty("upkeep_ms", fmt::format("{:.3f}", each.count()));
  EXPECT_LT(each.count(), 50.0) << "ms a second of a daemon that idles";
  // And what changes is found.
  uploads().abort("me", "upload-7", {});
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (uploads().blobs().has_blob(digest(6), 1) && std::chrono::steady_clock::now() < end) {
    uploads().upkeep();
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_FALSE(uploads().blobs().has_blob(digest(6), 1));
  EXPECT_TRUE(uploads().blobs().has_blob(digest(7), 1));
}

}  // namespace
}  // namespace meshloom::control
