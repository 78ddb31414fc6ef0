// SPDX-License-Identifier: Apache-2.0
// What of a folder is sent, and what is not although it lies there.
#include "daemon/cli/models/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/cli/exit_code.h"
#include "tests/support/temp_folder.h"

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(const std::vector<fs::path>& paths) {
  std::vector<std::string> all;
  for (const fs::path& path : paths) all.push_back(path.filename().string());
  return all;
}

std::string refusal(const fs::path& folder) {
  try {
    model_folder(folder);
  } catch (const CliError& error) {
    EXPECT_EQ(error.code(), kUsage);
    return error.what();
  }
  return "";
}

TEST(ModelFolder, HasTheFilesOfAModelAndNoOthers) {
  const test::TempFolder folder;
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "chat_template.jinja", "model.safetensors"})
    folder.write(name, "{}");
  for (const char* name : {"README.md", "notes.txt", "passwords.json", "other.safetensors",
                           "pytorch_model.bin", ".hidden.json", "sub/config.json"})
    folder.write(name, "{}");
  const ModelFolder found = model_folder(folder.path());
  EXPECT_THAT(names(found.small), ::testing::UnorderedElementsAre(
                                      "config.json", "generation_config.json", "tokenizer.json",
                                      "tokenizer_config.json", "chat_template.jinja"));
  EXPECT_EQ(found.small.front().filename(), "config.json");
  EXPECT_THAT(names(found.weights), ElementsAre("model.safetensors"));
  EXPECT_THAT(found.left_out, ElementsAre("pytorch_model.bin"));
}

TEST(ModelFolder, ShardsAreThoseOfTheIndex) {
  const test::TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors",
                                  "c": "m-2.safetensors"}})");
  for (const char* name : {"m-1.safetensors", "m-2.safetensors", "m-3.safetensors"})
    folder.write(name, "x");
  EXPECT_THAT(names(model_folder(folder.path()).weights),
              ElementsAre("m-1.safetensors", "m-2.safetensors"));
  fs::remove(folder / "m-1.safetensors");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("m-1.safetensors, which is not there"));
  for (const char* name : {"../m-2.safetensors", "/etc/x.safetensors", "config.json"}) {
    folder.write("model.safetensors.index.json",
                 std::string(R"({"weight_map": {"a": ")") + name + "\"}}");
    EXPECT_THAT(refusal(folder.path()), HasSubstr("names no safetensors file of this folder"));
  }
  folder.write("model.safetensors.index.json", "{\"weight_map\": ");
  EXPECT_NE(refusal(folder.path()), "");
}

TEST(ModelFolder, WithoutAConfigThereIsNoModel) {
  const test::TempFolder folder;
  folder.write("model.safetensors", "x");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("has no config.json"));
  EXPECT_THAT(refusal(folder / "nowhere"), HasSubstr("nowhere"));
  EXPECT_THAT(refusal(folder / "model.safetensors"), HasSubstr("is no folder"));
  folder.write("config.json", "not JSON");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("config.json"));
  folder.write("config.json", "[1]");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("an object of JSON"));
}

TEST(ModelFolder, LinksOutOfItAreRefused) {
  const test::TempFolder folder;
  folder.write("secret.json", "{}");
  folder.write("model/config.json", "{}");
  for (const char* name : {"tokenizer.json", "model.safetensors", "generation_config.json"}) {
    fs::create_symlink(folder / "secret.json", folder / "model" / name);
    EXPECT_THAT(refusal(folder / "model"), HasSubstr("outside of")) << name;
    EXPECT_THAT(refusal(folder / "model"), HasSubstr("secret.json")) << name;
    fs::remove(folder / "model" / name);
  }
  // Inside it they are followed, and what is not known is not looked at.
  fs::create_symlink("config.json", folder / "model/tokenizer_config.json");
  fs::create_symlink(folder / "secret.json", folder / "model/unknown.json");
  EXPECT_EQ(refusal(folder / "model"), "");
  fs::remove(folder / "model/config.json");
  fs::create_symlink(folder / "secret.json", folder / "model/config.json");
  EXPECT_THAT(refusal(folder / "model"), HasSubstr("outside of"));
}

TEST(ModelFolder, OfHuggingFacesCacheIsMadeOfLinksToItsBlobs) {
  const test::TempFolder hub;
  const fs::path model = hub / "models--org--name", snapshot = model / "snapshots/0123abcd";
  hub.write("models--org--name/blobs/aa", "{}");
  hub.write("models--org--name/blobs/bb", "weights");
  hub.write("models--other/blobs/cc", "another model's");
  fs::create_directories(snapshot);
  fs::create_symlink("../../blobs/aa", snapshot / "config.json");
  fs::create_symlink("../../blobs/bb", snapshot / "model.safetensors");
  const ModelFolder found = model_folder(snapshot);
  EXPECT_THAT(names(found.small), ElementsAre("config.json"));
  EXPECT_THAT(names(found.weights), ElementsAre("model.safetensors"));
  // By another name of the folder, too.
  fs::create_directory_symlink(snapshot, hub / "mine");
  EXPECT_THAT(names(model_folder(hub / "mine").weights), ElementsAre("model.safetensors"));
  fs::create_symlink("../../../models--other/blobs/cc", snapshot / "tokenizer.json");
  EXPECT_THAT(refusal(snapshot), HasSubstr("outside of"));
}

TEST(ModelFolder, AFileHasToBeOne) {
  const test::TempFolder folder;
  folder.write("config.json", "{}");
  fs::create_directory(folder / "model.safetensors");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("is no file"));
}

}  // namespace
}  // namespace meshloom::cli
