// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/paths.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/base/files.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

bool is_inside(const fs::path& canonical, const fs::path& canonical_root) {
  const auto [root_end, rest] = std::mismatch(canonical_root.begin(), canonical_root.end(),
                                              canonical.begin(), canonical.end());
  return root_end == canonical_root.end();
}

/// With links followed as far as something is there.
fs::path followed(const fs::path& path) {
  std::error_code error;
  fs::path result = fs::weakly_canonical(path, error);
  if (error) base::throw_input_error("cannot follow", path, error.value());
  return result;
}

}  // namespace

void check_inside(const fs::path& path, const fs::path& root) {
  check(is_inside(followed(path), followed(root)), "{} leads outside the data folder {}",
        path.string(), root.string());
}

fs::path resolve_path(const std::string& name, const fs::path& root, const std::string& field) {
  const Error::Metadata metadata = {{"field", field}, {"path", name}};
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(fmt::format("{}: \"{}\" {}", field, name, why), "INVALID_PATH", metadata);
  };
  if (name.empty()) refuse("is empty");
  if (name.find('\0') != std::string::npos) refuse("holds a NUL byte");
  const fs::path given(name);
  if (std::find(given.begin(), given.end(), "..") != given.end()) refuse("must not hold \"..\"");
  const fs::path full = given.is_absolute() ? given : root / given;
  if (!base::with_field(field, [&] { return is_inside(followed(full), followed(root)); }))
    refuse(fmt::format("lies outside the data folder {}", root.string()));
  std::error_code error;
  if (!fs::exists(full, error))
    throw NotFound(fmt::format("{}: \"{}\" does not exist below {}", field, name, root.string()),
                   "NOT_FOUND", metadata);
  return full;
}

}  // namespace meshloom::train
