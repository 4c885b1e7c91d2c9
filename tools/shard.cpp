// tern-shard: writes a folder of images as tar shards in WebDataset's layout,
// and verifies their checksums.
#include <cstdint>
#include <filesystem>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tern/data/formats/text.h"
#include "tern/data/shards/tar_shards.h"
#include "tern/data/support/error_text.h"
#include "tern/learner/report/model_summary.h"
#include "tern/vision/datasets/shard_images.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

void write(
    const std::string& folder,
    const std::string& out,
    const ShardImagesOptions& options) {
  const ShardedImages written = shard_images(folder, out, options, terminal());
  fmt::print(
      "{} of {} in {}, {:.1f} MB: {}-{{000000..{:06}}}.tar\n",
      counted(written.images, "image"),
      counted(static_cast<int64_t>(written.classes.size()), "class"),
      counted(static_cast<int64_t>(written.shards.size()), "shard"),
      static_cast<double>(written.bytes) / 1e6,
      (fs::path(out) / options.name).string(),
      written.shards.size() - 1);
}

void list(const std::string& shard) {
  const auto shards = TarShards::open({shard});
  for (int64_t i = 0; i < shards->size(); ++i) {
    const TarSample sample = shards->sample(i);
    std::string line(sample.key());
    for (const TarMember& member : sample.members()) {
      line += fmt::format("  {} {}", sample_field(member.name), member.size);
    }
    fmt::print("{}\n", printable(line));
  }
  fmt::print("{}\n", counted(shards->size(), "sample"));
}

}  // namespace
}  // namespace tern

int main(int argc, char** argv) try {
  std::string folder, out;
  bool keep_order = false;
  tern::ShardImagesOptions options;
  CLI::App app{"Writes image folders as tar shards in WebDataset's layout"};
  auto* write = app.add_subcommand(
      "write",
      "write FOLDER/CLASS/*.jpg as OUT/train-000000.tar, ... with checksums");
  write->add_option("folder", folder)->required();
  write->add_option("out", out)->required();
  write->add_option("--name", options.name, "prefix of the file names")
      ->capture_default_str();
  write
      ->add_option(
          "--max-samples",
          options.max_samples,
          "maximum images in a shard")
      ->capture_default_str();
  write->add_option("--max-bytes", options.max_bytes, "maximum size of a shard")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->capture_default_str();
  write->add_option("--seed", options.seed, "seed of the random order")
      ->capture_default_str();
  write->add_flag(
      "--keep-order",
      keep_order,
      "keep the images sorted by class");
  write->add_option("--workers", options.workers, "threads; -1: all cores");
  auto* verify =
      app.add_subcommand("verify", "verify the checksums of all shards");
  verify->add_option("folder", folder)->required();
  auto* list = app.add_subcommand(
      "list",
      "list the samples of a shard with their fields and sizes");
  list->add_option("shard", folder)->required();
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);

  options.shuffle = !keep_order;
  if (write->parsed()) {
    tern::write(folder, out, options);
  } else if (verify->parsed()) {
    fmt::print(
        "{} verified: no file has changed\n",
        tern::counted(tern::verify_shards(folder, tern::terminal()), "shard"));
  } else {
    tern::list(folder);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
