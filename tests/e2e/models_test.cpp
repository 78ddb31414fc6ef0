// SPDX-License-Identifier: Apache-2.0
// Uploads and models through the client, over kills of the daemon, and jobs that train from them.
#include <fmt/format.h>

#include <fstream>
#include <random>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

class ModelsE2e : public DaemonTest {
 protected:
  std::map<int, double> losses_from(const std::string& model, const std::string& name) {
    TinyJob tiny;
    tiny.steps = 5;
    tiny.model = model;
    submit(tiny, name);
    EXPECT_TRUE(reaches(name, "succeeded")) << job(name).dump(2);
    return step_losses(name);
  }
  std::int64_t committed_of(const std::string& file) {
    const Json all = client_json({"upload", "list"});
    for (const Json& upload : all.value("uploads", Json::array()))
      if (upload["file_name"] == file) return upload.value("committed_bytes", std::int64_t{0});
    return 0;
  }
  std::string big_file(const std::string& name, std::size_t bytes) {
    const fs::path path = folder_ / name;
    std::ofstream out(path, std::ios::binary);
    std::mt19937_64 random(1);
    std::string block(1 << 20, '\0');
    for (std::size_t at = 0; at < bytes; at += block.size()) {
      for (std::size_t i = 0; i < block.size(); i += 8) {
        const std::uint64_t value = random();
        std::copy_n(reinterpret_cast<const char*>(&value), 8, &block[i]);
      }
      out.write(block.data(), static_cast<std::streamsize>(std::min(block.size(), bytes - at)));
    }
    return path.string();
  }
};

TEST_F(ModelsE2e, AnUploadedModelTrainsAsTheSameFolder) {
  start(2);
  export_first(data_ / "hf");
  const auto made = client({"model", "create", "mine", (data_ / "hf").string()});
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  EXPECT_NE(made.errors.find("model.safetensors"), std::string::npos) << made.errors;
  EXPECT_EQ(client({"model", "create", "data", "--from-data-dir", "hf"}).exit_code, 0);
  EXPECT_EQ(client({"model", "create", "fresh", "--preset", "byte_gpt_tiny"}).exit_code, 0);

  const auto expected = losses_from("{hf_folder: hf}", "from-folder");
  ASSERT_EQ(expected.size(), 5u);
  EXPECT_EQ(losses_from("{name: mine}", "from-upload"), expected);
  EXPECT_EQ(losses_from("{name: models/data}", "from-data"), expected);
  EXPECT_EQ(losses_from("{name: fresh}", "from-fresh"),
            losses_from("{preset: byte_gpt_tiny}", "from-preset"));

  // A second client has to send the same bytes, this one has not.
  const auto again = client({"model", "create", "again", (data_ / "hf").string()});
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_NE(again.errors.find("model.safetensors: "), std::string::npos);
  EXPECT_NE(again.errors.find("sent already"), std::string::npos) << again.errors;
  const auto other =
      client({"--client", "other", "model", "create", "other", (data_ / "hf").string()});
  EXPECT_EQ(other.errors.find("sent already"), std::string::npos) << other.errors;

  // They are there after a kill, and go on being trained from.
  kill_everything();
  start(2);
  EXPECT_EQ(losses_from("{name: mine}", "after-kill"), expected);
  EXPECT_EQ(client({"model", "delete", "mine"}).exit_code, 0);
  expect_refused_for({"job", "submit", write_job({.model = "{name: mine}"})}, "MODEL_NOT_FOUND");
  shut_down();
}

TEST_F(ModelsE2e, OfAFolderThatIsNoneNothingIsSent) {
  start(1);
  export_first(data_ / "hf");
  const auto uploads = [&] {
    return client_json({"upload", "list"}).value("uploads", Json::array()).size();
  };
  const auto refused = [&](const fs::path& folder) {
    const auto made = client({"model", "create", "x", folder.string()});
    EXPECT_EQ(made.exit_code, 2) << made.errors;
    EXPECT_EQ(uploads(), 0u) << made.errors;
    return made.errors;
  };
  // A folder of something else, with files that a model might have.
  fs::create_directory(folder_ / "other");
  std::ofstream(folder_ / "other/settings.json") << "{}";
  fs::copy_file(data_ / "hf/model.safetensors", folder_ / "other/model.safetensors");
  EXPECT_NE(refused(folder_ / "other").find("no config.json"), std::string::npos);
  // A link that leads out of a model.
  std::ofstream(folder_ / "secret") << "{\"a\": \"secret\"}";
  fs::copy(data_ / "hf", folder_ / "linked");
  fs::remove(folder_ / "linked/tokenizer.json");
  fs::create_symlink(folder_ / "secret", folder_ / "linked/tokenizer.json");
  EXPECT_NE(refused(folder_ / "linked").find("outside of"), std::string::npos);
  // What nobody knows stays, and Hugging Face's cache is made of links.
  const fs::path cached = folder_ / "hub/models--a--b", snapshot = cached / "snapshots/0a1b";
  fs::create_directories(snapshot);
  fs::create_directories(cached / "blobs");
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy_file(data_ / "hf" / name, cached / "blobs" / name);
    fs::create_symlink(fs::path("../../blobs") / name, snapshot / name);
  }
  std::ofstream(snapshot / "passwords.txt") << "secret";
  fs::create_symlink(folder_ / "secret", snapshot / "notes.json");
  ASSERT_EQ(client({"model", "create", "cached", snapshot.string()}).exit_code, 0);
  const Json files = client_json({"model", "show", "cached"})["files"];
  EXPECT_EQ(files.size(), 2u) << files.dump(2);
  shut_down();
}

TEST_F(ModelsE2e, AJournalThatWasMovedAwayFindsEverythingWhenItIsPutBack) {
  start(1);
  export_first(data_ / "hf");
  ASSERT_EQ(client({"model", "create", "mine", (data_ / "hf").string()}).exit_code, 0);
  const auto expected = losses_from("{name: mine}", "before");
  EXPECT_EQ(client_json({"status"}).value("lost", Json::array()).size(), 0u);
  shut_down();
  const fs::path journal = state_ / "journal", aside = folder_ / "journal";
  const std::string whole = read_file(journal);
  // A file that is no journal is refused, and says what to do.
  std::ofstream(journal, std::ios::binary) << whole.substr(0, 20) << std::string(100, 'x');
  const auto broken = launch(1, {"--listen", "127.0.0.1:0"}, "broken.log");
  EXPECT_EQ(broken->wait(20s), 1);
  const std::string advice = read_file(folder_ / "broken.log");
  EXPECT_NE(advice.find("move it away"), std::string::npos) << advice;
  EXPECT_NE(advice.find("are kept in " + (state_ / "lost").string()), std::string::npos) << advice;
  fs::remove(journal);
  std::ofstream(aside, std::ios::binary) << whole;
  start(1);
  EXPECT_EQ(client({"model", "show", "mine"}).exit_code, 1);
  const Json lost = client_json({"status"}).value("lost", Json::array());
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_GT(lost[0]["size_bytes"].get<std::int64_t>(),
            static_cast<std::int64_t>(fs::file_size(data_ / "hf/model.safetensors")));
  const std::string folder = (state_ / lost[0]["folder"].get<std::string>()).string();
  EXPECT_NE(client({"status"}).output.find("in " + folder), std::string::npos);
  EXPECT_NE(daemon_log().find("are kept in " + folder), std::string::npos);
  EXPECT_EQ(client({"model", "create", "mine", "--preset", "byte_gpt_tiny"}).exit_code, 0);
  shut_down();
  fs::rename(aside, journal);
  start(1);
  EXPECT_EQ(step_losses("before"), expected);
  EXPECT_EQ(losses_from("{name: mine}", "after"), expected);
  shut_down();
}

TEST_F(ModelsE2e, AKilledDaemonGoesOnFromWhatIsCommitted) {
  start(1);
  constexpr std::size_t kBytes = std::size_t{300} << 20;
  const std::string file = big_file("tokens.bin", kBytes);
  Process upload({test::program("meshloom"), "--address", address_, "upload", file},
                 folder_ / "upload.log", folder_ / "upload.err");
  ASSERT_TRUE(eventually(60s, [&] { return committed_of("tokens.bin") > 0; }));
  kill_everything();
  const auto code = upload.wait(60s);
  ASSERT_TRUE(code);
  start(1);
  const std::int64_t there = committed_of("tokens.bin");
  EXPECT_GT(there, 0);
  const auto rest = client({"upload", file, "--json"}, 120s);
  ASSERT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_EQ(Json::parse(rest.output)["state"], "complete") << rest.output;
  EXPECT_EQ(client_json({"upload", "list"})["uploads"].size(), 1u) << "no second one was begun";
  const auto name = Json::parse(rest.output)["name"].get<std::string>();
  EXPECT_EQ(client({"upload", "abort", name}).exit_code, 0);
  shut_down();
}

TEST_F(ModelsE2e, RefusalsLeaveATrainingJobAlone) {
  start_with("uploads: {client_bytes: 3000000}");
  export_first(data_ / "hf");
  submit_endless("dp2", "beside", 3);
  TinyJob second;
  second.steps = 1'000'000;
  second.model = "{name: held}";
  EXPECT_EQ(client({"model", "create", "held", "--preset", "byte_gpt_tiny"}).exit_code, 0);
  submit(second, "waiting");
  expect_refused_for({"model", "delete", "held"}, "MODEL_IN_USE");
  expect_refused_for({"model", "create", "held", "--preset", "byte_gpt_tiny"}, "MODEL_EXISTS");
  expect_refused_for({"model", "create", "Bad", "--preset", "byte_gpt_tiny"}, "NAME_INVALID");
  expect_refused_for({"model", "create", "x", "--preset", "unheard_of"}, "NOT_FOUND");
  expect_refused_for({"model", "create", "x", "--from-data-dir", "../state"}, "INVALID_PATH");
  expect_refused_for({"model", "show", "x"}, "MODEL_NOT_FOUND");
  expect_refused_for({"upload", "abort", "upload-99"}, "UPLOAD_NOT_FOUND");
  expect_refused_for({"upload", big_file("big.bin", 4 << 20)}, "QUOTA_EXCEEDED");
  const fs::path broken = folder_ / "broken";
  fs::copy(data_ / "hf", broken);
  fs::copy_file(test::source_file("tests/golden/malformed/overlapping_offsets.safetensors"),
                broken / "model.safetensors", fs::copy_options::overwrite_existing);
  expect_refused_for({"model", "create", "x", broken.string()}, "MALFORMED_SAFETENSORS");
  fs::copy_file(test::source_file("tests/golden/malformed/good.safetensors"),
                broken / "model.safetensors", fs::copy_options::overwrite_existing);
  expect_refused_for({"model", "create", "x", broken.string()}, "INVALID_HF_FOLDER");
  // The same headers are looked at whatever the weights are for.
  fs::copy(broken, data_ / "broken");
  const std::string of_broken = write_job({.model = "{hf_folder: broken}"});
  expect_refused_for({"job", "submit", of_broken}, "INVALID_HF_FOLDER");
  expect_refused_for({"job", "submit", of_broken, "--dry-run"}, "INVALID_HF_FOLDER");
  expect_refused_for({"generate", "--hf-folder", "broken", "--prompt", "a"}, "INVALID_HF_FOLDER");
  std::ofstream(data_ / "broken/model.safetensors")
      << "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  expect_refused_for({"job", "submit", of_broken}, "GIT_LFS_POINTER");
  expect_refused_for({"generate", "--hf-folder", "broken", "--prompt", "a"}, "GIT_LFS_POINTER");
  EXPECT_EQ(client({"model", "create", "data", "--from-data-dir", "hf"}).exit_code, 0);
  TinyJob late;
  late.model = "{name: data}";
  submit(late, "late");
  {
    std::fstream weights(data_ / "hf/model.safetensors",
                         std::ios::in | std::ios::out | std::ios::binary);
    weights.seekp(-1, std::ios::end);
    weights.put('\x7F');
  }
  expect_refused_for({"job", "submit", write_job({.model = "{name: data}"})}, "DATA_CHANGED");
  const int step = job("beside")["step"];
  EXPECT_TRUE(reaches_step("beside", step + 3)) << job("beside").dump(2);
  EXPECT_EQ(client({"job", "cancel", "waiting"}).exit_code, 0);
  EXPECT_EQ(client({"model", "delete", "held"}).exit_code, 0);
  EXPECT_EQ(client({"job", "cancel", "beside"}).exit_code, 0);
  // What has changed while a job waited is found when it begins.
  ASSERT_TRUE(reaches("late", "failed")) << job("late").dump(2);
  EXPECT_EQ(job("late")["error"]["info"]["reason"], "DATA_CHANGED") << job("late").dump(2);
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
