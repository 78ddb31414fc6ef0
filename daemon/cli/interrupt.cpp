// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <system_error>

namespace meshloom::cli {
namespace {

// A signal handler has no argument of its own: the writing end of the scope's pipe.
std::atomic<int> signal_fd{-1};

void on_signal(int) {
  const char byte = 1;
  const int fd = signal_fd.load();
  if (fd >= 0) (void)!::write(fd, &byte, 1);
}

}  // namespace

InterruptScope::InterruptScope(std::function<void()> on_interrupt)
    : on_interrupt_(std::move(on_interrupt)) {
  if (::pipe2(pipe_, O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe");
  thread_ = std::thread([this, fd = pipe_[0]] {
    char byte = 0;
    while (::read(fd, &byte, 1) == 1) {
      interrupted_ = true;
      on_interrupt_();
    }
  });
  signal_fd = pipe_[1];
  struct sigaction action {};
  action.sa_handler = &on_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &before_int_);
  ::sigaction(SIGTERM, &action, &before_term_);
}

InterruptScope::~InterruptScope() {
  ::sigaction(SIGINT, &before_int_, nullptr);
  ::sigaction(SIGTERM, &before_term_, nullptr);
  signal_fd = -1;
  ::close(pipe_[1]);
  thread_.join();
  ::close(pipe_[0]);
}

}  // namespace meshloom::cli
