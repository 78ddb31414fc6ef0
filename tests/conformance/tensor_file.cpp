// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/tensor_file.h"

#include "daemon/train/files/safetensors.h"
#include "kernels/base/error.h"

namespace meshloom::conformance {

struct TensorFile::Impl {
  std::shared_ptr<train::SafetensorsFile> file;

  const train::SafetensorsEntry& entry(const std::string& name) const {
    const train::SafetensorsEntry* found = file == nullptr ? nullptr : file->find(name);
    if (found == nullptr)
      throw NotFound(
          fmt::format("{} has no tensor '{}'", file == nullptr ? "the case" : file->label(), name));
    return *found;
  }
};

TensorFile::TensorFile(const std::filesystem::path& file)
    : impl_(std::make_unique<Impl>(Impl{train::SafetensorsFile::open(file)})) {}

TensorFile::TensorFile() : impl_(std::make_unique<Impl>()) {}

TensorFile::~TensorFile() = default;

bool TensorFile::has(const std::string& name) const {
  return impl_->file != nullptr && impl_->file->contains(name);
}

std::vector<std::string> TensorFile::names() const {
  std::vector<std::string> names;
  if (impl_->file == nullptr) return names;
  for (const train::SafetensorsEntry& entry : impl_->file->entries()) names.push_back(entry.name);
  return names;
}

DType TensorFile::dtype(const std::string& name) const { return impl_->entry(name).dtype; }

Shape TensorFile::shape(const std::string& name) const { return impl_->entry(name).shape; }

Tensor TensorFile::load(ExecutionContext& context, const std::string& name) const {
  const train::SafetensorsEntry& entry = impl_->entry(name);
  const Tensor tensor = empty(context, entry.shape, entry.dtype);
  if (tensor.numel() > 0)
    context.backend().copy_from_host(context.kernel_context(), tensor.view(),
                                     impl_->file->view(entry));
  return tensor;
}

}  // namespace meshloom::conformance
