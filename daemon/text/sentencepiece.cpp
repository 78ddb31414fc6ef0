// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/sentencepiece.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include "daemon/base/field_error.h"
#include "daemon/base/utf8.h"
#include "daemon/text/added_tokens.h"
#include "daemon/text/character_map.h"
#include "daemon/text/json_part.h"
#include "daemon/text/merge_table.h"
#include "daemon/text/sentencepiece_model.pb.h"
#include "daemon/text/unigram.h"
#include "daemon/text/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

namespace model = sentencepiece_model;

constexpr std::string_view kBlank = "\xE2\x96\x81";  ///< U+2581, which stands for a blank

constexpr std::size_t kMostPieceBytes = 1024;   ///< trained ones have at most a few dozen
constexpr std::size_t kMostSurfaceBytes = 256;  ///< of what stands for unknown text
constexpr const char* kSentenceNormalizer = "normalizer";

/// The byte that a piece "<0x0A>" stands for, spelled as the library does.
std::optional<unsigned char> byte_of(std::string_view piece) {
  unsigned char byte = 0;
  const bool is_framed = piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
  if (!is_framed) return std::nullopt;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  if (error != std::errc() || end != piece.data() + 5) return std::nullopt;
  return fmt::format("<0x{:02X}>", byte) == piece ? std::optional(byte) : std::nullopt;
}

/// The normal form of a text, before it becomes pieces. `spec` outlives it.
class SentenceNormalizer {
 public:
  explicit SentenceNormalizer(const model::NormalizerSpec& spec)
      : map_(spec.precompiled_charsmap()), spec_(spec) {}

  bool adds_prefix() const { return spec_.add_dummy_prefix(); }
  bool removes_blanks() const { return spec_.remove_extra_whitespaces(); }

  /// `text` is valid UTF-8, and so is what it becomes.
  std::string normalize(std::string_view text, Budget& budget) const {
    budget.spend(1 + text.size(), kSentenceNormalizer);
    const bool removes = removes_blanks();
    while (removes && !text.empty()) {
      const auto [length, normal] = next(text, budget);
      if (normal != " ") break;
      text.remove_prefix(length);
    }
    if (text.empty()) return {};
    const std::string_view blank = spec_.escape_whitespaces() ? kBlank : " ";
    std::string out;
    if (adds_prefix()) out += blank;
    bool after_blank = removes;
    while (!text.empty()) {
      auto [length, normal] = next(text, budget);
      budget.check_bytes(out.size() + kBlank.size() * normal.size(), kSentenceNormalizer);
      while (after_blank && normal.starts_with(' ')) normal.remove_prefix(1);
      for (const char c : normal) c == ' ' ? out.append(blank) : out.append(1, c);
      if (!normal.empty()) after_blank = removes && normal.ends_with(' ');
      text.remove_prefix(length);
    }
    while (removes && out.ends_with(blank)) out.erase(out.size() - blank.size());
    // Normal forms come from the file as they are, and what follows relies on whole characters.
    std::string storage;
    return std::string(valid_utf8(out, storage));
  }

 private:
  /// Bytes of the text, and what stands for them.
  std::pair<std::size_t, std::string_view> next(std::string_view text, Budget& budget) const {
    if (const auto match = map_.longest(text, budget); match.length > 0)
      return {match.length, match.normal};
    const std::size_t length = utf8_length(text.front());
    return {length, text.substr(0, length)};
  }

  CharacterMap map_;
  const model::NormalizerSpec& spec_;
};

/// Byte-pair encoding of a whole text: the pair whose joined piece has the highest score comes
/// first.
class ScoredBpe {
 public:
  ScoredBpe(const model::Model& file, const Vocabulary& vocabulary, bool byte_fallback,
            Budget& budget)
      : file_(file),
        vocabulary_(vocabulary),
        byte_tokens_(vocabulary.byte_tokens()),
        unknown_(file.trainer_spec().unk_id()),
        byte_fallback_(byte_fallback) {
    std::vector<float> scores;
    for (const model::Piece& piece : file.pieces())
      if (piece.type() == model::Piece::NORMAL) scores.push_back(piece.score());
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    for (const model::Piece& piece : file.pieces()) {
      if (piece.type() != model::Piece::NORMAL) continue;
      const auto rank = static_cast<std::uint32_t>(
          std::lower_bound(scores.begin(), scores.end(), piece.score(), std::greater<>()) -
          scores.begin());
      add_merges(piece.piece(), rank, budget);
    }
  }

  void encode(std::string_view text, Budget& budget, std::vector<TokenId>& out) const {
    budget.spend(16 * text.size(), "model");
    std::vector<TokenId> symbols;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = utf8_length(text[at]);
      const std::string_view character = text.substr(at, length);
      at += length;
      if (const auto id = normal_piece(character))
        symbols.push_back(*id);
      else if (!byte_fallback_ || !append_bytes(character, byte_tokens_, symbols)) {
        // Unknown characters in a row are one token.
        if (symbols.empty() || symbols.back() != unknown_) symbols.push_back(unknown_);
      }
    }
    merges_.apply(symbols);
    out.insert(out.end(), symbols.begin(), symbols.end());
  }

 private:
  void add_merges(std::string_view piece, std::uint32_t rank, Budget& budget) {
    budget.spend(32 + piece.size() * (4 + piece.size() / 8), "model");
    const TokenId joined = *vocabulary_.find(piece);
    // The library would join characters that are no pieces themselves; no trained model has such.
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t length = utf8_length(piece[at]);
      if (!normal_piece(piece.substr(at, length)))
        throw Unimplemented(fmt::format("piece \"{}\" has a character that is no piece", piece),
                            "NOT_OFFERED");
      at += length;
    }
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      if (base::utf8_continues(piece[cut])) continue;
      const auto first = normal_piece(piece.substr(0, cut));
      const auto second = normal_piece(piece.substr(cut));
      if (first && second) merges_.add(*first, *second, {rank, joined});
    }
  }
  std::optional<TokenId> normal_piece(std::string_view text) const {
    const auto id = vocabulary_.find(text);
    return id && file_.pieces(*id).type() == model::Piece::NORMAL ? id : std::nullopt;
  }

  const model::Model& file_;
  const Vocabulary& vocabulary_;
  std::array<TokenId, 256> byte_tokens_;
  TokenId unknown_;
  bool byte_fallback_;
  MergeTable merges_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(model::Model file, const SentencePieceTemplate& around,
                         const std::string& path, Budget& budget)
      : file_(std::move(file)), normalizer_(file_.normalizer_spec()), around_(around) {
    check_known(path);
    std::vector<std::pair<std::string, double>> tokens;
    std::vector<bool> hidden;
    for (const model::Piece& piece : file_.pieces()) {
      budget.spend(16 + piece.piece().size() / 8, "model");
      all_.add(piece.piece(), static_cast<TokenId>(tokens.size()));
      if (piece.type() == model::Piece::CONTROL)
        controls_.push_back({.content = piece.piece(),
                             .id = static_cast<TokenId>(tokens.size()),
                             .normalized = false,
                             .special = true});
      hidden.push_back(piece.type() != model::Piece::NORMAL);
      byte_values_.push_back(byte_of(piece.piece()).value_or(0));
      tokens.emplace_back(piece.piece(), piece.score());
    }
    const model::TrainerSpec& trainer = file_.trainer_spec();
    if (trainer.model_type() == model::TrainerSpec::BPE)
      pieces_.emplace<ScoredBpe>(file_, all_, trainer.byte_fallback(), budget);
    else
      pieces_.emplace<Unigram>(tokens, TokenId{trainer.unk_id()}, trainer.byte_fallback(), budget,
                               UnigramSearch{.hidden = hidden, .single_precision = true});
    std::vector<const AddedToken*> found;
    std::vector<std::string> texts;
    for (const AddedToken& token : controls_) {
      found.push_back(&token);
      texts.push_back(token.content);
    }
    finder_.emplace(found, texts, budget);
  }

  using Tokenizer::decode;
  using Tokenizer::encode;
  void encode(std::string_view bytes, bool with_template, WordCache& /*cache*/, Budget& budget,
              std::vector<TokenId>& out) const override {
    const model::TrainerSpec& trainer = file_.trainer_spec();
    if (with_template && around_.bos) out.push_back(trainer.bos_id());
    std::string storage;
    finder_->split(
        valid_utf8(bytes, storage), budget,
        [&](const AddedToken& token) { out.push_back(token.id); },
        [&](std::string_view rest) {
          const std::string text = normalizer_.normalize(rest, budget);
          if (text.empty()) return;
          const Budget::Hold hold(budget, text.size(), kSentenceNormalizer);
          if (const auto* bpe = std::get_if<ScoredBpe>(&pieces_))
            bpe->encode(text, budget, out);
          else
            std::get<Unigram>(pieces_).encode(text, budget, out);
        });
    if (with_template && around_.eos) out.push_back(trainer.eos_id());
  }

  std::string decode(std::span<const TokenId> tokens, bool skip_special,
                     Budget& budget) const override {
    std::string text, bytes;
    bool may_strip = normalizer_.adds_prefix() || normalizer_.removes_blanks();
    const auto flush_bytes = [&] {
      std::string storage;
      text += valid_utf8(bytes, storage);
      bytes.clear();
    };
    for (const TokenId id : tokens) {
      if (id < 0 || id >= end()) continue;
      const model::Piece& piece = file_.pieces(id);
      // Of at most kMostPieceBytes.
      budget.allow(piece.piece().size() + 1);
      budget.spend(8 + piece.piece().size(), "decoder");
      if (piece.type() == model::Piece::BYTE) {
        bytes.push_back(static_cast<char>(byte_values_[static_cast<std::size_t>(id)]));
        continue;
      }
      flush_bytes();
      if (piece.type() == model::Piece::CONTROL) {
        if (!skip_special) text += piece.piece();
        continue;
      }
      if (piece.type() == model::Piece::UNKNOWN) {
        text += file_.trainer_spec().unk_surface();
        continue;
      }
      std::string part = piece.piece();
      if (may_strip && text.empty() && part.starts_with(kBlank)) {
        part.erase(0, kBlank.size());
        may_strip = normalizer_.removes_blanks();
      }
      replace_all(part, kBlank, " ", budget, "decoder");
      text += part;
    }
    flush_bytes();
    return text;
  }

  Template around() const override {
    Template around;
    if (around_.bos) around.before = {file_.trainer_spec().bos_id()};
    if (around_.eos) around.after = {file_.trainer_spec().eos_id()};
    return around;
  }
  std::vector<std::uint32_t> token_bytes() const override {
    std::vector<std::uint32_t> bytes;
    for (const model::Piece& piece : file_.pieces()) {
      const bool has_none =
          piece.type() == model::Piece::CONTROL || piece.type() == model::Piece::UNKNOWN;
      bytes.push_back(has_none ? 0 : sentencepiece_bytes(piece.piece()));
    }
    return bytes;
  }
  TokenId end() const override { return static_cast<TokenId>(file_.pieces_size()); }
  std::optional<TokenId> find(std::string_view token) const override { return all_.find(token); }

 private:
  void check_known(const std::string& path) const {
    const model::TrainerSpec& trainer = file_.trainer_spec();
    const auto not_known = [&](const char* what) {
      base::field_not_offered(path, "{} are not known", what);
    };
    if (trainer.model_type() != model::TrainerSpec::UNIGRAM &&
        trainer.model_type() != model::TrainerSpec::BPE)
      not_known("models of words or characters");
    if (trainer.treat_whitespace_as_suffix()) not_known("blanks as suffixes");
    if (trainer.unk_surface().size() > kMostSurfaceBytes)
      base::refuse_field(path, "unk_surface has {} bytes, expected at most {}",
                         trainer.unk_surface().size(), kMostSurfaceBytes);
    bool has_unknown = false;
    for (const model::Piece& piece : file_.pieces()) {
      if (piece.type() == model::Piece::USER_DEFINED) not_known("pieces that users define");
      if (piece.type() == model::Piece::UNUSED) not_known("unused pieces");
      if (piece.piece().empty()) base::refuse_field(path, "a piece is empty");
      if (piece.piece().size() > kMostPieceBytes)
        base::refuse_field(path, "a piece has {} bytes, expected at most {}", piece.piece().size(),
                           kMostPieceBytes);
      if (!std::isfinite(piece.score()))
        base::refuse_field(path, "the score of a piece is {}, expected a finite number",
                           piece.score());
      if (piece.type() == model::Piece::BYTE && !byte_of(piece.piece()))
        base::refuse_field(path, "\"{}\" is no byte", base::printable_text(piece.piece()));
      has_unknown |= piece.type() == model::Piece::UNKNOWN;
    }
    const int unknown = trainer.unk_id();
    if (!has_unknown || unknown < 0 || unknown >= file_.pieces_size() ||
        file_.pieces(unknown).type() != model::Piece::UNKNOWN)
      base::refuse_field(path, "piece {}, of {}, is not the unknown one", unknown,
                         file_.pieces_size());
    const auto check_special = [&](bool wanted, int id, const char* name) {
      if (wanted && (id < 0 || id >= file_.pieces_size()))
        base::refuse_field(path, "there is no {} piece to put around texts", name);
    };
    check_special(around_.bos, trainer.bos_id(), "bos");
    check_special(around_.eos, trainer.eos_id(), "eos");
  }

  model::Model file_;
  SentenceNormalizer normalizer_;
  SentencePieceTemplate around_;
  Vocabulary all_;
  std::vector<unsigned char> byte_values_;  ///< by piece; 0 for those that are no bytes
  std::variant<std::monostate, ScoredBpe, Unigram> pieces_;
  std::vector<AddedToken> controls_;
  std::optional<TokenFinder> finder_;
};

/// Before the messages are made: an empty piece takes two bytes of the file and a hundred of
/// memory.
void check_pieces(std::string_view bytes, const std::string& path, Budget& budget) {
  namespace pb = google::protobuf;
  using pb::internal::WireFormatLite;
  pb::io::CodedInputStream input(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                 static_cast<int>(bytes.size()));
  TokenId pieces = 0;
  while (const std::uint32_t tag = input.ReadTag()) {
    budget.spend(1, "tokenizer.model");
    pieces += WireFormatLite::GetTagFieldNumber(tag) == model::Model::kPiecesFieldNumber;
    if (pieces >= kMostTokens)
      throw_too_large(path, fmt::format("has {} pieces and more, expected less", kMostTokens));
    if (!WireFormatLite::SkipField(&input, tag)) return;  // which the parser refuses
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> read_sentencepiece(std::string_view bytes,
                                                    const SentencePieceTemplate& around,
                                                    const std::string& path, Budget& budget) {
  check_pieces(bytes, path, budget);
  model::Model file;
  if (!file.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || file.pieces().empty())
    base::refuse_field(path, "is no model of sentencepiece");
  return std::make_shared<SentencePieceTokenizer>(std::move(file), around, path, budget);
}

std::shared_ptr<const Tokenizer> read_sentencepiece(std::string_view bytes,
                                                    const SentencePieceTemplate& around,
                                                    const std::string& path) {
  Budget budget = Budget::of_text(bytes.size());
  return read_sentencepiece(bytes, around, path, budget);
}

}  // namespace meshloom::text
