// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/phase_timer.h"

#include <gtest/gtest.h>

#include "kernels/backend_table.h"
#include "tests/bench/profiling_backend.h"

namespace meshloom::train {
namespace {

/// Comes to every mark one second after the one before it, and only once it is waited for.
class SlowDevice final : public kernels::ProfilingBackend {
 public:
  using ProfilingBackend::ProfilingBackend;
  std::unique_ptr<Event> make_event() override {
    ++events_;
    return std::make_unique<Mark>(*this);
  }
  int events() const { return events_; }
  int waits() const { return waits_; }
  void fail() { fails_ = true; }

 private:
  class Mark final : public Event {
   public:
    explicit Mark(SlowDevice& device) : device_(device) {}
    void record(const Stream&) override {
      if (device_.fails_) throw std::runtime_error("the device is lost");
      second_ = ++device_.seconds_;
    }
    void wait() override { ++device_.waits_; }
    bool done() override { return true; }
    double seconds_since(Event& start) override {
      wait();
      return second_ - static_cast<Mark&>(start).second_;
    }

   private:
    SlowDevice& device_;
    int second_ = 0;
  };

  int events_ = 0, waits_ = 0, seconds_ = 0;
  bool fails_ = false;
};

TEST(Phases, AddUpWhatTheDeviceTakes) {
  SlowDevice device(kernels::backend_for(kCpuDevice));
  ExecutionContext::Options options;
  options.backend = &device;
  ExecutionContext context(options);
  Phases phases(context);
  const auto step = [&] {
    const PhaseTimer whole(phases, "step");
    for (int i = 0; i < 2; ++i) const PhaseTimer part(phases, "part");
  };
  step();
  EXPECT_EQ(device.waits(), 0) << "a timer waits for nothing";
  EXPECT_EQ(phases.seconds(), (PhaseSeconds{{"part", 2.0}, {"step", 5.0}}));
  step();
  EXPECT_EQ(phases.seconds(), (PhaseSeconds{{"part", 4.0}, {"step", 10.0}}));
  step();
  const int waits = device.waits();
  phases.clear();
  EXPECT_EQ(phases.seconds(), PhaseSeconds());
  EXPECT_EQ(device.waits(), waits);
  EXPECT_EQ(device.events(), 6) << "events are used again";
}

TEST(Phases, EndWithoutAWordWhereTheDeviceFails) {
  SlowDevice device(kernels::backend_for(kCpuDevice));
  ExecutionContext::Options options;
  options.backend = &device;
  ExecutionContext context(options);
  Phases phases(context);
  const auto fail = [&] {
    const PhaseTimer whole(phases, "step");
    { const PhaseTimer part(phases, "part"); }
    device.fail();
    throw std::runtime_error("what the step failed with");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(phases.seconds(), (PhaseSeconds{{"part", 1.0}}));
  EXPECT_THROW(PhaseTimer(phases, "next"), std::runtime_error);
}

}  // namespace
}  // namespace meshloom::train
