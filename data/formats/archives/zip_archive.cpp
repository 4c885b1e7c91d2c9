#include "tern/data/formats/archives/zip_archive.h"

#include <algorithm>
#include <array>
#include <span>
#include <zlib.h>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

// The records of a zip archive: a header before each entry, a table of contents
// with a row for each entry, and the end record. Source: PKWARE's APPNOTE.TXT,
// sections 4.3 to 4.5.
namespace zip {

constexpr uint32_t kHeaderSignature = 0x04034b50;
constexpr uint32_t kRowSignature = 0x02014b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocatorSignature = 0x07064b50;
constexpr uint32_t kEndSignature = 0x06054b50;

// Sizes without names, extra fields and comments.
constexpr uint64_t kHeaderBytes = 30;
constexpr uint64_t kRowBytes = 46;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocatorBytes = 20;
constexpr uint64_t kEndBytes = 22;

constexpr uint32_t kEncrypted = 1;  // a flag of an entry

// Marks a number that is stored in the zip64 extra field.
constexpr uint32_t kIn64 = 0xffffffff;
constexpr uint16_t kZip64Field = 0x0001;

}  // namespace zip

using Bytes = std::span<const uint8_t>;

constexpr uint64_t kMaxTable = uint64_t{64} << 20;
constexpr uint64_t kMaxComment = 0xffff;

[[noreturn]] void fail(const ByteFile& file, const std::string& reason) {
  throw DataError(file.path(), reason + ". The file is damaged or truncated.");
}

// Position of the table of contents.
struct TableOfContents {
  uint64_t begin = 0, size = 0, entries = 0;
};

// Finds the end record of a zip archive: 22 bytes and a comment.
uint64_t find_end_record(const ByteFile& file) {
  const uint64_t size = std::min(file.size(), zip::kEndBytes + kMaxComment);
  const std::vector<uint8_t> tail = file.read(file.size() - size, size);
  for (uint64_t at = size; at-- > 0;) {
    if (size - at < zip::kEndBytes) continue;
    const uint8_t* record = tail.data() + at;
    if (load_le32(record) == zip::kEndSignature &&
        load_le16(record + 20) == size - at - zip::kEndBytes) {
      return file.size() - size + at;
    }
  }
  fail(file, "is a zip archive without a central directory at its end");
}

TableOfContents find_table(const ByteFile& file) {
  const uint64_t end = find_end_record(file);
  const std::vector<uint8_t> record = file.read(end, zip::kEndBytes);
  TableOfContents table{
      .begin = load_le32(&record[16]),
      .size = load_le32(&record[12]),
      .entries = load_le16(&record[10])};
  uint64_t limit = end;
  if (load_le32(&record[4]) != 0 || load_le16(&record[8]) != table.entries) {
    fail(file, "is one part of a multi-part zip archive");
  }
  if (end >= zip::kLocatorBytes) {
    const std::vector<uint8_t> locator =
        file.read(end - zip::kLocatorBytes, zip::kLocatorBytes);
    if (load_le32(&locator[0]) == zip::kLocatorSignature) {
      limit = load_le64(&locator[8]);
      if (limit > end - zip::kLocatorBytes ||
          end - zip::kLocatorBytes - limit < zip::kEnd64Bytes) {
        fail(file, "has a zip64 record that is outside the archive");
      }
      const std::vector<uint8_t> record64 = file.read(limit, zip::kEnd64Bytes);
      if (load_le32(&record64[0]) != zip::kEnd64Signature) {
        fail(file, "has no zip64 record at the stated position");
      }
      table.entries = load_le64(&record64[32]);
      table.size = load_le64(&record64[40]);
      table.begin = load_le64(&record64[48]);
    }
  }
  if (table.begin > limit || limit - table.begin != table.size) {
    fail(file, "has a central directory that ends at the wrong position");
  }
  if (table.size > kMaxTable) {
    throw DataError(
        file.path(),
        "has a central directory of more than 64 MiB, which is too large for "
        "weights.");
  }
  return table;
}

// Iterates over the table of contents.
class TableReader {
 public:
  TableReader(const ByteFile& file, Bytes bytes) : file_(file), left_(bytes) {}

  struct Row {
    std::string name;
    uint64_t header = 0;  // offset of the entry's own header
    ZipEntry entry;
  };

  bool is_done() const { return left_.empty(); }

  Row next() {
    const Bytes fixed = take(zip::kRowBytes);
    if (load_le32(&fixed[0]) != zip::kRowSignature) {
      fail(file_, "has a damaged central directory");
    }
    Row row;
    const Bytes name = take(load_le16(&fixed[28]));
    const Bytes extra = take(load_le16(&fixed[30]));
    take(load_le16(&fixed[32]));  // a comment
    row.name.assign(name.begin(), name.end());
    const uint32_t flags = load_le16(&fixed[8]);
    if (flags & zip::kEncrypted) refuse(row.name, "is encrypted");
    if (load_le16(&fixed[10]) != 0) {
      refuse(row.name, "is compressed, as in TorchScript files");
    }
    if (const char* fault = member_name_fault(row.name)) {
      refuse(row.name, fault);
    }
    row.entry.crc32 = load_le32(&fixed[16]);
    uint64_t packed = load_le32(&fixed[20]);
    row.entry.size = load_le32(&fixed[24]);
    row.header = load_le32(&fixed[42]);
    read_zip64(extra, row.entry.size, packed, row.header);
    if (packed != row.entry.size) refuse(row.name, "has two different sizes");
    return row;
  }

  [[noreturn]] void refuse(const std::string& name, const std::string& fault) {
    throw DataError(
        file_.path(),
        "entry " + printable(name) + " " + fault +
            "; expected a zip archive as torch.save writes it.");
  }

 private:
  Bytes take(uint64_t size) {
    if (size > left_.size()) fail(file_, "has a damaged central directory");
    const Bytes bytes = left_.first(size);
    left_ = left_.subspan(size);
    return bytes;
  }

  // Numbers that do not fit into 32 bits are in an extra field, in this order.
  void
  read_zip64(Bytes extra, uint64_t& size, uint64_t& packed, uint64_t& header) {
    while (extra.size() >= 4) {
      const uint64_t length = load_le16(&extra[2]);
      if (length > extra.size() - 4) fail(file_, "has a damaged extra field");
      Bytes field = extra.subspan(4, length);
      if (load_le16(&extra[0]) == zip::kZip64Field) {
        for (uint64_t* number : {&size, &packed, &header}) {
          if (*number != zip::kIn64) continue;
          if (field.size() < 8) fail(file_, "has a damaged zip64 field");
          *number = load_le64(field.data());
          field = field.subspan(8);
        }
      }
      extra = extra.subspan(4 + length);
    }
  }

  const ByteFile& file_;
  Bytes left_;
};

// Returns where the bytes of an entry begin: after a header that repeats its
// name.
uint64_t find_bytes(
    const ByteFile& file,
    const TableReader::Row& row,
    uint64_t table_begin,
    TableReader& reader) {
  const auto outside = [&]() {
    reader.refuse(row.name, "is outside the file");
  };
  if (row.header > table_begin ||
      table_begin - row.header < zip::kHeaderBytes) {
    outside();
  }
  const std::vector<uint8_t> fixed = file.read(row.header, zip::kHeaderBytes);
  const uint64_t names = load_le16(&fixed[26]);
  const uint64_t begin =
      row.header + zip::kHeaderBytes + names + load_le16(&fixed[28]);
  if (load_le32(&fixed[0]) != zip::kHeaderSignature ||
      names != row.name.size() || load_le16(&fixed[8]) != 0) {
    reader.refuse(
        row.name,
        "has a header that differs from the central directory");
  }
  const std::vector<uint8_t> name =
      file.read(row.header + zip::kHeaderBytes, names);
  if (!std::equal(name.begin(), name.end(), row.name.begin())) {
    reader.refuse(row.name, "has a header with a different name");
  }
  if (begin > table_begin || row.entry.size > table_begin - begin) outside();
  return begin;
}

}  // namespace

bool ZipArchive::is_zip(const ByteFile& file) {
  std::array<uint8_t, 4> head{};
  if (file.size() < head.size()) return false;
  file.read(0, head);
  return load_le32(head.data()) == zip::kHeaderSignature ||
         load_le32(head.data()) == zip::kEndSignature;
}

ZipArchive::ZipArchive(ByteFile file) : file_(std::move(file)) {
  const TableOfContents table = find_table(file_);
  const std::vector<uint8_t> bytes = file_.read(table.begin, table.size);
  TableReader reader(file_, bytes);
  std::vector<std::pair<uint64_t, uint64_t>> taken;  // begin and end of entries
  while (!reader.is_done()) {
    TableReader::Row row = reader.next();
    row.entry.begin = find_bytes(file_, row, table.begin, reader);
    taken.emplace_back(row.header, row.entry.begin + row.entry.size);
    if (!entries_.emplace(row.name, row.entry).second) {
      reader.refuse(row.name, "is duplicated");
    }
  }
  if (entries_.size() != table.entries) {
    fail(file_, "has a central directory whose length differs from its header");
  }
  std::sort(taken.begin(), taken.end());
  for (size_t i = 1; i < taken.size(); ++i) {
    if (taken[i].first < taken[i - 1].second) {
      fail(file_, "has entries that overlap");
    }
  }
}

const ZipEntry* ZipArchive::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<uint8_t> ZipArchive::read(
    const std::string& name,
    uint64_t max_bytes) const {
  const ZipEntry* entry = find(name);
  if (entry == nullptr) {
    throw DataError(file_.path(), "has no entry " + printable(name) + ".");
  }
  if (entry->size > max_bytes) {
    throw DataError(
        file_.path(),
        "entry " + printable(name) + " has " + std::to_string(entry->size) +
            " bytes; expected at most " + std::to_string(max_bytes) + ".");
  }
  std::vector<uint8_t> bytes = file_.read(entry->begin, entry->size);
  if (crc32_z(0, bytes.data(), bytes.size()) != entry->crc32) {
    fail(
        file_,
        "entry " + printable(name) + " has an incorrect checksum (CRC-32)");
  }
  return bytes;
}

}  // namespace tern
