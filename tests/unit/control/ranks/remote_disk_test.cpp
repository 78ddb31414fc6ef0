// SPDX-License-Identifier: Apache-2.0
// A rank reads and writes rank 0's files over a real connection.
#include "daemon/control/ranks/remote_disk.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "daemon/base/crc32c.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/ranks/rank_channel.h"
#include "daemon/control/ranks/rank_file_service.h"
#include "kernels/base/error.h"
#include "tests/support/eventually.h"
#include "tests/support/file_text.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/ranks/rank_messages.h"

namespace meshloom::control {
namespace {

using test::reason_of;

namespace fs = std::filesystem;

constexpr const char* kDenied = "PERMISSION_DENIED";

std::string random_text(std::size_t bytes, std::mt19937& random) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

/// Rank 0's folder and rank 1, to which a run "job" was given: its data below data/, its
/// checkpoints in jobs/. Nobody has named the rest.
class RemoteDiskTest : public ::testing::Test {
 protected:
  static constexpr int kRank = 1;

  RemoteDiskTest()
      : server_(
            {resolve_listen_address("127.0.0.1:0", "listen"), {&service_}, 16, false, 16, true}),
        disk_(address(), "secret", kRank) {
    fs::create_directories(folder_ / "jobs/.tmp-step-2");
    fs::create_directories(folder_ / "data");
    grants_.sent(kRank, create(1, "job"));
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(server_.port()); }
  v1::RankCommand create(std::int64_t seq, const std::string& run) const {
    v1::RankCommand command;
    command.set_seq(seq);
    command.mutable_create_run()->set_run(run);
    command.mutable_create_run()->mutable_folders()->set_data_dir((folder_ / "data").string());
    command.mutable_create_run()->mutable_folders()->set_checkpoints((folder_ / "jobs").string());
    return command;
  }
  void write(const fs::path& path, const std::string& text) {
    const auto file = disk_.create(path, text.size());
    file->write(std::as_bytes(std::span(text)));
    file->sync();
    file->close();
  }
  fs::path shard() const { return folder_ / "jobs/.tmp-step-2/shard-1.safetensors"; }

  test::TempFolder folder_;
  FileGrants grants_;
  RankFileServiceImpl service_{grants_, "secret"};
  GrpcServer server_;
  RemoteDisk disk_;
};

TEST_F(RemoteDiskTest, RangesAreThoseOfTheFile) {
  std::mt19937 random(5);
  for (const std::size_t bytes : {0u, 1u, 1000u, 1u << 20, (1u << 20) + 1, (3u << 20) + 17}) {
    const std::string text = random_text(bytes, random);
    const fs::path path = folder_.write("data/file", text);
    const base::InputFile file = disk_.open(path);
    ASSERT_EQ(file.size(), bytes);
    EXPECT_EQ(file.read_text(bytes), text);
    for (int i = 0; i < 10 && bytes > 0; ++i) {
      const std::size_t begin = random() % bytes, count = random() % (bytes - begin + 1);
      std::string part(count, '\0');
      file.read(begin, std::as_writable_bytes(std::span(part)));
      EXPECT_EQ(part, text.substr(begin, count)) << begin << " of " << bytes;
    }
    std::string beyond(2, '\0');
    EXPECT_EQ(
        reason_of([&] { file.read(bytes - bytes / 2, std::as_writable_bytes(std::span(beyond))); }),
        bytes / 2 >= 2 ? "" : "FILE_TRUNCATED");
  }
}

TEST_F(RemoteDiskTest, StripesAreThoseOfTheFile) {
  std::mt19937 random(6);
  const std::string text = random_text(3'000'000, random);
  const base::InputFile file = disk_.open(folder_.write("data/file", text));
  const auto read = [&](const base::Stripes& stripes) {
    std::string part(stripes.total(), '\0');
    file.read_stripes(stripes, std::as_writable_bytes(std::span(part)));
    return part;
  };
  for (const base::Stripes& stripes :
       {base::Stripes{5, 3, 7, 400'000}, base::Stripes{17, 1'100'000, 1'200'000, 2},
        base::Stripes{0, 10, 10, 300'000}, base::Stripes{2'999'999, 1, 50, 1}}) {
    std::string expected;
    for (std::uint64_t i = 0; i < stripes.count; ++i)
      expected += text.substr(stripes.offset + i * stripes.stride, stripes.bytes);
    EXPECT_TRUE(read(stripes) == expected) << stripes.bytes << " of " << stripes.stride;
  }
  EXPECT_EQ(reason_of([&] { read({2'000'000, 600'000, 700'000, 2}); }), "FILE_TRUNCATED");
  EXPECT_EQ(reason_of([&] { read({0, 10, 20, 1'000'000}); }), "STRIPES_INVALID");
  EXPECT_EQ(reason_of([&] { read({0, 10, 5, 3}); }), "STRIPES_INVALID");
}

TEST_F(RemoteDiskTest, FoldersAreToldAsOnRank0) {
  folder_.write("data/b/two.txt", "2");
  folder_.write("data/a.txt", "1");
  folder_.write("data/.hidden/three.txt", "3");
  fs::create_symlink(folder_ / "data/b", folder_ / "data/link");
  base::Disk& own = base::own_disk();
  const fs::path data = folder_ / "data";
  EXPECT_TRUE(disk_.is_remote());
  EXPECT_EQ(disk_.files_below(data), own.files_below(data));
  EXPECT_EQ(disk_.files_below(data),
            (std::vector<fs::path>{folder_ / "data/a.txt", folder_ / "data/b/two.txt"}));
  EXPECT_EQ(disk_.files_below(data / "link"), (std::vector<fs::path>{data / "link/two.txt"}));
  EXPECT_EQ(disk_.list(data), own.list(data));
  EXPECT_TRUE(disk_.list(data / "nowhere").empty());
  for (const char* name : {"a.txt", "b", "link", "nowhere", "b/two.txt"}) {
    EXPECT_EQ(disk_.kind(data / name), own.kind(data / name)) << name;
    EXPECT_EQ(disk_.stamp(data / name), own.stamp(data / name)) << name;
    EXPECT_EQ(reason_of([&] { disk_.open(data / name); }),
              reason_of([&] { own.open(data / name); }))
        << name;
  }
}

TEST_F(RemoteDiskTest, WhatNoCommandHasNamedIsRefused) {
  folder_.write("secret.txt", "x");
  const fs::path inside = folder_.write("data/text.txt", "x");
  fs::create_symlink(folder_ / "secret.txt", folder_ / "data/way-out");
  for (const fs::path& path :
       {folder_ / "secret.txt", folder_ / "data/../secret.txt", folder_ / "data/way-out",
        fs::path("/etc/passwd"), folder_ / "database", folder_.path()}) {
    EXPECT_EQ(reason_of([&] { disk_.open(path); }), kDenied) << path;
    EXPECT_EQ(reason_of([&] { disk_.kind(path); }), kDenied) << path;
    EXPECT_EQ(reason_of([&] { disk_.list(path); }), kDenied) << path;
    EXPECT_EQ(reason_of([&] { write(path, "x"); }), kDenied) << path;
  }
  RemoteDisk other(address(), "secret", 2);
  EXPECT_EQ(reason_of([&] { other.open(inside); }), kDenied) << "the run is not that rank's";
  RemoteDisk stranger(address(), "guess", kRank);
  EXPECT_EQ(reason_of([&] { stranger.open(inside); }), "RANK0_UNREACHABLE");
  EXPECT_EQ(disk_.open(inside).size(), 1u);
}

TEST_F(RemoteDiskTest, AGrantEndsWithItsRun) {
  const fs::path inside = folder_.write("data/text.txt", "x");
  v1::RankCommand deletion;
  deletion.set_seq(2);
  deletion.mutable_delete_run()->set_run("job");
  grants_.sent(kRank, deletion);
  EXPECT_EQ(reason_of([&] { disk_.open(inside); }), "") << "the rank has not come to it yet";
  grants_.answered(kRank, answer(2, kRank));
  EXPECT_EQ(reason_of([&] { disk_.open(inside); }), kDenied);

  v1::RankResult failed = answer(3, kRank);
  failed.mutable_error();
  grants_.sent(kRank, create(3, "fails"));
  EXPECT_EQ(reason_of([&] { disk_.open(inside); }), "");
  grants_.answered(kRank, failed);
  EXPECT_EQ(reason_of([&] { disk_.open(inside); }), kDenied);

  // The deletion of an earlier run of the name, answered late.
  deletion.set_seq(4);
  deletion.mutable_delete_run()->set_run("again");
  grants_.sent(kRank, deletion);
  grants_.sent(kRank, create(5, "again"));
  grants_.answered(kRank, answer(4, kRank));
  EXPECT_EQ(reason_of([&] { disk_.open(inside); }), "");
  grants_.left(kRank);
  EXPECT_EQ(reason_of([&] { disk_.open(inside); }), kDenied);
}

TEST_F(RemoteDiskTest, AFileThatIsPutInPlaceOfAnOpenOneIsNotMixedWithIt) {
  const fs::path path = folder_.write("data/text.txt", "before");
  const base::InputFile file = disk_.open(path);
  folder_.write("data/next", "behind");
  fs::rename(folder_ / "data/next", path);
  EXPECT_EQ(reason_of([&] { file.read_text(100); }), "FILE_REPLACED");
  EXPECT_EQ(disk_.open(path).read_text(100), "behind");
}

TEST_F(RemoteDiskTest, ShardsArriveWhole) {
  std::mt19937 random(6);
  for (const std::size_t bytes : {0u, 1u, 1u << 20, (2u << 20) + 5}) {
    const std::string text = random_text(bytes, random);
    write(shard(), text);
    EXPECT_EQ(test::file_text(shard()), text);
  }
  EXPECT_EQ(reason_of([&] { write(folder_ / "jobs/shard-1.safetensors", "x"); }), kDenied);
  EXPECT_EQ(reason_of([&] { write(folder_ / "jobs/.tmp-step-2/manifest.json", "x"); }), kDenied);
  EXPECT_EQ(reason_of([&] { write(folder_ / "data/.tmp-x/a.safetensors", "x"); }), kDenied);
  EXPECT_EQ(reason_of([&] { write(folder_ / "jobs/.tmp-step-9/a.safetensors", "x"); }), "IO_ERROR")
      << "rank 0 has not begun that one";
}

TEST_F(RemoteDiskTest, AShardThatBreaksOffLeavesNothing) {
  {
    const auto file = disk_.create(shard(), 2 << 20);
    const std::string text(1 << 20, 'x');
    file->write(std::as_bytes(std::span(text)));
    EXPECT_TRUE(test::eventually([&] { return fs::exists(shard()); }));
  }
  EXPECT_TRUE(test::eventually([&] { return !fs::exists(shard()); }));
}

TEST_F(RemoteDiskTest, PiecesThatAreNotWhatWasSentAreRefused) {
  const auto stub = v1::RankFileService::NewStub(make_rank_channel(address(), true));
  const auto send = [&](std::uint64_t offset, std::uint32_t crc_error, std::uint64_t end) {
    grpc::ClientContext context;
    context.AddMetadata(kSecretKey, "secret");
    v1::WrittenFile answer;
    const auto stream = stub->Write(&context, &answer);
    v1::WriteFileRequest message;
    message.mutable_header()->set_rank(kRank);
    message.mutable_header()->set_path(shard().string());
    stream->Write(message);
    message.mutable_piece()->set_offset(offset);
    message.mutable_piece()->set_data("abc");
    message.mutable_piece()->set_crc32c(
        base::crc32c(std::as_bytes(std::span(message.piece().data()))) ^ crc_error);
    stream->Write(message);
    message.mutable_end()->set_bytes(end);
    stream->Write(message);
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    EXPECT_EQ(fs::exists(shard()), !answer.has_error());
    return answer.error().info().reason();
  };
  EXPECT_EQ(send(0, 1, 3), "CHECKSUM_WRONG");
  EXPECT_EQ(send(1, 0, 3), "PIECE_MISPLACED");
  EXPECT_EQ(send(0, 0, 4), "FILE_INCOMPLETE");
  EXPECT_EQ(send(0, 0, 3), "");
}

TEST_F(RemoteDiskTest, NothingWaitsForRank0OnceTheRanksAreEnding) {
  const fs::path inside = folder_.write("data/text.txt", "x");
  const base::InputFile file = disk_.open(inside);
  disk_.cancel();
  EXPECT_EQ(reason_of([&] { file.read_text(1); }), "RANK0_UNREACHABLE");
  EXPECT_EQ(reason_of([&] { disk_.kind(inside); }), "RANK0_UNREACHABLE");
  EXPECT_EQ(reason_of([&] { write(shard(), "x"); }), "RANK0_UNREACHABLE");
}

}  // namespace
}  // namespace meshloom::control
