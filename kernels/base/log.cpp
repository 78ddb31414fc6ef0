// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace meshloom {
namespace {

/// The length of the UTF-8 character at the start of `text`; 0 where it is not one, or is a control
/// character.
std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // U+0080 to U+009F are control characters; longer forms than needed, surrogates and what lies
  // above U+10FFFF are no characters.
  const bool wrong = (first == 0xC2 && byte(1) < 0xA0) || (first == 0xE0 && byte(1) < 0xA0) ||
                     (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
                     (first == 0xF4 && byte(1) > 0x8F);
  return wrong ? 0 : length;
}

/// The text of a line. Parts of it come from clients.
class OneLineText final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const std::string text =
        one_line(std::string_view(message.payload.data(), message.payload.size()));
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OneLineText>();
  }
};

}  // namespace

std::string one_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = printable_length(text);
    if (length > 0) {
      out += text.substr(0, length);
    } else if (text[0] == '\n') {
      out += "\\n";
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

void init_log(const LogOptions& options) {
  constexpr std::size_t kMaxBytes = 10u << 20;
  constexpr std::size_t kMaxFiles = 3;
  std::vector<spdlog::sink_ptr> sinks{std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
  if (!options.file.empty())
    sinks.push_back(
        std::make_shared<spdlog::sinks::rotating_file_sink_mt>(options.file, kMaxBytes, kMaxFiles));
  auto logger = std::make_shared<spdlog::logger>("meshloom", sinks.begin(), sinks.end());
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<OneLineText>('*').set_pattern(
      fmt::format("%Y-%m-%dT%H:%M:%S.%e [rank {}] %^%l%$ %*", options.rank));
  logger->set_formatter(std::move(formatter));
  logger->set_level(spdlog::level::from_str(options.level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace meshloom
