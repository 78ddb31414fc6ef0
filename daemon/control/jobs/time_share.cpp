// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/time_share.h"

#include <algorithm>

namespace meshloom::control {
namespace {

TimeShare::Clock::duration scaled(TimeShare::Clock::duration time, double factor) {
  return std::chrono::duration_cast<TimeShare::Clock::duration>(time * factor);
}

}  // namespace

void TimeShare::spent(Clock::duration time, Clock::time_point now) {
  pieces_.push_back({now, time});
}

TimeShare::Clock::duration TimeShare::window(Clock::duration time) const {
  Clock::duration longest = time;
  for (const Piece& piece : pieces_) longest = std::max(longest, piece.time);
  return std::max<Clock::duration>(std::chrono::seconds(1), scaled(longest, 1.0 / share_));
}

TimeShare::Clock::duration TimeShare::allowance(Clock::duration window) const {
  // Rounding must not keep out a piece that the window was made for.
  return scaled(window, share_) + std::chrono::microseconds(1);
}

void TimeShare::forget(Clock::time_point before) {
  while (!pieces_.empty() && pieces_.front().end <= before) pieces_.pop_front();
}

int TimeShare::fitting(Clock::duration time, Clock::time_point now) {
  time = std::max<Clock::duration>(time, std::chrono::milliseconds(1));
  const Clock::duration window = this->window(time);
  forget(now - window);
  Clock::duration left = allowance(window);
  for (const Piece& piece : pieces_) left -= piece.time;
  return left < time ? 0 : static_cast<int>(left / time);
}

TimeShare::Clock::time_point TimeShare::next(Clock::duration time, Clock::time_point now) {
  const Clock::duration window = this->window(time);
  forget(now - window);
  Clock::duration over = time - allowance(window);
  for (const Piece& piece : pieces_) over += piece.time;
  Clock::time_point fits = now;
  for (auto piece = pieces_.begin(); over > Clock::duration::zero() && piece != pieces_.end();
       ++piece) {
    over -= piece->time;
    fits = piece->end + window;
  }
  return fits;
}

}  // namespace meshloom::control
