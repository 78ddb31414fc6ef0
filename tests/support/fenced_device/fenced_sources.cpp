// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fenced_device/fenced_sources.h"

#include <iterator>
#include <utility>

#include "kernels/cpu/cpu_backend.h"

namespace meshloom::testing {
namespace {

class FencedSource final : public SegmentSource {
 public:
  FencedSource(FencedMemory& memory, FencedStreams& streams) : memory_(memory), streams_(streams) {}

  Device device() const override { return memory_.device(); }
  std::byte* acquire(std::size_t bytes) override { return memory_.acquire(bytes); }
  bool extend(std::byte*, std::size_t, std::size_t) override { return false; }
  void release(std::byte* data, std::size_t) override {
    streams_.finish();
    memory_.release(data);
  }
  std::size_t granularity() const override { return FencedMemory::kGranularity; }

 private:
  FencedMemory& memory_;
  FencedStreams& streams_;
};

class PinnedSource final : public SegmentSource {
 public:
  PinnedSource(std::unique_ptr<SegmentSource> inner, PinnedRanges& ranges, FencedStreams& streams)
      : inner_(std::move(inner)), ranges_(ranges), streams_(streams) {}

  Device device() const override { return inner_->device(); }
  std::byte* acquire(std::size_t bytes) override {
    std::byte* const data = inner_->acquire(bytes);
    ranges_.add(range_at(data, bytes));
    return data;
  }
  bool extend(std::byte* data, std::size_t bytes, std::size_t more) override {
    if (!inner_->extend(data, bytes, more)) return false;
    ranges_.add(range_at(data, bytes + more));
    return true;
  }
  void release(std::byte* data, std::size_t bytes) override {
    streams_.finish();
    ranges_.remove(data);
    inner_->release(data, bytes);
  }
  std::size_t granularity() const override { return inner_->granularity(); }

 private:
  std::unique_ptr<SegmentSource> inner_;
  PinnedRanges& ranges_;
  FencedStreams& streams_;
};

}  // namespace

bool PinnedRanges::hold(const ByteRange& range) const {
  const auto after = ends_.upper_bound(range.begin);
  return after != ends_.begin() && range.end <= std::prev(after)->second;
}

std::size_t PinnedRanges::bytes() const {
  std::size_t sum = 0;
  for (const auto& [begin, end] : ends_) sum += end - begin;
  return sum;
}

std::unique_ptr<SegmentSource> make_fenced_source(FencedMemory& memory, FencedStreams& streams) {
  return std::make_unique<FencedSource>(memory, streams);
}

std::unique_ptr<SegmentSource> make_pinned_source(PinnedRanges& ranges, FencedStreams& streams,
                                                  Threads threads) {
  auto inner = kernels::cpu::cpu_backend().make_source(MemoryKind::kHost, threads);
  return std::make_unique<PinnedSource>(std::move(inner), ranges, streams);
}

}  // namespace meshloom::testing
