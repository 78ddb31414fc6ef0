// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/cpu/heap_source.h"

namespace meshloom {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Counts what is asked of the heap source, and may refuse.
class CountingSource final : public SegmentSource {
 public:
  struct Counts {
    int acquired = 0;
    int extended = 0;
    int released = 0;
    bool may_extend = true;
    std::size_t limit = ~std::size_t{0};
  };
  explicit CountingSource(Counts& counts)
      : counts_(counts), heap_(kernels::cpu::make_heap_source()) {}

  Device device() const override { return heap_->device(); }
  std::size_t granularity() const override { return heap_->granularity(); }
  std::byte* acquire(std::size_t bytes) override {
    if (bytes > counts_.limit) throw ResourceExhausted("refused");
    ++counts_.acquired;
    return heap_->acquire(bytes);
  }
  bool extend(std::byte* data, std::size_t bytes, std::size_t more) override {
    if (!counts_.may_extend) return false;
    if (more > counts_.limit) throw ResourceExhausted("refused");
    ++counts_.extended;
    return heap_->extend(data, bytes, more);
  }
  void release(std::byte* data, std::size_t bytes) override {
    ++counts_.released;
    heap_->release(data, bytes);
  }

 private:
  Counts& counts_;
  std::unique_ptr<SegmentSource> heap_;
};

/// Knows for each byte of its segments whether it has an owner, and checks each change of that.
class WatchedSource final : public SegmentSource {
 public:
  static constexpr std::size_t kGuard = 256;
  using Owned = std::map<const std::byte*, std::size_t>;

  explicit WatchedSource(Owned& owned) : owned_(owned), heap_(kernels::cpu::make_heap_source()) {}

  Device device() const override { return heap_->device(); }
  std::size_t granularity() const override { return heap_->granularity(); }
  std::byte* acquire(std::size_t bytes) override { return heap_->acquire(bytes); }
  bool extend(std::byte* data, std::size_t bytes, std::size_t more) override {
    return heap_->extend(data, bytes, more);
  }
  void release(std::byte* data, std::size_t bytes) override { heap_->release(data, bytes); }
  std::size_t guard_bytes() const override { return kGuard; }
  void used(std::byte* data, std::size_t bytes) override {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kGuard, 0u);
    const auto after = owned_.lower_bound(data);
    if (after != owned_.end()) {
      EXPECT_GE(after->first, data + bytes + kGuard);
    }
    if (after != owned_.begin()) {
      const auto& [begin, size] = *std::prev(after);
      EXPECT_LE(begin + size + kGuard, data);
    }
    owned_.emplace(data, bytes);
  }
  void unused(std::byte* data, std::size_t bytes) override {
    for (auto it = owned_.lower_bound(data); it != owned_.end() && it->first < data + bytes;)
      it = owned_.erase(it);
  }

 private:
  Owned& owned_;
  std::unique_ptr<SegmentSource> heap_;
};

TEST(Allocator, TellsAWatcherOfBlocksAndLeavesRoomBetweenThem) {
  WatchedSource::Owned owned;
  auto allocator = Allocator::create(std::make_unique<WatchedSource>(owned));
  std::mt19937 rng(5);
  std::vector<std::shared_ptr<Storage>> held;
  for (int i = 0; i < 500; ++i) {
    if (!held.empty() && rng() % 3 == 0) {
      std::swap(held[rng() % held.size()], held.back());
      const std::byte* const data = held.back()->data();
      held.pop_back();
      EXPECT_EQ(owned.count(data), 0u) << "nobody owns what was freed";
    } else {
      held.push_back(allocator->allocate(rng() % 5000));
      EXPECT_EQ(owned.at(held.back()->data()), held.back()->bytes());
    }
    ASSERT_EQ(owned.size(), held.size());
  }
  held.clear();
  EXPECT_TRUE(owned.empty());
}

TEST(Allocator, BlocksAreAlignedAndDisjointUnderRandomUse) {
  auto allocator = Allocator::create(kernels::cpu::make_heap_source());
  std::mt19937 rng(3);
  struct Held {
    std::shared_ptr<Storage> storage;
    unsigned char mark;
  };
  std::vector<Held> held;
  std::size_t in_use = 0;
  for (int round = 0; round < 20000; ++round) {
    if (held.size() < 200 && rng() % 5 < 3) {
      const std::size_t bytes = rng() % 20 == 0 ? rng() % (4 * kMiB) : rng() % 5000;
      Held h{allocator->allocate(bytes), static_cast<unsigned char>(rng())};
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(h.storage->data()) % 64, 0u);
      ASSERT_EQ(h.storage->bytes(), bytes);
      std::memset(h.storage->data(), h.mark, bytes);
      in_use += bytes;
      held.push_back(std::move(h));
    } else if (!held.empty()) {
      const std::size_t i = rng() % held.size();
      const auto* data = reinterpret_cast<unsigned char*>(held[i].storage->data());
      const std::size_t bytes = held[i].storage->bytes();
      // Another block inside this one would have left its own mark.
      ASSERT_TRUE(
          std::all_of(data, data + bytes, [&](unsigned char c) { return c == held[i].mark; }));
      in_use -= bytes;
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    }
    ASSERT_GE(allocator->stats().bytes_in_use, in_use);
  }
  held.clear();
  EXPECT_EQ(allocator->stats().bytes_in_use, 0u);
  allocator->trim();
  EXPECT_EQ(allocator->stats().segment_bytes, 0u);
}

TEST(Allocator, FreedNeighboursJoinAgain) {
  CountingSource::Counts counts;
  auto allocator = Allocator::create(std::make_unique<CountingSource>(counts));
  {
    std::vector<std::shared_ptr<Storage>> pieces;
    for (int i = 0; i < 64; ++i) pieces.push_back(allocator->allocate(2 * kMiB / 64));
    EXPECT_EQ(counts.acquired, 1);
    std::shuffle(pieces.begin(), pieces.end(), std::mt19937(5));
    while (!pieces.empty()) pieces.pop_back();
  }
  const auto whole = allocator->allocate(2 * kMiB);
  EXPECT_EQ(counts.acquired, 1);
}

TEST(Allocator, TakesTheSmallestBlockThatFits) {
  auto allocator = Allocator::create(kernels::cpu::make_heap_source());
  auto large = allocator->allocate(100 * 1024);
  auto wall1 = allocator->allocate(64);
  auto small = allocator->allocate(10 * 1024);
  auto wall2 = allocator->allocate(64);
  const std::byte* small_at = small->data();
  large.reset();
  small.reset();
  EXPECT_EQ(allocator->allocate(9 * 1024)->data(), small_at);
}

TEST(Allocator, SameRequestsGetTheSamePlaces) {
  auto run = [] {
    auto allocator = Allocator::create(kernels::cpu::make_heap_source());
    std::mt19937 rng(11);
    std::vector<std::shared_ptr<Storage>> held(50);
    std::vector<std::pair<std::uint32_t, std::size_t>> places;
    for (int i = 0; i < 2000; ++i) {
      auto& slot = held[rng() % held.size()];
      slot.reset();
      slot = allocator->allocate(rng() % 300000);
      places.emplace_back(slot->segment(), slot->offset());
    }
    return places;
  };
  EXPECT_EQ(run(), run());
}

TEST(Allocator, CountsAndPeak) {
  CountingSource::Counts counts;
  auto allocator = Allocator::create(std::make_unique<CountingSource>(counts));
  auto a = allocator->allocate(1000);
  EXPECT_EQ(allocator->stats().bytes_in_use, 1024u);
  auto b = allocator->allocate(3 * kMiB);
  a.reset();
  b.reset();
  EXPECT_EQ(allocator->stats().bytes_in_use, 0u);
  EXPECT_EQ(allocator->stats().peak_bytes_in_use, 1024u + 3 * kMiB);
  EXPECT_EQ(allocator->stats().segments_acquired, 2u);
  allocator->reset_peak();
  EXPECT_EQ(allocator->stats().peak_bytes_in_use, 0u);
}

TEST(Allocator, ASegmentGrowsByWhatItsEndLacks) {
  CountingSource::Counts counts;
  auto allocator = Allocator::create(std::make_unique<CountingSource>(counts));
  auto first = allocator->allocate(3 * kMiB);
  // 1 MiB is free at the end: 5 MiB need 4 more.
  auto second = allocator->allocate(5 * kMiB);
  EXPECT_EQ(allocator->stats().segment_bytes, 8 * kMiB);
  EXPECT_EQ(second->segment(), first->segment());
  EXPECT_EQ(second->data(), first->data() + 3 * kMiB);
  std::memset(second->data(), 1, second->bytes());
  first.reset();
  second.reset();
  const auto whole = allocator->allocate(8 * kMiB);
  EXPECT_EQ(counts.acquired, 1);
  EXPECT_EQ(counts.extended, 1);
}

TEST(Allocator, TrimKeepsSegmentsInUse) {
  CountingSource::Counts counts;
  counts.may_extend = false;
  auto allocator = Allocator::create(std::make_unique<CountingSource>(counts));
  auto kept = allocator->allocate(3 * kMiB);
  allocator->allocate(8 * kMiB).reset();
  allocator->trim();
  EXPECT_EQ(counts.released, 1);
  EXPECT_EQ(allocator->stats().segment_bytes, 4 * kMiB);
  std::memset(kept->data(), 1, kept->bytes());
}

TEST(Allocator, EmptyStorageIsValidAndRefusalLeavesItUsable) {
  CountingSource::Counts counts;
  auto allocator = Allocator::create(std::make_unique<CountingSource>(counts));
  EXPECT_EQ(allocator->allocate(0)->bytes(), 0u);
  counts.limit = 10 * kMiB;
  EXPECT_THROW(allocator->allocate(20 * kMiB), ResourceExhausted);
  EXPECT_EQ(allocator->stats().bytes_in_use, 0u);
  EXPECT_EQ(allocator->allocate(5 * kMiB)->bytes(), 5 * kMiB);
}

TEST(Allocator, RefusalNamesWhatIsInUseAndReserved) {
  CountingSource::Counts counts;
  counts.may_extend = false;
  auto allocator = Allocator::create(std::make_unique<CountingSource>(counts));
  const auto held = allocator->allocate(kMiB);
  counts.limit = 10 * kMiB;
  try {
    allocator->allocate(20 * kMiB);
    FAIL();
  } catch (const ResourceExhausted& error) {
    EXPECT_STREQ(error.what(), "refused; 1048576 bytes are in use of 2097152 that are reserved");
    EXPECT_EQ(error.metadata().at("in_use"), "1048576");
    EXPECT_EQ(error.metadata().at("reserved"), "2097152");
  }
}

TEST(Allocator, HeapRefusalNamesTheSize) {
  try {
    kernels::cpu::make_heap_source()->acquire(std::size_t{1} << 60);
    FAIL();
  } catch (const ResourceExhausted& e) {
    EXPECT_NE(std::string(e.what()).find(std::to_string(std::size_t{1} << 60)), std::string::npos);
  }
}

TEST(Allocator, StoragesMayDieOnAnotherThread) {
  auto allocator = Allocator::create(kernels::cpu::make_heap_source());
  for (int round = 0; round < 50; ++round) {
    std::vector<std::shared_ptr<Storage>> handed_over;
    for (int i = 0; i < 100; ++i) handed_over.push_back(allocator->allocate(1000));
    std::thread other([moved = std::move(handed_over)]() mutable { moved.clear(); });
    for (int i = 0; i < 100; ++i) allocator->allocate(500);
    other.join();
  }
  EXPECT_EQ(allocator->stats().bytes_in_use, 0u);
}

TEST(Storage, OutlivesTheHandleOnItsAllocator) {
  auto allocator = Allocator::create(kernels::cpu::make_heap_source());
  auto storage = allocator->allocate(100);
  const std::weak_ptr<Allocator> watch = allocator;
  allocator.reset();
  std::memset(storage->data(), 7, 100);
  EXPECT_EQ(storage->data()[99], std::byte{7});
  EXPECT_FALSE(watch.expired());
  storage.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(Storage, ForeignMemoryKeepsItsOwner) {
  struct Bytes final : MemoryOwner {
    std::vector<std::byte> values = std::vector<std::byte>(10);
  };
  auto owner = std::make_shared<Bytes>();
  std::weak_ptr<Bytes> watch = owner;
  auto storage = std::make_shared<Storage>(owner->values.data(), owner->values.size(), owner);
  owner.reset();
  EXPECT_FALSE(watch.expired());
  storage.reset();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace meshloom
