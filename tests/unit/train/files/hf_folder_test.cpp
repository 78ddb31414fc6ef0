// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/hf_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/files/digest.h"
#include "daemon/train/files/export_digests.h"
#include "daemon/train/files/hf_byte_tokenizer.h"
#include "daemon/train/files/hf_names.h"
#include "kernels/base/error.h"
#include "kernels/base/half.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensor_elements.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/files/expect_holds.h"
#include "tests/unit/train/files/golden_folder.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;
using meshloom::test::TempFolder;
class HfFolders : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Golden, HfFolders,
                         ::testing::Values("gpt2_hf", "llama_hf", "llama3_rope_tied_hf",
                                           "llama_old_config_hf", "qwen2_hf", "qwen2_window_hf",
                                           "mistral_hf", "mistral_whole_hf", "qwen3_hf",
                                           "qwen3_window_hf", "bert_hf"));

TEST_P(HfFolders, SavingAndLoadingKeepsFloat32Exactly) {
  testing::TestContext context;
  TempFolder temp;
  const auto model = load_folder(context, kGolden / GetParam());
  save_hf_folder(temp.path() / "out", *model);
  const auto again = load_folder(context, temp.path() / "out");
  EXPECT_EQ(values_of(*again), values_of(*model));
  EXPECT_EQ(nn::to_hf_config(again->config()), nn::to_hf_config(model->config()));

  const auto written = SafetensorsFile::open(temp.path() / "out" / "model.safetensors");
  const auto golden = SafetensorsFile::open(kGolden / GetParam() / "model.safetensors");
  EXPECT_EQ(written->metadata().at("format"), "pt");
  ASSERT_EQ(written->entries().size(), golden->entries().size());
  for (const SafetensorsEntry& entry : golden->entries()) {
    ASSERT_TRUE(written->contains(entry.name)) << entry.name;
    EXPECT_EQ(written->find(entry.name)->shape, entry.shape);
  }
}

TEST(CarriedFiles, ThatCannotBeReadAreLeftOutWithANote) {
  TempFolder temp;
  temp.write("a.json", "{}");
  fs::create_directory(temp / "folder.json");
  const std::vector<fs::path> paths = {temp / "gone.json", temp / "a.json", temp / "folder.json"};
  std::vector<std::string> notes;
  const std::vector<CarriedFile> files = read_carried_files(paths, notes);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].name, "a.json");
  EXPECT_EQ(files[0].bytes, "{}");
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("gone.json"), std::string::npos) << notes[0];
}

TEST(HfFolder, TokenizerAndGenerationConfigGoAlong) {
  testing::TestContext context;
  TempFolder temp;
  const auto model = load_folder(context, kGolden / "gpt2_hf");
  temp.write("source/tokenizer.json", "{\"version\": \"1.0\"}");
  temp.write("source/tokenizer_config.json", "{}");
  temp.write("source/generation_config.json", "{\"top_k\": 7}");
  temp.write("source/other.txt", "stays");
  HfSaveOptions options;
  std::vector<std::string> notes;
  options.carried = read_carried_files(text::carried_files(temp / "source"), notes);
  EXPECT_TRUE(notes.empty());
  fs::rename(temp / "source", temp / "moved");
  save_hf_folder(temp.path() / "out", *model, options);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    std::ifstream before(temp / "moved" / name), after(temp / "out" / name);
    const auto text = [](std::ifstream& in) {
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    EXPECT_EQ(text(after), text(before)) << name;
  }
  EXPECT_FALSE(fs::exists(temp / "out" / "other.txt"));
}

TEST(HfFolder, TheDigestsOfAllItsFilesAreBesideThem) {
  testing::TestContext context;
  TempFolder temp;
  const auto model = load_folder(context, kGolden / "gpt2_hf");
  HfSaveOptions options{.max_file_bytes = 50'000};
  options.carried = {{"tokenizer_config.json", "{}"}, {"generation_config.json", "{\"top_k\": 7}"}};
  const fs::path out = temp.path() / "out";
  save_hf_folder(out, *model, options);
  const auto files = read_export_digests(out);
  ASSERT_TRUE(files);
  std::size_t there = 0;
  for (const auto& item : fs::directory_iterator(out))
    there += item.path().filename() == kExportDigestsName ? 0 : 1;
  EXPECT_EQ(files->size(), there) << "each once";
  EXPECT_GT(there, 5u) << "several files of weights, and their index";
  for (const ManifestFile& file : *files) {
    EXPECT_EQ(file.bytes, fs::file_size(out / file.name)) << file.name;
    EXPECT_EQ(file.xxh3_128, digest_of_file(out / file.name)) << file.name;
  }
  fs::remove(out / kExportDigestsName);
  EXPECT_FALSE(read_export_digests(out)) << "an export of an older version";
  for (const char* wrong :
       {"[", "{}", R"({"format": "other", "version": 1, "files": []})",
        R"({"format": "meshloom.digests", "version": 1, "files": [{"name": "../x",
                                "bytes": 1, "xxh3_128": ""}]})"}) {
    temp.write(std::string("out/") + kExportDigestsName, wrong);
    EXPECT_THROW(read_export_digests(out), DataLoss) << wrong;
  }
  temp.write(std::string("out/") + kExportDigestsName,
             R"({"format": "meshloom.digests", "version": 2, "files": []})");
  EXPECT_THROW(read_export_digests(out), FailedPrecondition);
}

TEST_P(HfFolders, HalfPrecisionIsRoundedOnce) {
  testing::TestContext context;
  TempFolder temp;
  const auto model = load_folder(context, kGolden / GetParam());
  const Values exact = values_of(*model);
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    save_hf_folder(temp.path() / "out", *model, {.dtype = dtype});
    const auto again = load_folder(context, temp.path() / "out");
    for (const auto& [name, values] : values_of(*again)) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<float>(exact.at(name)[i]);
        const float rounded = dtype == DType::kBFloat16 ? static_cast<float>(bfloat16(value))
                                                        : static_cast<float>(float16(value));
        ASSERT_EQ(values[i], rounded) << name << " " << dtype_name(dtype);
      }
    }
    const auto config = nlohmann::json::parse(test::file_text(temp.path() / "out" / "config.json"));
    EXPECT_EQ(config["dtype"], dtype_name(dtype));
  }
}

TEST(HfFolder, AValueThatADtypeDoesNotReachRefusesTheExport) {
  testing::TestContext context;
  TempFolder temp;
  const auto model = load_folder(context, kGolden / "gpt2_hf");
  const fs::path out = temp.path() / "out";
  const auto refusal = [&](DType dtype) -> std::string {
    try {
      save_hf_folder(out, *model, {.dtype = dtype});
      return "";
    } catch (const FailedPrecondition& e) {
      EXPECT_EQ(e.reason(), kValueOverflows);
      EXPECT_TRUE(fs::is_empty(temp.path())) << "a part of the export is left";
      return e.what();
    }
  };
  const auto set_bias = [&](float value) {
    for (const nn::NamedParameter& p : model->named_parameters())
      if (p.name == "transformer.ln_f.bias")
        return testing::set_element(p.parameter->value.detach(), 3, value);
    throw NotFound("transformer.ln_f.bias");
  };
  set_bias(65519.9f);  // rounds to the largest
  EXPECT_EQ(refusal(DType::kFloat16), "");
  fs::remove_all(out);
  set_bias(-70000.0f);
  expect_holds(refusal(DType::kFloat16),
               {"transformer.ln_f.bias", "-70000", "element 3", "float16", "65504", "bfloat16"});
  EXPECT_EQ(refusal(DType::kBFloat16), "");
  fs::remove_all(out);
  set_bias(3.4e38f);
  expect_holds(refusal(DType::kBFloat16),
               {"transformer.ln_f.bias", "3.4e+38", "bfloat16", "float32"});
  EXPECT_EQ(refusal(DType::kFloat32), "");
  fs::remove_all(out);
  // What is infinite before is written as it is.
  set_bias(-std::numeric_limits<float>::infinity());
  EXPECT_EQ(refusal(DType::kFloat16), "");
}

TEST_P(HfFolders, ShardsAndIndex) {
  testing::TestContext context;
  TempFolder temp;
  const auto model = load_folder(context, kGolden / GetParam());
  save_hf_folder(temp.path() / "out", *model, {.max_file_bytes = 50'000});
  EXPECT_FALSE(fs::exists(temp.path() / "out" / "model.safetensors"));
  const auto index =
      nlohmann::json::parse(test::file_text(temp.path() / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 4 * nn::parameter_count(model->config()));
  std::size_t files = 0;
  for (const auto& item : fs::directory_iterator(temp.path() / "out"))
    files += item.path().extension() == ".safetensors";
  EXPECT_GE(files, 4u);
  EXPECT_TRUE(
      fs::exists(temp.path() / "out" / fmt::format("model-00001-of-{:05}.safetensors", files)));
  EXPECT_EQ(values_of(*load_folder(context, temp.path() / "out")), values_of(*model));
}

TEST(HfFolder, OlderGpt2Files) {
  testing::TestContext context;
  TempFolder temp;
  const Values expected = values_of(*load_folder(context, kGolden / "gpt2_hf"));
  Tensors tensors("gpt2_hf");
  for (NamedView& tensor : tensors.list)
    tensor.name = tensor.name.substr(std::string("transformer.").size());
  std::vector<float> causal(32 * 32, 1.0f);
  tensors.list.push_back(
      {"h.0.attn.bias", make_view(causal.data(), DType::kFloat32, {1, 1, 32, 32})});
  tensors.list.push_back({"h.1.attn.masked_bias", make_view(causal.data(), DType::kFloat32, {})});
  const fs::path folder = make_folder(temp, "gpt2_hf", tensors);
  EXPECT_EQ(values_of(*load_folder(context, folder)), expected);
}

TEST(HfFolder, TiedWeightsUnderEitherName) {
  testing::TestContext context;
  TempFolder temp;
  const Values expected = values_of(*load_folder(context, kGolden / "gpt2_hf"));
  Tensors tensors("gpt2_hf");
  tensors.rename("transformer.wte.weight", "lm_head.weight");
  EXPECT_EQ(values_of(*load_folder(context, make_folder(temp, "gpt2_hf", tensors))), expected);
  std::vector<float> other(131 * 64, 0.0f);
  const Values bert = values_of(*load_folder(context, kGolden / "bert_hf"));
  Tensors old("bert_hf");
  old.rename("bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma");
  old.rename("bert.embeddings.LayerNorm.bias", "bert.embeddings.LayerNorm.beta");
  old.rename("cls.predictions.bias", "cls.predictions.decoder.bias");
  old.list.push_back({"bert.pooler.dense.bias", make_view(other.data(), DType::kFloat32, {64})});
  old.list.push_back({"cls.seq_relationship.bias", make_view(other.data(), DType::kFloat32, {2})});
  EXPECT_EQ(values_of(*load_folder(context, make_folder(temp, "bert_hf", old))), bert);
}

TEST(HfFolder, WhatDoesNotFitIsNamed) {
  TempFolder temp;
  float value = 0.0f;
  std::int64_t number = 0;
  {
    Tensors tensors("llama_hf");
    tensors.drop("model.layers.1.mlp.up_proj.weight");
    expect_holds(load_error(make_folder(temp, "llama_hf", tensors)),
                 {"model", "missing", "model.layers.1.mlp.up_proj.weight"});
  }
  {
    Tensors tensors("llama_hf");
    tensors.list.push_back({"model.layers.2.extra", make_view(&value, DType::kFloat32, {1})});
    expect_holds(load_error(make_folder(temp, "llama_hf", tensors)),
                 {"unexpected", "model.layers.2.extra"});
  }
  {
    Tensors tensors("llama_hf");
    tensors.drop("model.norm.weight");
    tensors.list.push_back({"model.norm.weight", make_view(&value, DType::kFloat32, {1})});
    expect_holds(load_error(make_folder(temp, "llama_hf", tensors)),
                 {"model.norm.weight", "[1]", "[64]"});
  }
  {
    Tensors tensors("llama_hf");
    tensors.drop("model.norm.weight");
    std::vector<std::int64_t> numbers(64);
    tensors.list.push_back({"model.norm.weight", make_view(numbers.data(), DType::kInt64, {64})});
    expect_holds(load_error(make_folder(temp, "llama_hf", tensors)),
                 {"model.norm.weight", "int64"});
  }
  {
    Tensors tensors("gpt2_hf");
    tensors.list.push_back({"wte.weight", make_view(&number, DType::kInt64, {1})});
    expect_holds(load_error(make_folder(temp, "gpt2_hf", tensors)),
                 {"transformer.wte.weight", "twice"});
  }
}

TEST(HfFolder, NamesThatAWrapperHasMadeAreRefusedByItsName) {
  TempFolder temp;
  const auto error_with = [&](const std::string& golden, const std::string& before) {
    Tensors tensors(golden);
    for (NamedView& tensor : tensors.list) tensor.name = before + tensor.name;
    return load_error(make_folder(temp, golden, tensors));
  };
  expect_holds(error_with("llama_hf", "_orig_mod."),
               {"\"_orig_mod.\"", "torch.compile", "_orig_mod.lm_head.weight"});
  expect_holds(error_with("gpt2_hf", "module."), {"\"module.\"", "DistributedDataParallel"});
  expect_holds(error_with("bert_hf", "module._orig_mod."), {"\"module._orig_mod.\""});
  expect_holds(error_with("llama_hf", "policy."), {"\"policy.\""});
  // Inside of names, and around names of an older file.
  Tensors tensors("llama_hf");
  for (NamedView& tensor : tensors.list)
    if (tensor.name.starts_with("model.layers.0."))
      tensor.name.replace(0, 15, "model.layers.0._orig_mod.");
  expect_holds(load_error(make_folder(temp, "llama_hf", tensors)), {"\"_orig_mod.\""});
  Tensors old("gpt2_hf");
  for (NamedView& tensor : old.list)
    tensor.name = "_orig_mod." + tensor.name.substr(std::string("transformer.").size());
  expect_holds(load_error(make_folder(temp, "gpt2_hf", old)), {"\"_orig_mod.\""});
}

TEST(HfFolder, HeadersAloneTellWhatDoesNotFit) {
  TempFolder temp;
  const auto refusal = [&](const fs::path& folder) -> std::string {
    try {
      check_hf_folder(folder);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(refusal(make_folder(temp, "llama_hf", Tensors("llama_hf"))), "");
  Tensors tensors("llama_hf");
  tensors.drop("model.norm.weight");
  std::vector<std::uint8_t> bytes(64);
  tensors.list.push_back({"model.norm.weight", make_view(bytes.data(), DType::kFloat8E4M3, {64})});
  tensors.list.push_back({"model.norm.scale", make_view(bytes.data(), DType::kUInt8, {1})});
  expect_holds(refusal(make_folder(temp, "llama_hf", tensors)),
               {"model.norm.weight", "float8", "quantized"});
  tensors.drop("model.norm.weight");
  expect_holds(refusal(make_folder(temp, "llama_hf", tensors)),
               {"missing tensors: model.norm.weight", "unexpected tensors: model.norm.scale"});
}

TEST(HfFolder, WhatLiesInThePlaceOfAFileIsNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  const std::string page = "<!DOCTYPE html>\n<html><body>Sign in to see this file</body></html>\n";
  for (const bool indexed : {false, true})
    for (const std::string file :
         {"model.safetensors", "config.json", "model.safetensors.index.json"})
      for (const std::string& text : {pointer, page}) {
        if (!indexed && file == "model.safetensors.index.json") continue;
        SCOPED_TRACE(file + ": " + text.substr(0, 12));
        TempFolder temp;
        const fs::path folder = make_folder(temp, "gpt2_hf", Tensors("gpt2_hf"));
        if (indexed && file != "model.safetensors") {
          fs::rename(folder / "model.safetensors", folder / "part.safetensors");
          write_text(folder / "model.safetensors.index.json", R"({"weight_map": {}})");
        }
        write_text(folder / file, text);
        expect_holds(load_error(folder), {file, text == pointer ? "git lfs pull" : "HTML page"});
      }
}

TEST(HfFolder, BrokenFolders) {
  TempFolder temp;
  expect_holds(load_error(temp.path() / "none_hf"), {"none_hf"});
  const fs::path folder = temp.path() / "model";
  fs::create_directories(folder);
  expect_holds(load_error(folder), {"model", "config.json"});
  write_text(folder / "config.json", "{");
  expect_holds(load_error(folder), {"model", "config.json", "JSON"});
  write_text(folder / "config.json", std::string(2u << 20, ' '));
  expect_holds(load_error(folder), {"config.json", "bytes"});
  fs::copy_file(kGolden / "gpt2_hf" / "config.json", folder / "config.json",
                fs::copy_options::overwrite_existing);
  expect_holds(load_error(folder), {"model.safetensors"});
  write_text(folder / "pytorch_model.bin", "x");
  expect_holds(load_error(folder), {"pickled"});
  write_text(folder / "model.safetensors", "short");
  expect_holds(load_error(folder), {"model/model.safetensors", "header"});
}

TEST(HfFolder, BrokenIndexes) {
  TempFolder temp;
  const fs::path folder = temp.path() / "model";
  fs::create_directories(folder);
  fs::copy_file(kGolden / "gpt2_hf" / "config.json", folder / "config.json");
  fs::copy_file(kGolden / "gpt2_hf" / "model.safetensors", folder / "part.safetensors");
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"[", {"model.safetensors.index.json", "is not valid JSON"}},
      {R"({"weight_map": {}, "weight_map": {}})", {"\"weight_map\" twice"}},
      {"[]", {"weight_map"}},
      {R"({"weight_map": []})", {"weight_map"}},
      {R"({"weight_map": {"a": 3}})", {"'a'"}},
      {R"({"weight_map": {"a": "../part.safetensors"}})", {"../part.safetensors"}},
      {R"({"weight_map": {"a": "/etc/passwd"}})", {"/etc/passwd"}},
      {R"({"weight_map": {"a": "absent.safetensors"}})",
       {"model.safetensors.index.json names absent.safetensors", "'a'", "not there"}},
      {R"({"weight_map": {"a": "part.safetensors"}})", {"part.safetensors", "'a'"}},
  };
  for (const auto& [text, words] : cases) {
    SCOPED_TRACE(text);
    write_text(folder / "model.safetensors.index.json", text);
    expect_holds(load_error(folder), words);
  }
  // Tensors that the index does not list are in both files.
  fs::copy_file(folder / "part.safetensors", folder / "twice.safetensors");
  write_text(folder / "model.safetensors.index.json",
             R"({"weight_map": {"transformer.wte.weight": "part.safetensors",
                 "transformer.wpe.weight": "twice.safetensors"}})");
  expect_holds(load_error(folder), {"twice"});
}

TEST(HfFolder, AnIndexSaysWhichFileHoldsATensor) {
  testing::TestContext context;
  TempFolder temp;
  const Values expected = values_of(*load_folder(context, kGolden / "gpt2_hf"));
  Tensors tensors("gpt2_hf");
  nlohmann::json map;
  for (const NamedView& tensor : tensors.list) map[tensor.name] = "new.safetensors";
  const fs::path folder = make_folder(temp, "gpt2_hf", tensors);
  fs::rename(folder / "model.safetensors", folder / "new.safetensors");
  // A shard of before has other values under the same name.
  std::vector<float> stale(131 * 64, 1.0f), own(1, 1.0f);
  Tensors old("gpt2_hf");
  const NamedView norm = {"transformer.ln_f.bias", old.at("transformer.ln_f.bias")};
  write_safetensors(
      folder / "old.safetensors",
      {{"transformer.wte.weight", make_view(stale.data(), DType::kFloat32, {131, 64})}, norm});
  map["transformer.ln_f.bias"] = "old.safetensors";
  write_text(folder / "model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  EXPECT_EQ(values_of(*load_folder(context, folder)), expected);
}

TEST(HfFolder, SavingReplacesWholeFoldersOrNothing) {
  testing::TestContext context;
  TempFolder temp;
  const auto model = load_folder(context, kGolden / "gpt2_hf");
  const fs::path out = temp.path() / "with space" / "out";
  fs::create_directories(out.parent_path());
  save_hf_folder(out / "", *model, {.max_file_bytes = 50'000});
  save_hf_folder(out, *model);
  EXPECT_FALSE(fs::exists(out / "model.safetensors.index.json"))
      << "files of the older folder are left";
  const std::string before = test::file_text(out / "model.safetensors");

  std::vector<NamedTensor> twice = {{"a", zeros(context, {2}, DType::kFloat32)},
                                    {"a", zeros(context, {2}, DType::kFloat32)}};
  EXPECT_THROW(save_hf_folder(out, model->config(), twice), InvalidArgument);
  EXPECT_EQ(test::file_text(out / "model.safetensors"), before);
  EXPECT_THROW(save_hf_folder(out, *model, {.dtype = DType::kInt64}), InvalidArgument);
  EXPECT_THROW(save_hf_folder(out, *model, {.byte_tokenizer = true}), InvalidArgument)
      << "vocabulary of 131";
  std::size_t siblings = 0;
  for ([[maybe_unused]] const auto& item : fs::directory_iterator(out.parent_path())) ++siblings;
  EXPECT_EQ(siblings, 1u) << "temporary folders are left";
}

TEST(HfFolder, LoadsIntoBfloat16) {
  testing::TestContext context;
  const auto exact = load_folder(context, kGolden / "llama_hf");
  const auto rounded = load_folder(context, kGolden / "llama_hf", DType::kBFloat16);
  const Values wanted = values_of(*exact);
  for (const auto& [name, values] : values_of(*rounded))
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], wanted.at(name)[i], 0x1p-8 * std::abs(wanted.at(name)[i])) << name;
}

TEST(HfByteTokenizer, EveryByteOnceUnderItsOwnId) {
  const auto vocab = nlohmann::json::parse(byte_tokenizer_json())["model"]["vocab"];
  ASSERT_EQ(vocab.size(), 256u);
  EXPECT_EQ(vocab["A"], 'A');
  EXPECT_EQ(vocab["\xc4\xa0"], ' ') << "the stand-in of the space";
  EXPECT_EQ(vocab["\xc4\x8a"], '\n');
  std::vector<bool> seen(256);
  for (const auto& [name, id] : vocab.items()) seen[id.get<std::size_t>()] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 256);
}

}  // namespace
}  // namespace meshloom::train
