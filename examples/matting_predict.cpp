// Puts a person, or a thing, before another background. It needs two
// photographs from the same place, one with and one without what is in front;
// or a folder of frames and one photograph of the background.
//
//   matting_predict --model-checkpoint checkpoint/base/base.safetensors
//     --images-src me.jpg --images-bgr room.jpg --target-bgr beach.jpg
//     --output-dir out
//
// The pictures lie in out/com, out/pha and out/fgr, in the same folders below
// them as the frames. Where the true alphas are known, --images-pha, it says
// how wrong it is.
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <tern/tern.h>

#include "notebook.h"
#include "options.h"

namespace fs = std::filesystem;

/// The photograph itself, or all in a folder, by name.
std::vector<std::string> photographs(const fs::path& path) {
  if (!fs::is_directory(path)) return {path.string()};
  std::vector<std::string> found = tern::find_image_files(path);
  if (found.empty()) throw tern::DataError(path.string(), "has no picture.");
  return found;
}

/// What the pictures of each frame are called: by its place below `src`, as
/// frames of several folders may have the same name.
std::vector<fs::path> names_of(
    const std::vector<std::string>& frames,
    const fs::path& src) {
  std::vector<fs::path> names;
  std::map<fs::path, std::string> frame_of;
  for (const std::string& frame : frames) {
    const fs::path path = frame;
    names.push_back(
        fs::is_directory(src) ? path.lexically_relative(src) : path.filename());
    const auto [first, is_new] =
        frame_of.emplace(names.back().replace_extension(".png"), frame);
    TORCH_CHECK_VALUE(
        is_new,
        fmt::format(
            "--images-src has {} and {}, whose pictures would both be called "
            "{}; rename one of them.",
            first->second,
            frame,
            first->first.string()));
  }
  return names;
}

/// Photograph `i` of as many as there are frames, or the only one.
torch::Tensor
read(const std::vector<std::string>& paths, size_t i, int64_t channels = 3) {
  const std::string& path = paths.size() == 1 ? paths[0] : paths.at(i);
  return tern::read_image(path, {.channels = channels});
}

void check_count(
    const std::vector<std::string>& paths,
    size_t frames,
    const char* option) {
  TORCH_CHECK_VALUE(
      paths.size() == 1 || paths.size() == frames,
      fmt::format(
          "{} has {} pictures for {} frames; expected one, or one for each.",
          option,
          paths.size(),
          frames));
}

/// A network of one's own, or with the weights of the paper's program.
tern::Model network(
    const fs::path& file,
    const std::string& type,
    const std::string& arch) {
  if (type.empty()) return tern::load_matting_model(file);
  const tern::MattingBackbone backbone = tern::matting_backbone(arch);
  tern::Model model = tern::MattingBase(tern::MattingBaseOptions{backbone});
  if (type == "refine") {
    model =
        tern::MattingRefine(tern::MattingRefineOptions{.backbone = backbone});
  }
  tern::load_matting_weights(model, file);
  return model;
}

int main(int argc, char** argv) try {
  fs::path checkpoint, src, bgr, target, pha, out = "out";
  std::string type, backbone = "resnet50";
  bool amp = false;
  tern::examples::Options app(
      "Puts what is in front before another background");
  app.add_option("--model-checkpoint", checkpoint)->required();
  app.add_choice(
      "--model-type",
      type,
      {"base", "refine"},
      "of weights that do not say it");
  app.add_choice(
      "--model-backbone",
      backbone,
      {"resnet101", "resnet50", "mobilenetv2"},
      "of weights that do not say it");
  app.add_option("--images-src", src, "a photograph or a folder")->required();
  app.add_option("--images-bgr", bgr, "without what is in front")->required();
  app.add_option("--target-bgr", target, "the new background; else green");
  app.add_option("--images-pha", pha, "true alphas, to compare with");
  app.add_option("--output-dir", out);
  app.add_flag("--amp", amp, "compute in 16 bits");
  app.read(argc, argv);

  tern::examples::Notebook note("Background matting: another background");
  note.text("# A network from a file, and photographs");
  const torch::Device device = tern::DataBunch::default_device();
  tern::Model model = network(checkpoint, type, backbone);
  model.to(device);
  const auto frames = photographs(src), backgrounds = photographs(bgr);
  const std::vector<fs::path> names = names_of(frames, src);
  check_count(backgrounds, frames.size(), "--images-bgr");
  const auto truths =
      pha.empty() ? std::vector<std::string>() : photographs(pha);
  if (!truths.empty()) check_count(truths, frames.size(), "--images-pha");
  const torch::Tensor behind =
      target.empty()
          ? torch::tensor({51, 178, 89}, torch::kByte).view({1, 1, 3})
          : tern::read_image(target.string());

  note.text("# Each photograph");
  std::vector<tern::Metric> errors = tern::matting_metrics();
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < frames.size(); ++i) {
    std::optional<tern::AutocastGuard> autocast;
    if (amp) autocast.emplace(device);
    const tern::Matte matte =
        tern::find_matte(model, read(frames, i), read(backgrounds, i));
    autocast.reset();
    const auto file = [&](const char* kind) {
      const fs::path path = out / kind / names[i];
      fs::create_directories(path.parent_path());
      return path;
    };
    tern::save_image(file("com"), tern::place_over(matte, behind));
    tern::save_image(file("pha"), matte.pha);
    tern::save_image(file("fgr"), matte.fgr);
    if (truths.empty()) continue;
    const torch::Tensor truth = read(truths, i, 1).permute({2, 0, 1}) / 255.f;
    for (tern::Metric& error : errors) {
      error.update(
          {matte.pha.cpu().view({1, 1, truth.size(1), truth.size(2)})},
          {truth.unsqueeze(0)});
    }
  }
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  fmt::print(
      "{} pictures in {:.1f} s, in {}\n",
      frames.size(),
      took.count(),
      out.string());
  for (const tern::Metric& error : errors) {
    if (truths.empty()) break;
    fmt::print("{} {:.5f}\n", error.name(), error.compute().item<double>());
  }
  note.pictures({out / "com" / names[0], out / "pha" / names[0]});
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
