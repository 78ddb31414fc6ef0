// SPDX-License-Identifier: Apache-2.0
// The tensors beside a case: inputs and what is expected, as global values.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/tensor/tensor.h"

namespace meshloom::conformance {

/// The case's safetensors file, opened and checked as a whole.
class TensorFile {
 public:
  /// Throws Error naming the file for what is missing or malformed.
  explicit TensorFile(const std::filesystem::path& file);
  /// A file without tensors, for kinds that need none.
  TensorFile();
  ~TensorFile();

  bool has(const std::string& name) const;
  std::vector<std::string> names() const;
  /// These throw NotFound naming `name` and the file where there is no such tensor.
  DType dtype(const std::string& name) const;
  Shape shape(const std::string& name) const;
  Tensor load(ExecutionContext&, const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshloom::conformance
