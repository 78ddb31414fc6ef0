// SPDX-License-Identifier: Apache-2.0
// Memory of tensors: storages are pieces of segments, segments come from a pluggable source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace meshloom {

class Allocator;

/// Gives a storage its memory when that is asked for.
class StorageProvider {
 public:
  virtual ~StorageProvider() = default;
  /// Called by data() of a storage that has no memory. Calls its set_data() with some, or throws.
  virtual void provide() = 0;
};

/// MemoryOwner is whoever has memory that no allocator has given: a storage on it holds its owner.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
};

/// Storage is a block inside a segment: (segment id, offset) are stable names that peers can be
/// told. Shared by all tensors that view it; returns to its allocator with the last one.
class Storage {
 public:
  /// `block` is the allocator's own record of the piece, handed back to it by `Allocator::free`.
  Storage(std::shared_ptr<Allocator> allocator, std::byte* data, std::size_t bytes,
          std::uint32_t segment, std::size_t offset, void* block = nullptr)
      : allocator_(std::move(allocator)),
        data_(data),
        bytes_(bytes),
        segment_(segment),
        offset_(offset),
        block_(block) {}
  /// Memory owned by someone else (a peer's); `owner`, which may be null, is held as long as the
  /// storage.
  Storage(std::byte* data, std::size_t bytes, std::shared_ptr<const MemoryOwner> owner)
      : data_(data), bytes_(bytes), owner_(std::move(owner)) {}
  /// Memory that comes and goes: every view of the storage sees what set_data() gave last. Without
  /// a provider (which outlives the storage) data() is null until then.
  explicit Storage(std::size_t bytes, StorageProvider* provider = nullptr)
      : data_(nullptr), bytes_(bytes), provider_(provider) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const {
    if (data_ == nullptr && provider_ != nullptr) [[unlikely]]
      provider_->provide();
    return data_;
  }
  /// Tells whether data() needs no provider.
  bool has_memory() const { return data_ != nullptr || bytes_ == 0; }
  /// Only for storages made without memory; the caller owns what it gives. Null takes it away.
  void set_data(std::byte* data) { data_ = data; }
  std::size_t bytes() const { return bytes_; }
  std::uint32_t segment() const { return segment_; }
  std::size_t offset() const { return offset_; }
  void* block() const { return block_; }

 private:
  std::shared_ptr<Allocator> allocator_;
  std::byte* data_;
  std::size_t bytes_;
  std::uint32_t segment_ = 0;
  std::size_t offset_ = 0;
  void* block_ = nullptr;
  std::shared_ptr<const MemoryOwner> owner_;
  StorageProvider* provider_ = nullptr;
};

}  // namespace meshloom
