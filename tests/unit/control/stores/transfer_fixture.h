// SPDX-License-Identifier: Apache-2.0
// Uploads, models and jobs on one journal, and what a killed daemon would leave of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>

#include "daemon/base/crc32c.h"
#include "daemon/base/sha256.h"
#include "daemon/control/stores/model_store.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/upload_store.h"
#include "daemon/control/stores/upload_writer.h"
#include "tests/support/file_text.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/open_job_store.h"

namespace meshloom::control {

using test::file_text;
using test::reason_of;

/// The stores of a daemon.
struct Stores {
  Stores(const std::filesystem::path& state, const std::filesystem::path& data,
         const v1::UploadConfig& limits = {})
      : uploads({state / "blobs", with_upload_defaults(limits)}),
        models({.folder = state / "models", .data_dir = data, .uses = uses}, uploads),
        jobs(state / "journal", {.jobs_dir = state / "jobs", .uses = uses},
             {&uploads, &models, &runs}) {}

  const std::shared_ptr<const Uses> uses = std::make_shared<const Uses>(Uses::Configs{
      .jobs = [this](const ConfigTest& test) { return jobs.user_by_config(test); },
      .runs = [this](const ConfigTest& test) { return runs.user_by_config(test); },
      .models = [this](const ConfigTest& test) { return models.user_by_config(test); }});
  UploadStore uploads;
  ModelStore models;
  RunStore runs;
  OpenJobStore jobs;
};

inline std::string sha256_of(const std::string& bytes) {
  base::Sha256 digest;
  digest.update(std::as_bytes(std::span(bytes)));
  return digest.hex();
}

inline std::string random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

inline void append(ChunkWriter& writer, const std::string& bytes) {
  writer.append(writer.position(), bytes, base::crc32c(std::as_bytes(std::span(bytes))));
}

class TransferTest : public ::testing::Test {
 protected:
  TransferTest() {
    std::filesystem::create_directories(state());
    std::filesystem::create_directories(data());
  }
  std::filesystem::path state() const { return folder_ / state_name_; }
  std::filesystem::path data() const { return folder_ / "data"; }

  void open() { stores_ = std::make_unique<Stores>(state(), data(), limits_); }
  /// Opens the stores as after kill -9, with what is on disk at this moment, and nothing that an
  /// orderly end would do.
  void reopen_as_killed() {
    const std::string next = state_name_ + "x";
    const std::string copy =
        fmt::format("cp -a {} {}", state().string(), (folder_ / next).string());
    ASSERT_EQ(std::system(copy.c_str()), 0);
    stores_.reset();
    state_name_ = next;
    open();
  }
  UploadStore& uploads() { return stores_->uploads; }
  ModelStore& models() { return stores_->models; }

  static v1::CreateUploadRequest request(const std::string& name, const std::string& bytes,
                                         const std::string& id = "") {
    v1::CreateUploadRequest request;
    request.set_request_id(id);
    request.set_file_name(name);
    request.set_size_bytes(static_cast<std::int64_t>(bytes.size()));
    request.set_sha256(sha256_of(bytes));
    return request;
  }
  /// The upload's id.
  std::string create(const std::string& name, const std::string& bytes,
                     const std::string& client = "me", const std::string& request_id = "") {
    const auto asked = request(name, bytes, request_id);
    const v1::Upload upload =
        uploads().create(client, asked, make_request_key("CreateUpload", asked, client));
    return upload.name().substr(upload.name().find('/') + 1);
  }
  std::string send(const std::string& name, const std::string& bytes,
                   const std::string& client = "me") {
    const std::string id = create(name, bytes, client);
    if (uploads().get(client, id).state() != v1::UPLOAD_STATE_COMPLETE) {
      const auto writer = uploads().open_writer(client, id);
      for (std::size_t at = 0; at < bytes.size(); at += kLargestChunk)
        append(*writer, bytes.substr(at, kLargestChunk));
    }
    uploads().finish(client, id);
    return id;
  }

  test::TempFolder folder_;
  v1::UploadConfig limits_;
  std::string state_name_ = "state";
  std::unique_ptr<Stores> stores_;
};

}  // namespace meshloom::control
