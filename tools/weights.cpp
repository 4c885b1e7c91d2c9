// tern-weights: downloads and checks the pretrained weights that {.pretrained =
// true} uses.
#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tern/data/download/fetch_weights.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/support/error_text.h"
#include "tern/data/support/sink.h"
#include "tern/learner/model.h"
#include "tern/vision/models/vision_arch.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error);
}

void list(const FetchWeightsOptions& options) {
  for (const std::string& name : networks_with_weights()) {
    const PublishedWeights weights = VisionArch(name).published();
    const fs::path file = weights_path(weights, options);
    fmt::print(
        "{:<20} {:<40} {}\n",
        name,
        weights.file_name(),
        is_there(file) ? file.string() : "-");
  }
}

// Downloads weights, from `mirror` if it is not empty.
void fetch(
    const std::vector<std::string>& names,
    const std::string& mirror,
    const FetchWeightsOptions& options) {
  for (const std::string& name : names) {
    PublishedWeights weights = VisionArch(name).published();
    if (!mirror.empty()) weights.url = mirror + "/" + weights.file_name();
    const fs::path folder = weights_path(weights, options).parent_path();
    const fs::path file = download_weights(weights, folder, options);
    fmt::print("{}: {}\n", name, file.string());
  }
}

// Checks the SHA-256 of a file, and that its network can be loaded.
void verify(const std::string& name, const fs::path& file) {
  const std::string hash = verify_weights(file);
  const VisionArch arch(name);
  const LoadReport report = arch.load_pretrained(arch.make_body(3), file);
  fmt::print("{}: SHA-256 {}, {}\n", name, hash, report.to_string());
}

// Prints what is wrong with each file. Returns true if all are valid.
bool verify_all(
    std::vector<std::string> names,
    const FetchWeightsOptions& options) {
  const bool is_all = names.empty();
  if (is_all) names = networks_with_weights();
  bool is_right = true;
  for (const std::string& name : names) {
    const fs::path file = weights_path(VisionArch(name).published(), options);
    if (is_all && !is_there(file)) continue;
    try {
      verify(name, file);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}: {}\n", name, message_of(error));
      is_right = false;
    }
  }
  return is_right;
}

}  // namespace
}  // namespace tern

int main(int argc, char** argv) try {
  std::vector<std::string> names;
  std::string folder, mirror;
  CLI::App app{"Downloads and checks the pretrained weights of networks"};
  const auto command = [&](const char* name, const char* what) {
    CLI::App* made = app.add_subcommand(name, what);
    made->add_option(
        "--folder",
        folder,
        "folder of the files; default: TERN_WEIGHTS, else the cache");
    return made;
  };
  auto* list =
      command("list", "list networks, their files, and where these are");
  auto* fetch = command("fetch", "download weights, or resume a download");
  auto* verify = command("verify", "check the SHA-256 and load the networks");
  fetch->add_option("names", names, "such as convnext_tiny")->required();
  fetch->add_option(
      "--mirror",
      mirror,
      "URL of a folder with the files, instead of the authors' URLs");
  verify->add_option("names", names, "default: all downloaded weights");
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);

  // Progress goes to stderr, so that scripts can read the results from stdout.
  tern::FetchWeightsOptions options = {.sink = tern::terminal(stderr)};
  if (!folder.empty()) {
    if (fetch->parsed()) tern::make_folders(folder);
    options.folder = folder;
  }
  if (list->parsed()) tern::list(options);
  if (fetch->parsed()) tern::fetch(names, mirror, options);
  if (verify->parsed()) return tern::verify_all(names, options) ? 0 : 1;
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
