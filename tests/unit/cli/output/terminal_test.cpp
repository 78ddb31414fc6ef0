// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/output/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "daemon/base/unique_fd.h"

namespace meshloom::cli {
namespace {

/// What `print_drawn_text` writes where standard output is `out`, read from `in`.
std::string drawn_into(int out, int in, std::string_view text) {
  std::fflush(stdout);
  const base::UniqueFd before(::dup(STDOUT_FILENO));
  ::dup2(out, STDOUT_FILENO);
  print_drawn_text(text);
  std::fflush(stdout);
  ::dup2(before.get(), STDOUT_FILENO);
  std::array<char, 200> bytes;
  const ssize_t size = ::read(in, bytes.data(), bytes.size());
  return {bytes.data(), static_cast<std::size_t>(size < 0 ? 0 : size)};
}

constexpr std::string_view kDrawn =
    "a\tb\x1b]0;title\a\r\xc2\x9b"
    "2J \xc3\xa9\n";

TEST(DrawnText, NoControlSequenceReachesATerminal) {
  int master = -1, slave = -1;
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  const base::UniqueFd in(master), out(slave);
  EXPECT_EQ(drawn_into(out.get(), in.get(), kDrawn),
            "a\tb\\x1b]0;title\\x07\\x0d\\xc2\\x9b2J \xc3\xa9\r\n");
}

TEST(DrawnText, APipeGetsEveryByte) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const base::UniqueFd in(ends[0]), out(ends[1]);
  EXPECT_EQ(drawn_into(out.get(), in.get(), kDrawn), kDrawn);
}

}  // namespace
}  // namespace meshloom::cli
