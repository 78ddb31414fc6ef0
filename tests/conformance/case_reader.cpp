// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/case_reader.h"

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

#include "kernels/base/error.h"
#include "tests/conformance/expect_reader.h"
#include "tests/conformance/strict_json.h"

namespace meshloom::conformance {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCommonKeys[] = {"kind",    "mesh",      "variants", "label",
                                            "tensors", "tolerance", "expect"};

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw IoError(fmt::format("{} cannot be read", file.string()));
  return {std::istreambuf_iterator<char>(in), {}};
}

const Kind& find_kind(const Json& keys, std::span<const Kind> kinds) {
  const std::string name = ObjectReader(keys, "case").string("kind");
  std::vector<std::string_view> known;
  for (const Kind& kind : kinds) {
    if (kind.name == name) return kind;
    known.push_back(kind.name);
  }
  throw InvalidArgument(fmt::format("unknown kind '{}' (known: {})", name, fmt::join(known, ", ")));
}

void check_keys(const Json& keys, const Kind& kind) {
  for (const auto& [key, unused] : keys.items()) {
    const bool known =
        std::find(std::begin(kCommonKeys), std::end(kCommonKeys), key) != std::end(kCommonKeys) ||
        std::find(kind.keys.begin(), kind.keys.end(), key) != kind.keys.end();
    check(known, "unknown key '{}' in a case of kind {}", key, kind.name);
  }
}

planner::MeshLayout read_mesh(const Json& keys) {
  if (!keys.contains("mesh")) return planner::MeshLayout({{"", 1}});
  ObjectReader reader(keys.at("mesh"), "mesh");
  const Json& shape = reader.value("shape");
  check(shape.is_array() && !shape.empty(), "mesh.shape must be a list of sizes, not {}",
        shape.dump());
  std::vector<planner::MeshDim> dims;
  for (const Json& size : shape) {
    check(size.is_number_integer() && size.get<std::int64_t>() >= 1 &&
              size.get<std::int64_t>() <= 1'000'000,
          "mesh.shape must hold sizes of at least 1, not {}", size.dump());
    dims.push_back({"", size.get<int>()});
  }
  if (reader.has("dim_names")) {
    const Json& names = reader.value("dim_names");
    check(names.is_array() && names.size() == dims.size(),
          "mesh.dim_names must name {} dims, not {}", dims.size(), names.dump());
    for (std::size_t i = 0; i < dims.size(); ++i) {
      check(names[i].is_string(), "mesh.dim_names must hold strings, not {}", names[i].dump());
      dims[i].name = names[i].get<std::string>();
    }
  }
  reader.finish();
  return planner::MeshLayout(std::move(dims));
}

Case read_case(const CaseFile& file, std::string name, Json keys, std::span<const Kind> kinds) {
  const Kind& kind = find_kind(keys, kinds);
  check_keys(keys, kind);
  Case c;
  c.name = std::move(name);
  c.file = file.file;
  c.kind = kind.name;
  c.mesh = read_mesh(keys);
  read_tolerance(keys, c);
  c.expect = read_expect(keys, c.mesh);
  c.keys = std::move(keys);
  return c;
}

/// The variant's keys over the case's.
Json merge_variant(const Json& base, const Json& variant) {
  check(variant.is_object(), "variants must hold objects, not {}", variant.dump());
  check(!variant.contains("variants"), "a variant cannot have variants");
  Json merged = base;
  merged.erase("variants");
  for (const auto& [key, value] : variant.items()) merged[key] = value;
  return merged;
}

std::string variant_label(const Json& variant, std::size_t index) {
  if (!variant.is_object() || !variant.contains("label")) return std::to_string(index);
  const Json& label = variant.at("label");
  return label.is_string() ? label.get<std::string>() : label.dump();
}

CaseEntry try_read(const CaseFile& file, std::string name, std::span<const Kind> kinds,
                   const std::function<Json()>& keys) {
  CaseEntry entry{name, {}, {}};
  try {
    entry.value = read_case(file, name, keys(), kinds);
  } catch (const std::exception& error) {
    entry.error = error.what();
  }
  return entry;
}

void add_folder(const fs::path& folder, std::vector<CaseFile>& files) {
  for (auto it = fs::recursive_directory_iterator(folder); it != fs::recursive_directory_iterator();
       ++it) {
    if (it->is_directory() && fs::exists(it->path() / "config.json")) {
      it.disable_recursion_pending();
      continue;
    }
    if (it->path().extension() != ".json" || !it->is_regular_file()) continue;
    fs::path name = fs::relative(it->path(), folder);
    files.push_back({it->path(), name.replace_extension().generic_string()});
  }
}

}  // namespace

std::vector<CaseFile> find_case_files(std::span<const fs::path> paths) {
  std::vector<CaseFile> files;
  for (const fs::path& path : paths) {
    if (fs::is_directory(path)) {
      add_folder(path, files);
    } else if (fs::exists(path)) {
      files.push_back({path, path.stem().string()});
    } else {
      throw NotFound(fmt::format("{} does not exist", path.string()));
    }
  }
  std::sort(files.begin(), files.end(),
            [](const CaseFile& a, const CaseFile& b) { return a.name < b.name; });
  return files;
}

std::vector<CaseEntry> read_case_file(const CaseFile& file, std::span<const Kind> kinds) {
  Json base;
  try {
    base = parse_strict_json(read_text(file.file));
    check(base.is_object(), "a case must be a JSON object, not {}", base.type_name());
    check(!base.contains("variants") || base.at("variants").is_array(),
          "variants must be a list, not {}",
          base.contains("variants") ? base.at("variants").dump() : "");
  } catch (const std::exception& error) {
    return {{file.name, {}, error.what()}};
  }
  if (!base.contains("variants")) return {try_read(file, file.name, kinds, [&] { return base; })};
  std::vector<CaseEntry> entries;
  const Json& variants = base.at("variants");
  for (std::size_t i = 0; i < variants.size(); ++i)
    entries.push_back(try_read(file, file.name + "#" + variant_label(variants[i], i), kinds,
                               [&] { return merge_variant(base, variants[i]); }));
  return entries;
}

bool matches_glob(const std::string& name, const std::string& glob) {
  return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

}  // namespace meshloom::conformance
