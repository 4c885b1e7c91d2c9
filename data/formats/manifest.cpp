#include "tern/data/formats/manifest.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

constexpr char kMagic[] = "tern-checkpoint";
constexpr int64_t kVersion = 1;
constexpr size_t kMaxBytes = 1 << 20;

// True if the values are valid for a checkpoint and each file is listed once.
bool makes_sense(const Manifest& manifest) {
  std::set<std::string> names;
  for (const auto& [name, size, sha256] : manifest.files) {
    if (!is_sha256(sha256) || size < 0 || name == "." || name.size() > 255 ||
        name.find('/') != name.npos || member_name_fault(name) != nullptr ||
        !names.insert(name).second) {
      return false;
    }
  }
  const std::string& run = manifest.run;
  constexpr const char* kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
  return !run.empty() && run.size() <= 64 && manifest.step >= 0 &&
         run.find_first_not_of(kLetters) == run.npos;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  std::string text = kMagic;
  text += " " + std::to_string(kVersion) + "\nrun " + manifest.run + "\nstep " +
          std::to_string(manifest.step) + "\n";
  for (const Manifest::File& file : manifest.files) {
    text += "file " + file.sha256 + " " + std::to_string(file.size) + " " +
            file.name + "\n";
  }
  return text + "end " + sha256(as_bytes(text)) + "\n";
}

Manifest parse_manifest(
    std::span<const uint8_t> bytes,
    const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& reason) {
    throw DataError(path.string(), reason);
  };
  const std::string text(
      as_text(bytes.first(std::min(bytes.size(), kMaxBytes))));
  std::istringstream in(text);
  std::string word;
  int64_t version = 0;
  in >> word;
  if (word != kMagic) refuse("this is not the manifest of a checkpoint.");
  if (!(in >> version)) refuse("the manifest is truncated or damaged.");
  if (version != kVersion) {
    refuse(
        "the checkpoint has format " + std::to_string(version) +
        ", but this program reads format " + std::to_string(kVersion) +
        "; use the version of Tern that wrote it.");
  }
  Manifest manifest;
  in >> word >> manifest.run >> word >> manifest.step;
  while (in >> word && word == "file") {
    Manifest::File file;
    in >> file.sha256 >> file.size;
    in.get();
    std::getline(in, file.name);
    manifest.files.push_back(std::move(file));
  }
  // Detects any misread or modified content.
  if (!makes_sense(manifest) || as_text(bytes) != to_text(manifest)) {
    refuse(
        "the manifest is truncated or damaged: its checksum does not "
        "match.");
  }
  return manifest;
}

}  // namespace tern
