// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/model_store.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "daemon/train/files/hf_folder.h"
#include "daemon/train/files/safetensors.h"
#include "tests/support/source_folder.h"
#include "tests/unit/control/stores/transfer_fixture.h"

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kGolden = test::source_file("tests/golden/model/gpt2_hf");

class ModelStoreTest : public TransferTest {
 protected:
  /// The golden folder's tensors, to be changed.
  std::vector<train::NamedView> tensors() {
    golden_ = train::SafetensorsFile::open(kGolden / "model.safetensors");
    std::vector<train::NamedView> list;
    for (const auto& entry : golden_->entries()) list.push_back({entry.name, golden_->view(entry)});
    return list;
  }
  /// The bytes of a file with these tensors.
  std::string safetensors(const std::vector<train::NamedView>& list) const {
    train::write_safetensors(folder_ / "made.safetensors", list);
    return file_text(folder_ / "made.safetensors");
  }
  using Files = std::map<std::string, std::string>;
  static Files golden() {
    return {{"config.json", file_text(kGolden / "config.json")},
            {"model.safetensors", file_text(kGolden / "model.safetensors")},
            {"tokenizer.json", "{}"}};
  }
  v1::CreateModelRequest sent(const std::string& name, const Files& files) {
    v1::CreateModelRequest request;
    request.set_name(name);
    for (const auto& [file, bytes] : files) {
      v1::UploadedFile& item = *request.mutable_uploads()->add_files();
      item.set_name(file);
      item.set_upload(send(file, bytes));
    }
    return request;
  }
  v1::Model make(const v1::CreateModelRequest& request) {
    return models().create("me", request, make_request_key("CreateModel", request, "me"));
  }
  std::string refusal(const v1::CreateModelRequest& request) {
    try {
      make(request);
    } catch (const Error& error) {
      return fmt::format("{}: {}", error.reason(), error.what());
    }
    return "";
  }
  void write_data_folder() const {
    fs::create_directories(data() / "hf");
    for (const auto& [name, bytes] : golden()) folder_.write("data/hf/" + name, bytes);
  }

  std::shared_ptr<train::SafetensorsFile> golden_;
};

TEST_F(ModelStoreTest, UploadsBecomeAFolderThatLoadsAndSurvivesAKill) {
  open();
  const v1::Model model = make(sent("mine", golden()));
  EXPECT_EQ(model.name(), "models/mine");
  EXPECT_EQ(model.architecture(), "gpt2");
  EXPECT_TRUE(model.has_weights());
  EXPECT_EQ(model.file_count(), 3);
  for (int restart = 0; restart < 2; ++restart) {
    const fs::path folder = models().folder("mine");
    for (const auto& [name, bytes] : golden()) EXPECT_EQ(file_text(folder / name), bytes);
    EXPECT_EQ(fs::hard_link_count(folder / "model.safetensors"), 2u) << "no second copy";
    train::check_hf_folder(folder);
    reopen_as_killed();
  }
  // What of a folder was lost is made again from the blobs.
  fs::remove_all(state() / "models/mine");
  stores_.reset();
  open();
  train::check_hf_folder(models().folder("mine"));
}

TEST_F(ModelStoreTest, ShardsWithAnIndexAreAModel) {
  open();
  const auto all = tensors();
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  const std::vector<train::NamedView> first(all.begin(), middle), second(middle, all.end());
  nlohmann::json index;
  for (const auto& item : first)
    index["weight_map"][item.name] = "model-00001-of-00002.safetensors";
  for (const auto& item : second)
    index["weight_map"][item.name] = "model-00002-of-00002.safetensors";
  const Files files = {{"config.json", file_text(kGolden / "config.json")},
                       {"model.safetensors.index.json", index.dump()},
                       {"model-00001-of-00002.safetensors", safetensors(first)},
                       {"model-00002-of-00002.safetensors", safetensors(second)}};
  EXPECT_EQ(make(sent("shards", files)).file_count(), 4);
  Files missing = files;
  missing.erase("model-00002-of-00002.safetensors");
  EXPECT_THAT(refusal(sent("missing", missing)), HasSubstr("model-00002-of-00002.safetensors"));
  Files crossed = files;
  std::swap(crossed["model-00001-of-00002.safetensors"],
            crossed["model-00002-of-00002.safetensors"]);
  EXPECT_THAT(refusal(sent("crossed", crossed)), HasSubstr("does not hold"));
}

TEST_F(ModelStoreTest, AnOutputHeadThatIsNotTheEmbeddingCounts) {
  open();
  const std::int64_t tied = make(sent("tied", golden())).parameters();
  tensors();
  const TensorView embedding = golden_->view("transformer.wte.weight");
  const Shape shape = embedding.shape;
  const std::int64_t size = numel(shape);
  std::vector<float> head(embedding.as<const float>(), embedding.as<const float>() + size);
  const auto parameters = [&](const std::string& name) {
    auto list = tensors();
    list.push_back({"lm_head.weight", make_view(head.data(), DType::kFloat32, shape)});
    Files files = golden();
    files["model.safetensors"] = safetensors(list);
    return make(sent(name, files)).parameters();
  };
  EXPECT_EQ(parameters("same"), tied);
  head.back() += 1.0f;
  EXPECT_EQ(parameters("other"), tied + size);
}

TEST_F(ModelStoreTest, WhatDoesNotFitItsConfigIsRefused) {
  open();
  const auto with = [&](const std::vector<train::NamedView>& list) {
    Files files = golden();
    files["model.safetensors"] = safetensors(list);
    return refusal(sent("wrong", files));
  };
  auto list = tensors();
  const std::string name = list.back().name;
  const train::NamedView last = list.back();
  list.pop_back();
  EXPECT_THAT(with(list), HasSubstr("missing tensors: " + name));
  list.push_back(last);
  list.push_back({"surplus", last.view});
  EXPECT_THAT(with(list), HasSubstr("unexpected tensors: surplus"));
  list.pop_back();
  list.back().view.dtype = DType::kInt32;
  EXPECT_THAT(with(list), HasSubstr("int32"));
  list.back() = last;
  ASSERT_GT(last.view.shape[0], 1);
  list.back().view = make_view(last.view.data, last.view.dtype, {1});
  EXPECT_THAT(with(list), HasSubstr("has shape"));
  Files files = golden();
  files["config.json"] = "{\"model_type\": \"unheard_of\"}";
  EXPECT_NE(refusal(sent("wrong", files)), "");
  files.erase("config.json");
  EXPECT_NE(refusal(sent("wrong", files)), "");
  files = golden();
  files.erase("model.safetensors");
  EXPECT_NE(refusal(sent("wrong", files)), "");
  EXPECT_TRUE(models().list(0, 10).first.empty());
  EXPECT_TRUE(fs::is_empty(state() / "models/.new")) << "nothing is left of what was refused";
}

TEST_F(ModelStoreTest, HeadersAreCheckedBeforeTheWeightsAreThere) {
  open();
  const std::string bytes = golden().at("model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  v1::CreateModelRequest request = sent("", {{"config.json", golden().at("config.json")}});
  request.set_validate_only(true);
  const std::string id = create("model.safetensors", bytes);
  v1::UploadedFile& weights = *request.mutable_uploads()->add_files();
  weights.set_name("model.safetensors");
  weights.set_upload("uploads/" + id);
  append(*uploads().open_writer("me", id), bytes.substr(0, length));
  EXPECT_THAT(refusal(request), HasSubstr("UPLOAD_INCOMPLETE"));
  append(*uploads().open_writer("me", id), bytes.substr(length, 8));
  EXPECT_EQ(refusal(request), "");
  // A header of another model.
  auto list = tensors();
  list.pop_back();
  const std::string other = safetensors(list);
  std::memcpy(&length, other.data(), sizeof length);
  const std::string wrong = create("model.safetensors", other);
  append(*uploads().open_writer("me", wrong), other.substr(0, length + 8));
  weights.set_upload("uploads/" + wrong);
  EXPECT_THAT(refusal(request), HasSubstr("missing tensors"));
  // A model is made of whole files only, and the look at it leaves them writable.
  request.set_validate_only(false);
  request.set_name("early");
  weights.set_upload("uploads/" + id);
  EXPECT_THAT(refusal(request), HasSubstr("UPLOAD_INCOMPLETE"));
  const auto there = static_cast<std::size_t>(uploads().get("me", id).committed_bytes());
  append(*uploads().open_writer("me", id), bytes.substr(there));
  uploads().finish("me", id);
  EXPECT_EQ(refusal(request), "");
}

TEST_F(ModelStoreTest, UploadsOfOthersAndWrongNamesAreRefused) {
  open();
  auto request = sent("mine", golden());
  EXPECT_EQ(reason_of([&] { models().create("other", request, {}); }), "UPLOAD_NOT_FOUND");
  request.mutable_uploads()->mutable_files(0)->set_name("../config.json");
  EXPECT_THAT(refusal(request), HasSubstr("uploads.files[0].name"));
  request.mutable_uploads()->mutable_files(0)->set_name(request.uploads().files(1).name());
  EXPECT_THAT(refusal(request), HasSubstr("is there twice"));
  for (const std::string name : {"", "Mine", "../x", "a/b", ".new"}) {
    v1::CreateModelRequest preset;
    preset.set_preset("byte_gpt_tiny");
    preset.set_name(name);
    EXPECT_THAT(refusal(preset), HasSubstr("NAME_INVALID")) << name;
  }
  v1::CreateModelRequest none;
  none.set_name("none");
  EXPECT_THAT(refusal(none), HasSubstr("give one of"));
}

TEST_F(ModelStoreTest, PresetsAndConfigsAreTrainedFromScratch) {
  open();
  v1::CreateModelRequest request;
  request.set_name("preset");
  request.set_preset("byte_gpt_tiny");
  EXPECT_FALSE(make(request).has_weights());
  request.set_name("config");
  request.set_config(golden().at("config.json"));
  EXPECT_EQ(make(request).preset(), "");
  request.set_name("wrong");
  request.set_config("{}");
  EXPECT_NE(refusal(request), "");
  request.set_config(R"({"model_type": "llama", "n_embd": 64})");
  EXPECT_THAT(refusal(request), HasSubstr("n_embd is no key of LlamaForCausalLM (did you mean "
                                          "hidden_size?)"));
  request.set_preset("unknown");
  EXPECT_NE(refusal(request), "");
  reopen_as_killed();
  for (const std::string name : {"preset", "config"}) {
    EXPECT_TRUE(fs::exists(models().folder(name) / "config.json"));
    EXPECT_FALSE(train::has_hf_weights(models().folder(name)));
  }
}

TEST_F(ModelStoreTest, AFolderOfTheDataDirMustStayWhatItWas) {
  open();
  write_data_folder();
  v1::CreateModelRequest request;
  request.set_name("data");
  request.set_data_folder("hf");
  EXPECT_TRUE(make(request).has_weights());
  EXPECT_EQ(models().folder("data"), data() / "hf");
  folder_.write("data/hf/README.md", "more");
  EXPECT_EQ(models().folder("data"), data() / "hf");
  std::string changed = golden().at("model.safetensors");
  changed.back() = static_cast<char>(changed.back() ^ 1);
  folder_.write("data/hf/model.safetensors", changed);
  EXPECT_EQ(reason_of([&] { models().folder("data"); }), "DATA_CHANGED");
  write_data_folder();
  EXPECT_EQ(models().folder("data"), data() / "hf");
  fs::remove(data() / "hf/config.json");
  EXPECT_EQ(reason_of([&] { models().folder("data"); }), "DATA_CHANGED");
  fs::remove_all(data() / "hf");
  reopen_as_killed();
  EXPECT_EQ(reason_of([&] { models().folder("data"); }), "DATA_CHANGED");
  request.set_name("outside");
  request.set_data_folder("../state");
  EXPECT_THAT(refusal(request), HasSubstr("INVALID_PATH"));
}

TEST_F(ModelStoreTest, AModelThatIsUsedStays) {
  open();
  v1::CreateModelRequest request;
  request.set_name("used");
  request.set_preset("byte_gpt_tiny");
  make(request);
  Hold first = models().hold("used", "runs/one");
  Hold second = models().hold("used", "runs/one");
  EXPECT_THAT(models().get("used").users(), ElementsAre("runs/one", "runs/one"));
  EXPECT_EQ(reason_of([&] { models().remove("used", {}); }), "MODEL_IN_USE");
  first.release();
  EXPECT_EQ(reason_of([&] { models().remove("used", {}); }), "MODEL_IN_USE");
  second.release();
  v1::JobSpec spec;
  spec.set_name("x");
  spec.mutable_run()->mutable_model()->set_name("used");
  stores_->jobs.submit(spec, spec.run(), {});
  EXPECT_EQ(reason_of([&] { models().remove("used", {}); }), "MODEL_IN_USE");
  stores_->jobs.cancel("x", {});
  models().remove("used", {});
  EXPECT_EQ(reason_of([&] { models().folder("used"); }), "MODEL_NOT_FOUND");
  EXPECT_EQ(reason_of([&] { models().hold("used", "runs/one"); }), "MODEL_NOT_FOUND");
  make(request);
  EXPECT_EQ(reason_of([&] { make(request); }), "MODEL_EXISTS");
  reopen_as_killed();
  EXPECT_EQ(models().list(0, 10).first.size(), 1u);
}

TEST_F(ModelStoreTest, AJobThatHasNotEndedUsesItsModel) {
  open();
  v1::JobSpec spec;
  spec.set_name("job");
  spec.mutable_run()->mutable_model()->set_name("mine");
  stores_->jobs.submit(spec, spec.run(), {});
  EXPECT_EQ(stores_->uses->config_with_model("mine"), "jobs/job");
  EXPECT_EQ(stores_->uses->config_with_model("other"), std::nullopt);
  reopen_as_killed();
  EXPECT_EQ(stores_->uses->config_with_model("mine"), "jobs/job");
  stores_->jobs.cancel("job", {});
  EXPECT_EQ(stores_->uses->config_with_model("mine"), std::nullopt);
}

TEST_F(ModelStoreTest, BytesOfAModelStayWhenTheirUploadsEnd) {
  limits_.set_keep_blobs_seconds(1);
  open();
  const auto request = sent("mine", golden());
  make(request);
  for (const auto& file : request.uploads().files()) uploads().abort("me", file.upload(), {});
  const auto blobs = [&] {
    return std::distance(fs::directory_iterator(state() / "blobs"), fs::directory_iterator()) - 1;
  };
  for (int i = 0; i < 4; ++i) {
    uploads().upkeep();
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  }
  EXPECT_EQ(blobs(), 3);
  models().remove("mine", {});
  for (int i = 0; i < 5; ++i) {
    uploads().upkeep();
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  }
  EXPECT_EQ(blobs(), 0);
}

TEST_F(ModelStoreTest, ARepeatedRequestGetsTheFirstModel) {
  open();
  v1::CreateModelRequest request;
  request.set_request_id("request-1");
  request.set_name("one");
  request.set_preset("byte_gpt_tiny");
  make(request);
  EXPECT_EQ(make(request).name(), "models/one");
  reopen_as_killed();
  EXPECT_EQ(make(request).name(), "models/one");
  auto other = request;
  other.set_name("two");
  EXPECT_EQ(reason_of([&] { make(other); }), "REQUEST_ID_REUSED");
  models().remove("one", {});
  EXPECT_EQ(reason_of([&] { make(request); }), "MODEL_NOT_FOUND");
}

TEST_F(ModelStoreTest, ListsComeInPages) {
  open();
  v1::CreateModelRequest request;
  request.set_preset("byte_gpt_tiny");
  for (int i = 0; i < 7; ++i) {
    request.set_name(fmt::format("model-{}", i));
    make(request);
  }
  std::vector<std::string> names;
  std::int64_t position = 0;
  do {
    const auto [page, next] = models().list(position, 3);
    for (const auto& model : page) names.push_back(model.name());
    position = next;
  } while (position > 0);
  ASSERT_EQ(names.size(), 7u);
  EXPECT_EQ(names[6], "models/model-6");
}

}  // namespace
}  // namespace meshloom::control
