// SPDX-License-Identifier: Apache-2.0
// A file system that does what the real one does until a chosen operation.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "daemon/train/files/file_system.h"

namespace meshloom::testing {

/// Calls `before(n)` ahead of the n-th (from 0) operation that changes the disk: create, write,
/// sync, close, folder creation, folder sync, rename, replace, remove. A hook may end the process
/// or throw. `partial(n)` says how much of a write's bytes come first, so that a crash can tear
/// one.
class FailpointFileSystem : public train::FileSystem {
 public:
  using Before = std::function<void(int)>;
  using Partial = std::function<std::size_t(int, std::size_t)>;

  explicit FailpointFileSystem(Before before, Partial partial = {})
      : before_(std::move(before)), partial_(std::move(partial)) {}

  int operations() const { return next_; }

  std::unique_ptr<train::OutputFile> create(const std::filesystem::path& path,
                                            std::size_t bytes) override {
    step();
    return std::make_unique<File>(*this, real_.create(path, bytes));
  }
  void create_directories(const std::filesystem::path& path) override {
    step();
    real_.create_directories(path);
  }
  void sync_directory(const std::filesystem::path& path) override {
    step();
    real_.sync_directory(path);
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    step();
    real_.rename(from, to);
  }
  void replace_directory(const std::filesystem::path& from,
                         const std::filesystem::path& to) override {
    step();
    real_.replace_directory(from, to);
  }
  void remove_all(const std::filesystem::path& path) override {
    step();
    real_.remove_all(path);
  }

 private:
  class File : public train::OutputFile {
   public:
    File(FailpointFileSystem& owner, std::unique_ptr<train::OutputFile> real)
        : owner_(owner), real_(std::move(real)) {}
    void write(std::span<const std::byte> bytes) override {
      const int n = owner_.next_;
      const std::size_t first = owner_.partial_ ? owner_.partial_(n, bytes.size()) : 0;
      if (first > 0) real_->write(bytes.first(first));
      owner_.step();
      real_->write(bytes.subspan(first));
    }
    void sync() override {
      owner_.step();
      real_->sync();
    }
    void close() override {
      owner_.step();
      real_->close();
    }

   private:
    FailpointFileSystem& owner_;
    std::unique_ptr<train::OutputFile> real_;
  };

  void step() {
    const int n = next_++;
    before_(n);
  }

  train::FileSystem& real_ = train::posix_file_system();
  Before before_;
  Partial partial_;
  int next_ = 0;
};

}  // namespace meshloom::testing
