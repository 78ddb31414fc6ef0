// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/config_agreement.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/comm/agreement/rank_values.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::string_view kNotGiven = "";
constexpr std::string_view kNotThere = "unread: ";  // the reason follows

/// What a rank tells the others of its file.
std::string card_of(const ConfigFile& file) {
  if (file.path.empty()) return std::string(kNotGiven);
  if (!file.text) return std::string(kNotThere) + file.refusal;
  return fmt::format("{:016x}", static_cast<std::uint64_t>(comm::text_digest(*file.text)));
}

}  // namespace

std::string agree_on_config(comm::Bootstrap& bootstrap, const comm::Topology& topology,
                            ParsedDaemonOptions* parsed) {
  const std::vector<std::string> cards = bootstrap.exchange(card_of(parsed->file));
  if (cards[0].starts_with(kNotThere)) return "--config: " + cards[0].substr(kNotThere.size());
  bool all_have_it = true;
  for (std::size_t rank = 1; rank < cards.size(); ++rank) {
    const std::string& host = topology.ranks[rank].hostname;
    if (cards[0] == kNotGiven && cards[rank] != kNotGiven)
      return fmt::format("--config is given to rank {} on {} and not to rank 0", rank, host);
    const bool was_read = cards[rank] != kNotGiven && !cards[rank].starts_with(kNotThere);
    if (was_read && cards[rank] != cards[0])
      return fmt::format(
          "--config: rank {} on {} has read another file than rank 0 on {}; all ranks go by one: "
          "make the files equal, or leave it on rank 0's host alone",
          rank, host, topology.ranks[0].hostname);
    all_have_it = all_have_it && cards[rank] == cards[0];
  }
  if (all_have_it) return {};
  const std::string text = bootstrap.broadcast(parsed->file.text.value_or(""), 0);
  if (!parsed->file.text) take_config_text(text, parsed);
  return {};
}

}  // namespace meshloom::control
