// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>

#include "daemon/base/files.h"
#include "daemon/base/stand_in.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

std::string label_of(const std::filesystem::path& path) {
  const auto folder = path.parent_path().filename();
  return folder.empty() ? path.filename().string() : (folder / path.filename()).string();
}

[[noreturn]] void fail_header(const std::string& label, const std::string& what) {
  throw InvalidArgument(fmt::format("{}: header: {}", label, what), "MALFORMED_SAFETENSORS",
                        {{"file", label}});
}

std::string read_header(const base::InputFile& file, const std::string& label) {
  const std::uint64_t file_bytes = file.size();
  std::uint64_t length = 0;
  if (file_bytes < sizeof length)
    fail_header(label, fmt::format("a file of {} bytes is too short for one", file_bytes));
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  // Text at the place of the length makes it a huge one.
  if (length > kMaxSafetensorsHeader) base::refuse_stand_in(file, label);
  if (length > kMaxSafetensorsHeader)
    fail_header(label, fmt::format("its length of {} bytes is more than the {} that are accepted",
                                   length, kMaxSafetensorsHeader));
  if (length > file_bytes - sizeof length)
    fail_header(label,
                fmt::format("its length of {} bytes runs past the end of the file of {} bytes",
                            length, file_bytes));
  std::string text(length, '\0');
  file.read(sizeof length, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

std::shared_ptr<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path,
                                                       const std::string& given_label,
                                                       base::Disk& disk) {
  const std::string label = given_label.empty() ? label_of(path) : given_label;
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile(label, disk.open(path)));
  const std::string text = read_header(file->file_, label);
  file->data_offset_ = sizeof(std::uint64_t) + text.size();
  file->header_ = parse_safetensors_header(text, file->file_.size() - file->data_offset_, label);
  const auto& entries = file->header_.entries;
  file->by_name_.resize(entries.size());
  std::iota(file->by_name_.begin(), file->by_name_.end(), std::size_t{0});
  std::sort(file->by_name_.begin(), file->by_name_.end(),
            [&](std::size_t a, std::size_t b) { return entries[a].name < entries[b].name; });
  return file;
}

bool decides_safetensors_header(const base::InputFile& file, std::uint64_t bytes) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) return true;
  if (bytes < sizeof length) return false;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  return length > kMaxSafetensorsHeader || length > file.size() - sizeof length ||
         sizeof length + length <= bytes;
}

void SafetensorsFile::read(const SafetensorsEntry& entry, std::uint64_t offset,
                           std::span<std::byte> out) const {
  check_internal(offset + out.size() <= entry.end - entry.begin,
                 "{}: bytes {} to {} of '{}', which has {}", label_, offset, offset + out.size(),
                 entry.name, entry.end - entry.begin);
  file_.read(data_offset_ + entry.begin + offset, out);
}

void SafetensorsFile::read_stripes(const SafetensorsEntry& entry, base::Stripes stripes,
                                   std::span<std::byte> out) const {
  const std::uint64_t end = stripes.offset + (stripes.count - 1) * stripes.stride + stripes.bytes;
  check_internal(end <= entry.end - entry.begin, "{}: bytes up to {} of '{}', which has {}", label_,
                 end, entry.name, entry.end - entry.begin);
  stripes.offset += data_offset_ + entry.begin;
  file_.read_stripes(stripes, out);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](std::size_t i, std::string_view wanted) { return header_.entries[i].name < wanted; });
  if (found == by_name_.end() || header_.entries[*found].name != name) return nullptr;
  return &header_.entries[*found];
}

TensorView SafetensorsFile::view(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (!entry)
    throw NotFound(fmt::format("{}: there is no tensor '{}'", label_, name), "TENSOR_NOT_FOUND",
                   {{"file", label_}, {"tensor", std::string(name)}});
  return view(*entry);
}

TensorView SafetensorsFile::view(const SafetensorsEntry& entry) const {
  const std::size_t bytes = entry.end - entry.begin;
  auto data = std::make_unique<std::byte[]>(bytes);
  read(entry, 0, {data.get(), bytes});
  views_.push_back(std::move(data));
  return make_view(views_.back().get(), entry.dtype, entry.shape);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<SafetensorsEntry> entries,
                                     const SafetensorsMetadata& metadata, Observer observer)
    : path_(path),
      label_(label_of(path)),
      entries_(std::move(entries)),
      observer_(std::move(observer)) {
  const std::string header = make_safetensors_header(entries_, metadata);
  fd_ = base::open_output(path_, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  write_bytes(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::write(const TensorView& tensor) {
  check_internal(next_ < entries_.size(), "{}: more tensors are written than were named", label_);
  const SafetensorsEntry& entry = entries_[next_];
  check_internal(tensor.dtype == entry.dtype && tensor.shape == entry.shape && tensor.contiguous(),
                 "{}: tensor '{}' was named as {} {}, but {} {} is written", label_, entry.name,
                 dtype_name(entry.dtype), entry.shape, dtype_name(tensor.dtype), tensor.shape);
  write_part({static_cast<const std::byte*>(tensor.data), tensor.bytes()});
}
void SafetensorsWriter::write_part(std::span<const std::byte> bytes) {
  check_internal(next_ < entries_.size(), "{}: more tensors are written than were named", label_);
  const SafetensorsEntry& entry = entries_[next_];
  const std::uint64_t whole = entry.end - entry.begin;
  check_internal(written_ + bytes.size() <= whole, "{}: tensor '{}' has {} bytes, {} are written",
                 label_, entry.name, whole, written_ + bytes.size());
  write_bytes(bytes);
  written_ += bytes.size();
  if (written_ < whole) return;
  written_ = 0;
  ++next_;
}

void SafetensorsWriter::write_bytes(std::span<const std::byte> bytes) {
  // Pieces that stay in the cache between the observer and the copy into the page cache.
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPiece));
    if (observer_) observer_(piece);
    base::write_all(fd_.get(), piece, path_);
    bytes = bytes.subspan(piece.size());
  }
}

void SafetensorsWriter::close() {
  check_internal(next_ == entries_.size(), "{}: {} of {} tensors were written", label_, next_,
                 entries_.size());
  base::sync_file(fd_.get(), path_);
  if (::close(fd_.release()) != 0) base::throw_io_error("cannot close", path_, errno);
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedView>& tensors,
                       const SafetensorsMetadata& metadata) {
  std::map<std::string_view, const TensorView*> views;
  std::vector<SafetensorsEntry> entries;
  for (const NamedView& tensor : tensors) {
    views[tensor.name] = &tensor.view;
    entries.push_back(
        {.name = tensor.name, .dtype = tensor.view.dtype, .shape = tensor.view.shape});
  }
  SafetensorsWriter writer(path, std::move(entries), metadata);
  for (const SafetensorsEntry& entry : writer.entries()) writer.write(*views.at(entry.name));
  writer.close();
}

}  // namespace meshloom::train
