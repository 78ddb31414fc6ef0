// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/source_place.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

namespace meshloom::emulator {
namespace {

struct CodeAddress {
  std::string file;
  std::uintptr_t offset = 0;
};

CodeAddress code_address(const void* address) {
  Dl_info info{};
  link_map* object = nullptr;
  if (::dladdr1(address, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0) return {};
  CodeAddress code{object->l_name, reinterpret_cast<std::uintptr_t>(address) - object->l_addr};
  // The program itself has no name there.
  std::error_code error;
  if (code.file.empty()) code.file = std::filesystem::read_symlink("/proc/self/exe", error);
  return code;
}

/// What addr2line prints of addresses of one file: two lines each, the function's name and
/// FILE:LINE. They may be fewer.
std::vector<std::string> ask_addr2line(const std::string& file,
                                       std::span<const std::uintptr_t> offsets) {
  std::vector<std::string> lines;
  if (file.find('\'') != std::string::npos) return lines;
  const std::string command =
      fmt::format("addr2line -f -C -e '{}' {:#x} 2>/dev/null", file, fmt::join(offsets, " "));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             ::pclose);
  if (!pipe) return lines;
  std::string text;
  std::array<char, 512> piece;
  while (std::fgets(piece.data(), piece.size(), pipe.get()) != nullptr) text += piece.data();
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

/// Line `number`, or "".
std::string line_of(const std::vector<std::string>& lines, std::size_t number) {
  return number < lines.size() ? lines[number] : "";
}

/// Takes the path before the source folder off.
std::string short_path(std::string path) {
  for (const std::string_view folder : {"/kernels/", "/tests/"}) {
    const std::size_t at = path.rfind(folder);
    if (at != std::string::npos) return path.substr(at + 1);
  }
  return path.starts_with("./") ? path.substr(2) : path;
}

std::string without_arguments(std::string name) {
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0 && !name.substr(i).starts_with("(anonymous namespace)"))
      return name.substr(0, i);
  }
  return name;
}

}  // namespace

std::string place_of_return(const void* return_address) {
  const CodeAddress code = code_address(static_cast<const char*>(return_address) - 1);
  const std::string line = line_of(ask_addr2line(code.file, {&code.offset, 1}), 1);
  if (line.empty() || line.starts_with("??"))
    return fmt::format("{}+{:#x}", code.file, code.offset);
  return short_path(line.substr(0, line.find(" (discriminator")));
}

std::string place_of(const std::source_location& site) {
  return fmt::format("{}:{}", short_path(site.file_name()), site.line());
}

std::vector<std::string> function_names(std::span<const void* const> functions) {
  std::vector<std::uintptr_t> offsets;
  std::string file;
  for (const void* const function : functions) {
    const CodeAddress code = code_address(function);
    file = code.file;
    offsets.push_back(code.offset);
  }
  std::vector<std::string> names;
  const std::vector<std::string> lines = ask_addr2line(file, offsets);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::string name = without_arguments(line_of(lines, 2 * i));
    names.push_back(
        name.empty() || name.starts_with("??") ? fmt::format("{}+{:#x}", file, offsets[i]) : name);
  }
  return names;
}

std::string function_name(const void* function) { return function_names({&function, 1})[0]; }

}  // namespace meshloom::emulator
