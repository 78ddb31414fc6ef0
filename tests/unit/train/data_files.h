// SPDX-License-Identifier: Apache-2.0
// Small data files in every format, in a folder that goes with the object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace meshloom::testing {

class DataFolder {
 public:
  const std::filesystem::path& path() const { return folder_.path(); }

  std::filesystem::path write_text(const std::string& name, const std::string& text) const {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary)
        .write(text.data(), static_cast<std::streamsize>(text.size()));
    return path;
  }
  std::filesystem::path write_u16(const std::string& name,
                                  const std::vector<std::uint16_t>& tokens) const {
    return write_text(name, bytes_of(tokens));
  }
  /// uint16 tokens for magic 20240520, else uint32.
  std::filesystem::path write_llmc(const std::string& name, std::int32_t magic,
                                   std::int32_t version,
                                   const std::vector<std::uint32_t>& tokens) const {
    std::vector<std::int32_t> header(256, 0);
    header[0] = magic;
    header[1] = version;
    header[2] = static_cast<std::int32_t>(tokens.size());
    const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
    return write_text(name,
                      bytes_of(header) + (magic == 20240520 ? bytes_of(narrow) : bytes_of(tokens)));
  }

 private:
  template <typename T>
  static std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  test::TempFolder folder_;
};

}  // namespace meshloom::testing
