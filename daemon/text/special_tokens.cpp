// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/special_tokens.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace meshloom::text {
namespace {

using Json = nlohmann::json;

/// Classes of transformers with the tokens that they have where a folder names none, in the order
/// of kSpecialTokenNames; null: none. Names and types have blanks around them.
struct ClassTokens {
  std::string_view names;
  std::string_view model_types;  ///< that are given the first of these classes
  std::array<const char*, kSpecialTokenNames.size()> tokens;
};

constexpr const char* kText = "<|endoftext|>";
constexpr const char* kNone = nullptr;

constexpr ClassTokens kClasses[] = {
    {" GPT2Tokenizer CodeGenTokenizer ",
     " codegen gpt2 gpt_neo gptj opt phi starcoder2 ",
     {kText, kText, kText, kNone, kNone, kNone, kNone}},
    {" Qwen2Tokenizer ",
     " qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next ",
     {kNone, kText, kText, kNone, kText, kNone, kNone}},
    {" Qwen3_5Tokenizer ",
     " qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text ",
     {kNone, kText, kText, kNone, kText, kNone, kNone}},
    {" GPTNeoXTokenizer ",
     " falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv ",
     {kText, kText, kText, kNone, "<|padding|>", kNone, kNone}},
    {" LlamaTokenizer Phi3Tokenizer ", "", {"<s>", "</s>", "<unk>", kNone, kNone, kNone, kNone}},
    {" CodeLlamaTokenizer ", " code_llama ", {"<s>", "</s>", "<unk>", kNone, kNone, kNone, kNone}},
    {" GemmaTokenizer ",
     " gemma gemma2 gemma3 gemma3_text recurrent_gemma t5gemma ",
     {"<bos>", "<eos>", "<unk>", kNone, "<pad>", kNone, "<mask>"}},
    {" CohereTokenizer ",
     " cohere cohere2 ",
     {"<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", "<SEP>", "<PAD>", "<CLS>", "<MASK_TOKEN>"}},
    {" BertTokenizer ConvBertTokenizer DistilBertTokenizer ElectraTokenizer MobileBertTokenizer ",
     " bert convbert distilbert electra ernie megatron-bert mobilebert nomic_bert squeezebert ",
     {kNone, kNone, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}},
    {" RobertaTokenizer BartTokenizer LongformerTokenizer ",
     " bart longformer roberta roberta-prelayernorm ",
     {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"}},
    {" XLMRobertaTokenizer ",
     " xlm-roberta xmod ",
     {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"}},
    {" CamembertTokenizer MBartTokenizer ",
     " camembert mbart ",
     {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"}},
    {" MPNetTokenizer ", " mpnet ", {"<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"}},
    {" DebertaTokenizer DebertaV2Tokenizer ",
     " deberta deberta-v2 ",
     {"[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}},
    {" AlbertTokenizer ",
     " albert ",
     {"[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"}},
    {" BigBirdTokenizer ",
     " big_bird ",
     {"<s>", "</s>", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"}},
    {" XLNetTokenizer ", " xlnet ", {"<s>", "</s>", "<unk>", "<sep>", "<pad>", "<cls>", "<mask>"}},
    {" T5Tokenizer ", " mt5 t5 ", {kNone, "</s>", "<unk>", kNone, "<pad>", kNone, kNone}},
    {" PegasusTokenizer ",
     " pegasus ",
     {kNone, "</s>", "<unk>", kNone, "<pad>", kNone, "<mask_2>"}},
};

/// Types whose folders are read by a class without tokens, whatever class they name.
constexpr std::string_view kWithoutClass =
    " ernie4_5 ernie4_5_moe flex_olmo glm glm4 glm4_moe gpt_bigcode granite granitemoe "
    "granitemoehybrid internlm2 internlm3 jamba minicpm3 minimax_m2 ministral ministral3 mistral "
    "mixtral modernbert modernbert-decoder nemotron olmo2 olmo3 olmo_hybrid persimmon phi3 phimoe "
    "smolvlm stablelm umt5 xlm-roberta-xl ";

/// Types whose own class counts, whatever class their folders name.
constexpr std::string_view kOwnClass = " qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text ";

bool lists(std::string_view list, std::string_view word) {
  return !word.empty() && list.find(" " + std::string(word) + " ") != std::string_view::npos;
}

const ClassTokens* known_class(std::string_view name) {
  const auto* const at =
      std::find_if(std::begin(kClasses), std::end(kClasses),
                   [&](const ClassTokens& known) { return lists(known.names, name); });
  return at == std::end(kClasses) ? nullptr : at;
}

/// The class of a model_type; empty: one without tokens; nothing: none is told by the type.
std::optional<std::string> class_of_type(std::string_view type) {
  if (lists(kWithoutClass, type)) return "";
  for (const ClassTokens& known : kClasses)
    if (lists(known.model_types, type))
      return std::string(known.names.substr(1, known.names.find(' ', 1) - 1));
  return std::nullopt;
}

/// The first eos_token_id of config.json.
std::optional<TokenId> end_of_model(const JsonPart& model, TokenId end) {
  const auto at = model.json().find("eos_token_id");
  if (at == model.json().end()) return std::nullopt;
  const Json& first = at->is_array() && !at->empty() ? at->front() : *at;
  if (!first.is_number_unsigned() || first.get<std::uint64_t>() >= static_cast<std::uint64_t>(end))
    return std::nullopt;
  return first.get<TokenId>();
}

}  // namespace

Json with_special_tokens_map(Json config, const JsonPart& map) {
  if (config.contains("added_tokens_decoder")) return config;
  for (const char* name : kSpecialTokenNames) {
    special_token(map, name);
    if (const auto at = map.json().find(name); at != map.json().end()) config[name] = *at;
  }
  return config;
}

std::optional<std::string> named_class(const JsonPart& config) {
  auto name = config.optional_text("tokenizer_class");
  if (name && name->ends_with("Fast")) name->resize(name->size() - 4);
  return name;
}

std::string tokenizer_class(const JsonPart& config, const JsonPart& model, bool is_byte_level) {
  const auto in_config = named_class(config);
  const std::string named = in_config ? *in_config : named_class(model).value_or("");
  const std::string type = model.optional_text("model_type").value_or("");
  const auto of_type = class_of_type(type);
  if (named.empty()) return of_type.value_or("");
  const bool has_own = lists(kOwnClass, type);
  if (named == "LlamaTokenizer" && is_byte_level && !has_own) return "";
  if (!of_type || *of_type == named) return named;
  if (of_type->empty()) return "";
  if (has_own) return *of_type;
  return known_class(named) != nullptr ? named : "";
}

std::optional<std::string> special_token(const JsonPart& config, std::string_view name) {
  if (!config.has(name)) return std::nullopt;
  const JsonPart part = config.at(name);
  return part.json().is_object() ? part.text("content") : part.text();
}

std::optional<std::string> special_token(const JsonPart& config, std::string_view class_name,
                                         std::string_view name) {
  if (config.json().contains(name)) return special_token(config, name);
  const ClassTokens* const known = known_class(class_name);
  if (known == nullptr) return std::nullopt;
  const auto* const at = std::find(kSpecialTokenNames.begin(), kSpecialTokenNames.end(), name);
  if (at == kSpecialTokenNames.end()) return std::nullopt;
  const char* const token =
      known->tokens.at(static_cast<std::size_t>(std::distance(kSpecialTokenNames.begin(), at)));
  return token != nullptr ? std::optional<std::string>(token) : std::nullopt;
}

NamedTokens named_tokens(const JsonPart& config, std::string_view class_name) {
  NamedTokens tokens;
  for (const char* name : kSpecialTokenNames)
    if (auto token = special_token(config, class_name, name))
      tokens.emplace_back(name, std::move(*token));
  return tokens;
}

std::optional<TokenId> document_end(const JsonPart& config, const std::string& class_name,
                                    const JsonPart& model, const Tokenizer& tokenizer) {
  if (const auto named = special_token(config, "eos_token")) return tokenizer.find(*named);
  for (const char* name : {"eos_token", "sep_token"})
    if (const auto token = special_token(config, class_name, name))
      if (const auto id = tokenizer.find(*token)) return id;
  return end_of_model(model, tokenizer.end());
}

}  // namespace meshloom::text
