// SPDX-License-Identifier: Apache-2.0
// ModelArchitecture: all that an architecture has of its own. Each has one file in this folder, and
// architectures.cpp lists them; the rest of the program asks here.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/nn/models/architecture_names.h"
#include "daemon/nn/models/architectures/style_maker.h"
#include "daemon/nn/models/hf_name_rules.h"
#include "daemon/nn/models/json_reader.h"
#include "daemon/nn/models/model_config.h"

namespace meshloom {
class ExecutionContext;
}

namespace meshloom::nn {

class Model;

/// HeadKeys lists the keys that messages about the sizes of heads name.
struct HeadKeys {
  const char* hidden = "hidden_size";
  const char* heads = "num_attention_heads";
  bool divided = true;  ///< a head has hidden_size / heads channels unless head_dim is given
};

/// It is stateless, and used by any thread.
class ModelArchitecture {
 public:
  virtual ~ModelArchitecture() = default;

  /// Returns at least one name, all of one Architecture; the first is that of a config without a
  /// family.
  virtual std::span<const ArchitectureName> names() const = 0;
  /// Returns whether a position sees itself and those before it alone, so that the model generates.
  virtual bool is_causal() const = 0;

  /// Reads everything of a config.json but what all architectures have (special tokens that are
  /// given, initializer_range). Throws as parse_hf_config.
  virtual ModelConfig parse(const JsonReader& json, const ArchitectureName& name) const = 0;
  virtual HeadKeys head_keys(const JsonReader&, const ModelConfig&) const { return {}; }
  /// Adds the keys that parse reads.
  virtual void write(const ModelConfig& config, nlohmann::ordered_json& json) const = 0;

  /// Returns the number of parameters in all, without an output projection of its own.
  virtual std::int64_t parameters(const ModelConfig& config) const = 0;
  /// Counts the parameters that are looked up and multiply nothing, but for the embedding of
  /// tokens.
  virtual std::int64_t looked_up(const ModelConfig&) const { return 0; }

  virtual const HfNameRules& hf_names() const = 0;
  /// Adds the styles that tp shards the model with unless a plan says otherwise.
  virtual void add_styles(StyleMaker& plan) const = 0;
  /// Makes the model as make_model does.
  virtual std::unique_ptr<Model> make(ExecutionContext& context, const ModelConfig& config,
                                      DType dtype) const = 0;
};

const ModelArchitecture& architecture_of(Architecture id);
/// Returns all architectures that are offered, in the order in which messages list them.
std::span<const ModelArchitecture* const> architectures();

}  // namespace meshloom::nn
