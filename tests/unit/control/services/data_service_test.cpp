// SPDX-License-Identifier: Apache-2.0
// Uploads that become files of data, over real gRPC.
#include "daemon/control/services/data_service.h"

#include <gmock/gmock.h>

#include "daemon/control/net/grpc_server.h"
#include "daemon/control/stores/names.h"
#include "tests/support/eventually.h"
#include "tests/support/full_disk.h"
#include "tests/unit/control/fake_admission.h"
#include "tests/unit/control/status_info.h"
#include "tests/unit/control/stores/transfer_fixture.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

class DataServiceTest : public TransferTest {
 protected:
  void SetUp() override {
    open();
    serve(data());
  }
  void TearDown() override { stop(); }

  void serve(const fs::path& data_dir) {
    stop();
    service_ = std::make_unique<DataServiceImpl>(
        admission_, admission_, uploads(),
        DataServiceImpl::Options{.data_dir = data_dir, .state_dir = state()});
    server_ = std::make_unique<GrpcServer>(
        GrpcServerOptions{resolve_listen_address("127.0.0.1:0", "listen"), {service_.get()}});
    stub_ = v1::DataService::NewStub(grpc::CreateChannel(
        fmt::format("127.0.0.1:{}", server_->port()), grpc::InsecureChannelCredentials()));
  }
  void stop() {
    if (!server_) return;
    service_->request_stop();
    server_->shutdown();
    service_->stop();
    server_.reset();
  }

  static v1::ImportUploadRequest asked(const std::string& id, const std::string& path) {
    v1::ImportUploadRequest request;
    request.set_upload("uploads/" + id);
    request.set_path(path);
    return request;
  }
  static void introduce(grpc::ClientContext& context, const std::string& client = "me") {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    context.AddMetadata("meshloom-client", client);
  }
  grpc::Status import_upload(const v1::ImportUploadRequest& request,
                             v1::ImportedFile* result = nullptr, const std::string& client = "me") {
    grpc::ClientContext context;
    introduce(context, client);
    const auto reader = stub_->ImportUpload(&context, request);
    v1::ImportUploadResponse response;
    while (reader->Read(&response))
      if (result != nullptr && response.has_result()) *result = response.result();
    return reader->Finish();
  }
  /// The reason that it is refused for; empty if it is not.
  std::string refusal(const v1::ImportUploadRequest& request, const std::string& client = "me") {
    const grpc::Status status = import_upload(request, nullptr, client);
    return status.ok() ? "" : info_of(status).reason();
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(data()))
      names.push_back(entry.path().filename().string());
    return names;
  }

  FakePlan plan_;
  FakeAdmission admission_{plan_, folder_.path()};
  std::unique_ptr<DataServiceImpl> service_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::DataService::Stub> stub_;
};

TEST_F(DataServiceTest, AnUploadBecomesAFileWithItsBytesAndStays) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, 3 * kLargestChunk + 17}) {
    const std::string bytes = random_bytes(size, 1);
    const std::string id = send("a.txt", bytes);
    v1::ImportedFile made;
    const std::string name = fmt::format("{}.txt", size);
    const grpc::Status status = import_upload(asked(id, name), &made);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(made.path(), name);
    EXPECT_EQ(made.bytes(), static_cast<std::int64_t>(size));
    EXPECT_EQ(made.sha256(), sha256_of(bytes));
    EXPECT_EQ(file_text(data() / name), bytes);
    EXPECT_EQ(uploads().get("me", id).state(), v1::UPLOAD_STATE_COMPLETE);
    // What is written to the one is not written to the other.
    std::ofstream(data() / name, std::ios::app) << "more";
    EXPECT_EQ(file_text(uploads().content("me", id).path), bytes);
  }
  EXPECT_EQ(files().size(), 3u) << "and nothing beside them";
}

TEST_F(DataServiceTest, WhatIsNoWholeUploadOfTheClientIsRefused) {
  const std::string id = send("a.txt", "abc");
  const std::string half = create("b.txt", "abcd");
  append(*uploads().open_writer("me", half), "ab");
  const std::string unfinished = create("c.txt", "xyz");
  append(*uploads().open_writer("me", unfinished), "xyz");
  v1::CreateUploadRequest brief;
  brief.set_kind(v1::UPLOAD_KIND_TRANSIENT);
  brief.set_run("runs/a");
  brief.set_size_bytes(3);
  const std::string transient = parse_upload_name(uploads().create("me", brief, {}).name());
  EXPECT_EQ(refusal(asked("upload-99", "x")), "UPLOAD_NOT_FOUND");
  EXPECT_EQ(refusal(asked(id, "x"), "other"), "UPLOAD_NOT_FOUND");
  EXPECT_EQ(refusal(asked(half, "x")), "UPLOAD_INCOMPLETE");
  EXPECT_EQ(refusal(asked(unfinished, "x")), "UPLOAD_INCOMPLETE");
  EXPECT_EQ(refusal(asked(transient, "x")), "UPLOAD_TRANSIENT");
  EXPECT_EQ(refusal(asked("../x", "x")), "NAME_INVALID");
  EXPECT_EQ(refusal(asked(id, "x"), "not a name"), "CLIENT_INVALID");
  EXPECT_THAT(files(), ::testing::IsEmpty());
  EXPECT_EQ(import_upload(asked(half, "x")).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(import_upload(asked(id, "../x")).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(DataServiceTest, AFileThatIsThereStaysUnlessItIsToBeReplaced) {
  const std::string id = send("a.txt", "new");
  folder_.write("data/a.txt", "old");
  const grpc::Status refused = import_upload(asked(id, "a.txt"));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(info_of(refused).metadata().at("field"), "path");
  EXPECT_EQ(file_text(data() / "a.txt"), "old");
  auto replacing = asked(id, "a.txt");
  replacing.set_overwrite(true);
  EXPECT_EQ(refusal(replacing), "");
  EXPECT_EQ(file_text(data() / "a.txt"), "new");
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(DataServiceTest, ARepeatOfARequestWritesNothing) {
  const std::string id = send("a.txt", "abc");
  auto request = asked(id, "a.txt");
  request.set_request_id("once");
  EXPECT_EQ(refusal(request), "");
  folder_.write("data/a.txt", "changed since");
  v1::ImportedFile made;
  EXPECT_TRUE(import_upload(request, &made).ok());
  EXPECT_EQ(made.sha256(), sha256_of("abc"));
  EXPECT_EQ(file_text(data() / "a.txt"), "changed since");
  fs::remove(data() / "a.txt");
  EXPECT_EQ(refusal(request), "") << "whatever has become of the file";
  EXPECT_THAT(files(), ::testing::IsEmpty());
  folder_.write("data/a.txt", "written since");
  auto other = request;
  other.set_path("b.txt");
  EXPECT_EQ(refusal(other), "REQUEST_ID_REUSED");
  // After a restart, too.
  stop();
  reopen_as_killed();
  serve(data());
  EXPECT_EQ(refusal(request), "");
  request.set_request_id("twice");
  EXPECT_EQ(refusal(request), "ALREADY_EXISTS");
  uploads().abort("me", id, {});
  request.set_request_id("once");
  EXPECT_EQ(refusal(request), "UPLOAD_NOT_FOUND");
}

TEST_F(DataServiceTest, PathsAreCheckedBeforeThereIsAnUpload) {
  v1::ImportUploadRequest request;
  request.set_validate_only(true);
  request.set_path("a.txt");
  v1::ImportedFile seen;
  EXPECT_TRUE(import_upload(request, &seen).ok());
  EXPECT_EQ(seen.path(), "a.txt");
  request.set_path("more/of/it/a.txt");
  v1::ImportedFile below;
  EXPECT_TRUE(import_upload(request, &below).ok()) << "its folders will be made";
  EXPECT_EQ(below.path(), "more/of/it/a.txt");
  EXPECT_THAT(files(), ::testing::IsEmpty());
}

TEST_F(DataServiceTest, NothingIsWrittenIntoTheStateFolder) {
  serve(folder_.path());
  const std::string id = send("a.txt", "abc");
  auto request = asked(id, state_name_ + "/journal");
  request.set_overwrite(true);
  EXPECT_EQ(refusal(request), "INVALID_ARGUMENT");
  EXPECT_EQ(refusal(asked(id, state_name_ + "/more.txt")), "INVALID_ARGUMENT");
  EXPECT_EQ(refusal(asked(id, "data/a.txt")), "");
}

TEST_F(DataServiceTest, AFullDiskLeavesNothing) {
  const std::string id = send("a.txt", random_bytes(3 << 20, 2));
  {
    const test::FileSizeLimit limit(2 << 20);
    EXPECT_EQ(refusal(asked(id, "a.txt")), "DISK_FULL");
  }
  EXPECT_THAT(files(), ::testing::IsEmpty());
  const test::SmallDisk disk(2);
  if (!disk.mounted()) GTEST_SKIP() << "only root can mount a small disk";
  serve(disk / "");
  const grpc::Status status = import_upload(asked(id, "a.txt"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(info_of(status).reason(), "DISK_FULL");
  EXPECT_EQ(info_of(status).metadata().count("available_bytes"), 1u) << "known before";
  EXPECT_TRUE(fs::is_empty(disk / ""));
}

TEST_F(DataServiceTest, BytesThatWereDamagedAreNoFile) {
  const std::string id = send("a.txt", "abc");
  const fs::path blob = uploads().content("me", id).path;
  fs::permissions(blob, fs::perms::owner_write, fs::perm_options::add);
  std::ofstream(blob) << "abd";
  const grpc::Status status = import_upload(asked(id, "a.txt"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(info_of(status).reason(), "UPLOAD_DAMAGED");
  EXPECT_THAT(files(), ::testing::IsEmpty());
}

TEST_F(DataServiceTest, ACallThatIsCancelledMakesTheWholeFileOrNone) {
  const std::string bytes = random_bytes(32 << 20, 3);
  const std::string id = send("a.txt", bytes);
  {
    grpc::ClientContext context;
    introduce(context);
    const auto reader = stub_->ImportUpload(&context, asked(id, "a.txt"));
    // Once it has begun.
    EXPECT_TRUE(test::eventually([&] { return !files().empty(); }));
    context.TryCancel();
    v1::ImportUploadResponse response;
    while (reader->Read(&response)) continue;
    reader->Finish();
  }
  EXPECT_TRUE(test::eventually([&] { return !fs::exists(data() / ".a.txt.new"); }));
  if (fs::exists(data() / "a.txt")) {
    EXPECT_EQ(file_text(data() / "a.txt"), bytes);
  }
  EXPECT_LE(files().size(), 1u);
}

}  // namespace
}  // namespace meshloom::control
