// tern-convert: converts weight files between formats, and lists and verifies
// them. Never executes code from a file.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/formats/text.h"
#include "tern/data/formats/weights/safetensors.h"
#include "tern/data/formats/weights/weight_file.h"
#include "tern/data/support/error_text.h"
#include "tern/learner/report/model_summary.h"
#include "tern/learner/weights/weights.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

void convert(
    const fs::path& in,
    const fs::path& out,
    const std::string& key,
    bool sum) {
  constexpr std::array kPth = {".pth", ".pt", ".th", ".bin"};
  const std::string kind = out.extension().string();
  const bool is_pth = std::find(kPth.begin(), kPth.end(), kind) != kPth.end();
  if (!is_pth && kind != ".safetensors") {
    throw DataError(
        out.string(),
        "has the extension '" + kind +
            "'; expected .safetensors, or .pth, .pt, .th or .bin for a file of "
            "torch.save.");
  }
  const StateDict state = load_weights(in, {.key = key});
  if (is_pth) {
    save_pth(out, state, {.sha256_file = sum});
  } else {
    // Python's libraries check the entry `format`.
    std::map<std::string, std::string> metadata = {{"format", "pt"}};
    if (is_safetensors(ByteFile(in))) metadata = safetensors_metadata(in);
    save_safetensors(
        out,
        state,
        metadata,
        {.checksum = true, .sha256_file = sum});
  }
  fmt::print(
      "{} written to {}\n",
      counted(std::ssize(state), "tensor"),
      out.string());
}

void list(const fs::path& path, const std::string& key) {
  const StoredWeights weights = read_weight_header(ByteFile(path), key);
  int64_t elements = 0;
  for (const StoredTensor& tensor : weights.tensors) {
    fmt::print(
        "{:<40} {:<10} [{}]\n",
        printable(tensor.name),
        info_of(tensor.type).dtype,
        fmt::join(tensor.shape, ", "));
    elements += element_count(tensor.shape).value_or(0);
  }
  for (const auto& [name, text] : weights.metadata) {
    fmt::print("metadata {} = {}\n", printable(name), printable(text));
  }
  fmt::print(
      "{}, {}\n",
      counted(std::ssize(weights.tensors), "tensor"),
      counted(elements, "element"));
}

void verify(const fs::path& path, const std::string& key) {
  const std::string hash = sha256_file(path);
  const std::string expected = sha256_in_name(path);
  if (!hash.starts_with(expected)) {
    throw DataError(
        path.string(),
        "has the SHA-256 " + hash +
            "; according to its name, the SHA-256 begins with " + expected +
            ". Download it again.");
  }
  const StateDict state = load_weights(path, {.key = key});
  int64_t not_finite = 0;
  for (const auto& item : state) {
    const torch::Tensor& tensor = item.value();
    if (!tensor.is_floating_point() || tensor.element_size() == 1) continue;
    not_finite += tensor.isfinite().logical_not().sum().item<int64_t>();
  }
  fmt::print("SHA-256 {}\n", hash);
  if (!expected.empty()) fmt::print("as its name says\n");
  fmt::print(
      "{} read{}, {} not finite\n",
      counted(std::ssize(state), "tensor"),
      state.unverified ? " from a file without checksums" : "",
      counted(not_finite, "value"));
}

}  // namespace
}  // namespace tern

int main(int argc, char** argv) try {
  std::string in, out, file, key;
  bool sum = false;
  CLI::App app{
      "Converts weight files between safetensors and torch.save's .pth"};
  app.add_option("in", in, "file to read, in any format");
  app.add_option("out", out, "file to write: .safetensors or .pth");
  app.add_option("--key", key, "key of the state dict in a checkpoint");
  app.add_flag("--sha256", sum, "also write OUT.sha256, for sha256sum -c");
  auto* list = app.add_subcommand("list", "list names, dtypes and shapes");
  auto* verify =
      app.add_subcommand("verify", "read everything and check all checksums");
  for (CLI::App* command : {list, verify}) {
    command->add_option("file", file)->required();
    command->add_option("--key", key, "key of the state dict in a checkpoint");
  }
  app.require_subcommand(0, 1);
  CLI11_PARSE(app, argc, argv);

  if (list->parsed()) {
    tern::list(file, key);
  } else if (verify->parsed()) {
    tern::verify(file, key);
  } else if (in.empty() || out.empty()) {
    fmt::print(stderr, "error: expected two files\n{}", app.help());
    return 1;
  } else {
    tern::convert(in, out, key, sum);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
