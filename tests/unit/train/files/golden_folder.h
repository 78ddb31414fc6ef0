// SPDX-License-Identifier: Apache-2.0
// Folders that transformers wrote, with tensors renamed, dropped, changed or added.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/tensor/execution_context.h"
#include "daemon/train/files/hf_folder.h"
#include "kernels/base/error.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_context.h"

namespace meshloom::train {

inline const std::filesystem::path kGolden = test::source_file("tests/golden/model");

using Values = std::map<std::string, std::vector<double>>;

inline Values values_of(nn::Module& module) {
  Values out;
  for (const nn::NamedParameter& p : module.named_parameters())
    out[p.name] = p.parameter->value.to_vector();
  return out;
}

inline std::unique_ptr<nn::Model> load_folder(ExecutionContext& context,
                                              const std::filesystem::path& path,
                                              DType dtype = DType::kFloat32) {
  const HfFolder folder = HfFolder::open(path);
  auto model = nn::make_model(context, folder.model_config(), dtype);
  load_hf_weights(folder, *model);
  return model;
}

/// Returns the error of loading a folder; empty if it can be loaded.
inline std::string load_error(const std::filesystem::path& path) {
  testing::TestContext context;
  try {
    load_folder(context, path);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// The tensors of a golden folder's file.
struct Tensors {
  std::shared_ptr<SafetensorsFile> file;
  std::vector<NamedView> list;

  explicit Tensors(const std::string& name)
      : file(SafetensorsFile::open(kGolden / name / "model.safetensors")) {
    for (const SafetensorsEntry& entry : file->entries())
      list.push_back({entry.name, file->view(entry)});
  }
  void rename(const std::string& from, const std::string& to) {
    for (NamedView& tensor : list)
      if (tensor.name == from) tensor.name = to;
  }
  void drop(const std::string& name) {
    std::erase_if(list, [&](const NamedView& tensor) { return tensor.name == name; });
  }
  const TensorView& at(const std::string& name) const {
    for (const NamedView& tensor : list)
      if (tensor.name == name) return tensor.view;
    throw NotFound(name);
  }
};

/// A folder with a golden folder's config and these tensors.
inline std::filesystem::path make_folder(const test::TempFolder& temp, const std::string& golden,
                                         const Tensors& tensors) {
  const std::filesystem::path folder = temp.path() / "model";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(kGolden / golden / "config.json", folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  write_safetensors(folder / "model.safetensors", tensors.list);
  return folder;
}

}  // namespace meshloom::train
