#include "tern/tests/fuzz/targets.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/formats/annotations/coco.h"
#include "tern/data/formats/annotations/voc.h"
#include "tern/data/formats/annotations/yolo.h"
#include "tern/data/formats/archives/gzip.h"
#include "tern/data/formats/archives/tar_read.h"
#include "tern/data/formats/archives/tar_shard.h"
#include "tern/data/formats/archives/zip_archive.h"
#include "tern/data/formats/csv.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/json.h"
#include "tern/data/formats/manifest.h"
#include "tern/data/formats/samples/idx.h"
#include "tern/data/formats/samples/image_header.h"
#include "tern/data/formats/samples/npy.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/formats/text.h"
#include "tern/data/formats/weights/pickle.h"
#include "tern/data/formats/weights/pth.h"
#include "tern/data/formats/weights/safetensors.h"
#include "tern/data/formats/weights/weight_file.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::fuzz {

namespace {

using Bytes = std::span<const uint8_t>;

const std::string kPath = "fuzzed";

// Unlike assert, active in every build.
void promise(bool is_kept) {
  if (!is_kept) std::abort();
}

template <class Parse>
void run(const Parse& parse) {
  try {
    parse();
  } catch (const DataError&) {
  }
}

// Every storage is inside the file, and every tensor inside its storage.
void check(const StoredWeights& weights, const ByteFile& file) {
  for (const StoredBytes& storage : weights.storages) {
    promise(
        storage.begin <= file.size() &&
        storage.size <= file.size() - storage.begin);
  }
  for (const StoredTensor& tensor : weights.tensors) {
    promise(tensor.storage < weights.storages.size());
    const StoredBytes& storage = weights.storages[tensor.storage];
    promise(view_fault(tensor, storage.size).empty());
    run([&] {
      std::vector<uint8_t> bytes(storage.size);
      read_storage(file, storage, bytes);
    });
  }
}

void fuzz_safetensors(Bytes bytes) {
  const ByteFile file(bytes, kPath);
  run([&] {
    const StoredWeights weights = read_safetensors_header(file);
    check(weights, file);
    // Writing the weights and reading them back gives the same weights.
    const std::string header =
        safetensors_header(weights.tensors, weights.metadata, kPath);
    std::vector<uint8_t> again(header.begin(), header.end());
    for (const StoredBytes& storage : weights.storages) {
      again.resize(again.size() + storage.size);
    }
    const StoredWeights reread =
        read_safetensors_header(ByteFile(again, kPath), 1 << 30);
    promise(reread.metadata == weights.metadata);
    promise(reread.tensors.size() == weights.tensors.size());
    for (size_t i = 0; i < weights.tensors.size(); ++i) {
      promise(reread.tensors[i].name == weights.tensors[i].name);
      promise(reread.tensors[i].shape == weights.tensors[i].shape);
    }
  });
}

// A zip archive or the legacy format.
void fuzz_pth(Bytes bytes) {
  const ByteFile file(bytes, kPath);
  run([&] {
    if (is_pth(file)) check(read_pth(file), file);
  });
}

// Only the pickle, as if a zip archive held it.
void fuzz_pickle(Bytes bytes) {
  run([&] {
    const Pickle pickle = parse_pickle(bytes, is_torch_name, kPath);
    promise(pickle.size() <= bytes.size());
    for (const Pickle::Value& value : pickle.values()) {
      for (const Pickle::Id id : value.items) {
        promise(id < pickle.values().size());
      }
    }
    StorageIndex index;
    std::vector<StoredBytes> storages;
    for (const auto& [key, storage] : storages_in(pickle, kPath)) {
      index.emplace(key, storages.size());
      storages.push_back({.begin = 0, .size = storage.size});
    }
    for (const StoredTensor& tensor :
         state_dict_in(pickle, "", index, storages, kPath)) {
      promise(view_fault(tensor, storages[tensor.storage].size).empty());
    }
  });
}

void fuzz_zip(Bytes bytes) {
  const ByteFile file(bytes, kPath);
  run([&] {
    const ZipArchive zip(file);
    for (const auto& row : zip.entries()) {
      const ZipEntry& entry = row.second;
      promise(
          entry.begin <= file.size() &&
          entry.size <= file.size() - entry.begin);
      run([&] { promise(zip.read(row.first, 1 << 20).size() == entry.size); });
    }
  });
}

// Reads a number, a boolean or an integer, as the text has them.
void read_number(JsonReader& json) {
  const JsonReader begin = json;
  run([&] {
    JsonReader number = begin;
    const double value = number.number();
    const double again = JsonReader(json_number(value), kPath).number();
    promise(again == value || (again != again && value != value));
  });
  run([&] { JsonReader(begin).boolean(); });
  json.integer();
}

// Reads any JSON by its next token.
void read_value(JsonReader& json, int kind) {
  std::string key;
  if (kind % 4 == 0) {
    json.begin_object();
    while (json.next_key(key)) read_value(json, kind + 1);
  } else if (kind % 4 == 1) {
    json.begin_array();
    while (json.next_element()) read_value(json, kind + 1);
  } else if (kind % 4 == 2) {
    promise(
        JsonReader(json_quoted(key = json.string()), kPath).string() == key);
  } else {
    read_number(json);
  }
}

void fuzz_json(Bytes bytes) {
  if (bytes.empty()) return;
  run([&] {
    const auto rest = bytes.subspan(1);
    JsonReader json(as_text(rest), kPath);
    read_value(json, bytes[0] % 4);
    json.end();
  });
}

void fuzz_image_header(Bytes bytes) {
  run([&] { read_image_header(bytes, kPath); });
  const int orientation = exif_orientation(bytes);
  promise(orientation >= 1 && orientation <= 8);
}

void fuzz_idx(Bytes bytes) {
  run([&] {
    const IdxArray array = parse_idx(bytes, kPath);
    int64_t count = 1;
    for (const int64_t dim : array.dims) count *= dim;
    promise(count == static_cast<int64_t>(array.values.size()));
  });
}

void fuzz_gzip(Bytes bytes) {
  run([&] {
    promise(gunzip(ByteFile(bytes, kPath), 1 << 20).size() <= 1 << 20);
  });
}

// A manifest is written back unchanged.
void fuzz_manifest(Bytes bytes) {
  run([&] {
    const Manifest manifest = parse_manifest(bytes, kPath);
    promise(to_text(manifest) == std::string(bytes.begin(), bytes.end()));
  });
  // A fuzzer cannot guess a hash, so the last line is corrected to match the
  // others.
  run([&] {
    std::string text(bytes.begin(), bytes.end());
    const std::string hash = sha256(bytes);
    text += "end " + hash + "\n";
    const Manifest manifest = parse_manifest(as_bytes(text), kPath);
    promise(to_text(manifest) == text);
    for (const Manifest::File& file : manifest.files) {
      promise(file.size >= 0 && file.sha256.size() == 64);
      promise(file.name.find('/') == std::string::npos);
    }
  });
}

void fuzz_csv(Bytes bytes) {
  for (const char delimiter : {',', '\t'}) {
    run([&] {
      const CsvTable table = parse_csv(bytes, kPath, {.delimiter = delimiter});
      promise(!table.columns.empty());
      promise(table.lines.size() == table.rows.size());
      size_t line = 0, cells = 0;
      for (size_t i = 0; i < table.rows.size(); ++i) {
        promise(table.rows[i].size() == table.columns.size());
        promise(table.lines[i] > line);
        line = table.lines[i];
        for (const std::string& cell : table.rows[i]) cells += cell.size();
      }
      promise(cells <= bytes.size());
    });
  }
}

void fuzz_coco(Bytes bytes) {
  run([&] {
    const CocoFile file = parse_coco(bytes, kPath);
    promise(
        file.images.size() + file.categories.size() + file.annotations.size() <
        bytes.size());
    for (const auto& image : file.images) promise(is_utf8(image.file_name));
    for (const auto& category : file.categories)
      promise(is_utf8(category.name));
  });
}

void fuzz_voc(Bytes bytes) {
  run([&] {
    const VocFile file = parse_voc(bytes, kPath);
    promise(is_utf8(file.file_name) && file.width >= 0 && file.height >= 0);
    const auto lines = static_cast<size_t>(std::ranges::count(bytes, '\n')) + 1;
    size_t line = 1;
    for (const VocFile::Object& object : file.objects) {
      promise(!object.name.empty() && is_utf8(object.name));
      promise(object.line >= line && object.line <= lines);
      line = object.line;
    }
  });
}

void fuzz_yolo(Bytes bytes) {
  for (const bool polygons : {false, true}) {
    run([&] {
      size_t line = 0;
      for (const YoloObject& object : parse_yolo(bytes, kPath, polygons)) {
        promise(object.line > line);
        line = object.line;
      }
    });
  }
  run([&] {
    for (const auto& name : parse_names(bytes, kPath, "class")) {
      promise(!name.empty() && is_utf8(name) && trimmed(name) == name);
    }
  });
}

// Extraction writes nothing outside the folder, and only files and folders
// inside it.
void fuzz_tar(Bytes bytes) {
  namespace fs = std::filesystem;
  const TempFolder temp;
  write_file(temp / "a.tar", bytes);
  fs::create_directory(temp / "out");
  run([&] {
    extract_tar(
        temp / "a.tar",
        temp / "out",
        {.max_entries = 100, .max_bytes = 1 << 20});
  });
  int beside = 0;
  for (const auto& entry : fs::directory_iterator(temp.path())) {
    promise(entry.path().filename() == "out" || entry.is_regular_file());
    ++beside;
  }
  promise(beside == 2);
  uintmax_t size = 0;
  for (const auto& entry : fs::recursive_directory_iterator(temp / "out")) {
    promise(!entry.is_symlink());
    promise(entry.is_regular_file() || entry.is_directory());
    if (entry.is_regular_file()) size += entry.file_size();
  }
  promise(size <= 1 << 20);
}

// Every member is inside the archive, and the files of a sample are adjacent.
void fuzz_tar_index(Bytes bytes) {
  const ByteFile file(bytes, kPath);
  run([&] {
    std::vector<TarMember> members = read_tar_index(file, /*max_members=*/1000);
    for (const TarMember& member : members) {
      promise(member.offset <= bytes.size());
      promise(member.size <= bytes.size() - member.offset);
    }
    for (const auto& sample : tar_samples(members, kPath)) {
      promise(!sample.empty());
      const std::string_view key = sample_key(sample.front().name);
      for (const TarMember& member : sample) {
        promise(sample_key(member.name) == key);
        promise(!sample_field(member.name).empty());
      }
    }
  });
}

void fuzz_npy(Bytes bytes) {
  run([&] {
    const NpyArray array = parse_npy(bytes, kPath);
    int64_t count = array.item_bytes;
    for (const int64_t size : array.shape) count *= size;
    promise(count == static_cast<int64_t>(array.values.size()));
  });
}

void fuzz_sha256sums(Bytes bytes) {
  run([&] {
    const Sha256Sums sums = parse_sha256sums(bytes, kPath);
    const std::string text = to_text(sums);
    promise(parse_sha256sums(as_bytes(text), kPath) == sums);
    for (const auto& [name, sum] : sums) {
      promise(sum.size() == 64 && name.find('/') == std::string::npos);
    }
  });
}

constexpr std::array kTargets = {
    Target{"coco", fuzz_coco},
    Target{"csv", fuzz_csv},
    Target{"gzip", fuzz_gzip},
    Target{"idx", fuzz_idx},
    Target{"image_header", fuzz_image_header},
    Target{"json", fuzz_json},
    Target{"manifest", fuzz_manifest},
    Target{"npy", fuzz_npy},
    Target{"pickle", fuzz_pickle},
    Target{"pth", fuzz_pth},
    Target{"safetensors", fuzz_safetensors},
    Target{"sha256sums", fuzz_sha256sums},
    Target{"tar", fuzz_tar},
    Target{"tar_index", fuzz_tar_index},
    Target{"voc", fuzz_voc},
    Target{"yolo", fuzz_yolo},
    Target{"zip", fuzz_zip},
};

}  // namespace

std::span<const Target> targets() {
  return kTargets;
}

}  // namespace tern::fuzz
