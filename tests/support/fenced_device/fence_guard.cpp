// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fenced_device/fence_guard.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "kernels/base/error.h"

namespace meshloom::testing {
namespace {

/// `begin` is stored last, so that a handler that sees it sees the rest.
struct GuardedRange {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::size_t> bytes{0};
};

std::array<GuardedRange, kMostFencedDevices> g_ranges;
struct sigaction g_previous;

/// A line that is made without memory from the heap, as a signal handler must.
class SignalLine {
 public:
  void add(const char* text) {
    while (*text != '\0') add(*text++);
  }
  void add_number(std::uintptr_t value, unsigned base) {
    std::array<char, 64> digits;
    std::size_t count = 0;
    do {
      digits[count++] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value > 0);
    while (count > 0) add(digits[--count]);
  }
  void write_to_stderr() const {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_.data(), size_);
  }

 private:
  void add(char one) {
    if (size_ < text_.size()) text_[size_++] = one;
  }

  std::array<char, 256> text_;
  std::size_t size_ = 0;
};

[[noreturn]] void end_process(int index, std::uintptr_t address) {
  SignalLine line;
  line.add("fenced device: the host touched 0x");
  line.add_number(address, 16);
  line.add(" of cuda:");
  line.add_number(static_cast<std::uintptr_t>(index), 10);
  line.add(" (offset ");
  line.add_number(address - g_ranges[static_cast<std::size_t>(index)].begin, 10);
  line.add(" of its memory), which only the device may touch\n");
  line.write_to_stderr();
  std::array<void*, 64> frames;
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  ::_exit(kFenceExitStatus);
}

// To the handler before this one. If that is the system's, the signal comes again when this handler
// returns, and ends the process.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(signal, info, context);
  } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  // Only faults of the memory have an address.
  const bool has_address = info->si_code == SEGV_ACCERR || info->si_code == SEGV_MAPERR;
  const int index = has_address ? fenced_device_at(info->si_addr) : -1;
  if (index >= 0) end_process(index, reinterpret_cast<std::uintptr_t>(info->si_addr));
  pass_on(signal, info, context);
}

void install_handler() {
  // The first call loads a library, which a signal handler must not do.
  std::array<void*, 1> frame;
  ::backtrace(frame.data(), 1);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  check_internal(::sigaction(SIGSEGV, &action, &g_previous) == 0,
                 "fenced device: the system refused a handler of SIGSEGV");
}

}  // namespace

void guard_fenced_range(int index, const std::byte* begin, std::size_t bytes) {
  check_internal(index >= 0 && index < kMostFencedDevices,
                 "fenced device: there is no cuda:{}, at most {} devices", index,
                 kMostFencedDevices);
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  GuardedRange& range = g_ranges[static_cast<std::size_t>(index)];
  range.bytes = bytes;
  range.begin = reinterpret_cast<std::uintptr_t>(begin);
}

int fenced_device_at(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (std::size_t i = 0; i < g_ranges.size(); ++i) {
    const std::uintptr_t begin = g_ranges[i].begin;
    if (begin != 0 && at >= begin && at - begin < g_ranges[i].bytes) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace meshloom::testing
