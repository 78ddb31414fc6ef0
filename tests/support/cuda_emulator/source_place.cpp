// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/source_place.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

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

/// The first two lines that addr2line prints: the function's name, and FILE:LINE.
std::array<std::string, 2> ask_addr2line(const CodeAddress& code) {
  std::array<std::string, 2> lines;
  if (code.file.find('\'') != std::string::npos) return lines;
  const std::string command =
      fmt::format("addr2line -f -C -e '{}' {:#x} 2>/dev/null", code.file, code.offset);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             ::pclose);
  if (!pipe) return lines;
  std::string text;
  std::array<char, 512> piece;
  while (std::fgets(piece.data(), piece.size(), pipe.get()) != nullptr) text += piece.data();
  for (std::size_t line = 0, begin = 0; line < lines.size() && begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    lines[line] = text.substr(begin, end - begin);
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
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
  const std::string line = ask_addr2line(code)[1];
  if (line.empty() || line.starts_with("??"))
    return fmt::format("{}+{:#x}", code.file, code.offset);
  return short_path(line.substr(0, line.find(" (discriminator")));
}

std::string place_of(const std::source_location& site) {
  return fmt::format("{}:{}", short_path(site.file_name()), site.line());
}

std::string function_name(const void* function) {
  const CodeAddress code = code_address(function);
  const std::string name = without_arguments(ask_addr2line(code)[0]);
  return name.empty() || name.starts_with("??") ? fmt::format("{}+{:#x}", code.file, code.offset)
                                                : name;
}

}  // namespace meshloom::emulator
