// SPDX-License-Identifier: Apache-2.0
// HfNameRules: how Hugging Face files name an architecture's tensors where these are no parameters'
// names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshloom::nn {

/// HfTiedNames names two tensors of a model that hold the same values where they are tied. The
/// model has no parameter `tied` then.
struct HfTiedNames {
  std::string parameter;
  std::string tied;
};

struct HfNameRules {
  /// Headless files leave this out in front of names, which then begin as the list says.
  std::string base_prefix;
  std::vector<std::string_view> headless_begins;
  /// Ends of names in older files, and today's.
  std::vector<std::pair<std::string_view, std::string_view>> older_ends = {};
  HfTiedNames tied_weights;  ///< the input embedding and the output head
  /// BERT's two names of the output's bias, of which the models here know the first. transformers
  /// adds the second one to the logits, and ties them where it ties the weights.
  std::optional<HfTiedNames> tied_bias = std::nullopt;
  /// Begins of names that are of the head, which headless files lack. Empty: such files are not
  /// offered.
  std::string head_prefix = {};
  /// Tells whether a name is that of a buffer that older versions stored or of a head that the
  /// model does not have.
  bool (*is_ignored)(const std::string& name);
};

}  // namespace meshloom::nn
