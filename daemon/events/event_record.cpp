// SPDX-License-Identifier: Apache-2.0
#include "daemon/events/event_record.h"

#include <bit>
#include <cstdint>
#include <span>

#include "daemon/base/crc32c.h"

namespace meshloom::events {
namespace {

constexpr std::size_t kHeader = 12;  // length and its checksum
constexpr std::size_t kFooter = 4;

/// A checksum of bytes that hold checksums themselves would be weak without the mask.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = base::crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xa282ead8U;
}

template <typename Number>
void put(Number value, std::string* bytes) {
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    bytes->push_back(static_cast<char>(static_cast<unsigned char>(value >> (8 * i))));
}

template <typename Number>
Number get(std::string_view bytes) {
  Number value = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    value |= static_cast<Number>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

/// The payload of the first record; without data if it is not whole or not sound.
std::string_view first_payload(std::string_view bytes) {
  if (bytes.size() < kHeader + kFooter) return {};
  if (get<std::uint32_t>(bytes.substr(8)) != masked_crc(bytes.substr(0, 8))) return {};
  const auto length = get<std::uint64_t>(bytes);
  if (length > bytes.size() - kHeader - kFooter) return {};
  const std::string_view payload = bytes.substr(kHeader, static_cast<std::size_t>(length));
  if (get<std::uint32_t>(bytes.substr(kHeader + payload.size())) != masked_crc(payload)) return {};
  return payload;
}

}  // namespace

std::string to_record(const Event& event) {
  const std::string payload = event.SerializeAsString();
  std::string record;
  record.reserve(kHeader + payload.size() + kFooter);
  put(static_cast<std::uint64_t>(payload.size()), &record);
  put(masked_crc(record), &record);
  record += payload;
  put(masked_crc(payload), &record);
  return record;
}

EventsRead read_events(std::string_view bytes) {
  EventsRead read;
  while (true) {
    const std::string_view payload = first_payload(bytes.substr(read.bytes));
    Event event;
    if (payload.data() == nullptr ||
        !event.ParseFromArray(payload.data(), static_cast<int>(payload.size())))
      return read;
    read.events.push_back(std::move(event));
    read.bytes += kHeader + payload.size() + kFooter;
  }
}

}  // namespace meshloom::events
