// %% [markdown]
// # Background matting: replacing the background
//
// Places a person or an object in front of a different background. The program
// needs two photos taken from the same position, one with and one without the
// foreground; or a folder or a video of frames and one photo of the background.
//
// ```sh
// matting_predict --model-checkpoint checkpoint/base/base.safetensors \
//   --images-src me.jpg --images-bgr room.jpg --target-bgr beach.jpg
// matting_predict ... --video-src me.mp4 --video-bgr room.jpg
// ```
//
// It writes composites to `out/com`, alphas to `out/pha` and foregrounds to
// `out/fgr`, in the same subfolders as the frames. If `--images-pha` names the
// true alphas, it also prints the errors.

// %%
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <tern/tern.h>

#include "matting_video.h"
#include "options.h"

namespace fs = std::filesystem;

/// Returns `path` itself or, for a folder, all its images sorted by name.
std::vector<std::string> photos(const fs::path& path) {
  if (!fs::is_directory(path)) return {path.string()};
  std::vector<std::string> found = tern::find_image_files(path);
  if (found.empty()) throw tern::DataError(path.string(), "contains no image.");
  return found;
}

/// Returns the file name of each frame's outputs: its path relative to `src`,
/// since frames in different folders may have the same name.
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
            "--images-src has {} and {}, which would both be written as {}; "
            "rename one of them.",
            first->second,
            frame,
            first->first.string()));
  }
  return names;
}

/// Reads photo `i`, or the only photo if all frames share it.
torch::Tensor
read(const std::vector<std::string>& paths, size_t i, int64_t channels = 3) {
  const std::string& path = paths.size() == 1 ? paths[0] : paths.at(i);
  return tern::read_image(path, {.channels = channels});
}

/// A dataset of frames with their backgrounds, read by the loader's workers.
class Photos final : public tern::Dataset {
 public:
  Photos(
      std::vector<std::string> frames,
      std::vector<std::string> backgrounds,
      bool align)
      : frames_(std::move(frames)),
        backgrounds_(std::move(backgrounds)),
        align_(align) {}

  int64_t size() const override { return std::ssize(frames_); }
  std::string describe(int64_t index) const override { return frames_[index]; }
  tern::Batch get_batch(
      c10::ArrayRef<int64_t> indices,
      const tern::BatchContext&) const override {
    const auto i = static_cast<size_t>(indices[0]);
    const torch::Tensor src = read(frames_, i), bgr = read(backgrounds_, i);
    const torch::Tensor seen =
        align_ ? tern::examples::align_background(src, bgr) : bgr;
    return {{src.unsqueeze(0), seen.unsqueeze(0)}, {}};
  }

 private:
  std::vector<std::string> frames_, backgrounds_;
  bool align_;
};

void check_count(
    const std::vector<std::string>& paths,
    size_t frames,
    const char* option) {
  TORCH_CHECK_VALUE(
      paths.size() == 1 || paths.size() == frames,
      fmt::format(
          "{} has {} images for {} frames; expected one, or one for each "
          "frame.",
          option,
          paths.size(),
          frames));
}

/// Options of the network. Options that are not given are taken from the file
/// or, for a file without them, from the paper's program.
struct NetworkOptions {
  std::string type = {}, backbone = "resnet50", mode = "sampling";
  tern::MattingRefineOptions given{.threshold = 0.7};
  const CLI::Option *scale_option = nullptr, *mode_option = nullptr,
                    *pixels_option = nullptr, *threshold_option = nullptr,
                    *kernel_option = nullptr;

  void add_to(tern::examples::Options& app) {
    app.add_choice(
        "--model-type",
        type,
        {"base", "refine", "mattingbase", "mattingrefine"},
        "for files that do not state it");
    app.add_choice(
        "--model-backbone",
        backbone,
        {"resnet101", "resnet50", "mobilenetv2"},
        "for files that do not state it");
    scale_option = app.add_number(
        "--model-backbone-scale",
        given.backbone_scale,
        0.01,
        0.5,
        "scale of the base network's image");
    mode_option = app.add_choice(
        "--model-refine-mode",
        mode,
        {"full", "sampling", "thresholding"});
    pixels_option = app.add_number(
        "--model-refine-sample-pixels",
        given.sample_pixels,
        16,
        100'000'000);
    threshold_option =
        app.add_number("--model-refine-threshold", given.threshold, 0, 1);
    kernel_option = app.add_choice(
        "--model-refine-kernel-size",
        given.kernel_size,
        {"1", "3"});
  }

  tern::MattingRefineOptions over(tern::MattingRefineOptions options) const {
    if (*scale_option) options.backbone_scale = given.backbone_scale;
    if (*mode_option) options.mode = tern::refine_mode(mode);
    if (*pixels_option) options.sample_pixels = given.sample_pixels;
    if (*threshold_option) options.threshold = given.threshold;
    if (*kernel_option) options.kernel_size = given.kernel_size;
    return options;
  }

  /// Loads a network that Tern exported or, with --model-type, weights of the
  /// paper's program.
  tern::Model load(const fs::path& file) const {
    if (type.empty()) {
      tern::Model model = tern::load_matting_model(file);
      if (auto refine = std::dynamic_pointer_cast<tern::MattingRefineImpl>(
              model.module())) {
        refine->set_options(over(refine->options()));
      }
      return model;
    }
    const tern::MattingBackbone arch = tern::matting_backbone(backbone);
    tern::Model model = tern::MattingBase(tern::MattingBaseOptions{arch});
    if (type.ends_with("refine")) {
      model = tern::MattingRefine(
          over({.backbone = arch, .threshold = given.threshold}));
    }
    tern::load_matting_weights(model, file);
    return model;
  }
};

/// Returns the background for a video frame: resized to it, or aligned with it.
torch::Tensor background_of(
    const torch::Tensor& frame,
    const torch::Tensor& background,
    bool align) {
  return align ? tern::examples::align_background(frame, background)
               : tern::examples::resized(
                     background,
                     {frame.size(0), frame.size(1)});
}

/// Writes the results: an image for each frame, or a video.
class Output {
 public:
  Output(fs::path folder, std::vector<std::string> kinds, bool is_video)
      : folder_(std::move(folder)), kinds_(std::move(kinds)) {
    is_video_ = is_video;
  }

  /// \param name  File name of the frame's images.
  void write(
      const tern::Matte& matte,
      const torch::Tensor& behind,
      const fs::path& name,
      double rate) {
    for (const std::string& kind : kinds_) {
      const torch::Tensor image = kind == "com"   ? place_over(matte, behind)
                                  : kind == "pha" ? matte.pha
                                  : kind == "fgr" ? matte.fgr
                                  : kind == "err" ? matte.err
                                                  : matte.ref;
      TORCH_CHECK_VALUE(
          image.defined(),
          "--output-types has ref, which only the refining network computes.");
      if (is_video_) {
        const fs::path file = folder_ / (kind + ".mp4");
        videos_.try_emplace(kind, file, rate).first->second.write(image);
      } else {
        const fs::path file = folder_ / kind / name;
        fs::create_directories(file.parent_path());
        tern::save_image(file, image);
      }
    }
  }

 private:
  fs::path folder_;
  std::vector<std::string> kinds_;
  bool is_video_ = false;
  std::map<std::string, tern::examples::VideoWriter> videos_;
};

// %%
int main(int argc, char** argv) try {
  fs::path checkpoint, src, bgr, target, target_of_video, pha, video;
  fs::path out = "out";
  NetworkOptions network;
  std::string device_name, format;
  std::vector<std::string> types = {"com", "pha", "fgr"};
  std::vector<std::string> resize;
  int64_t workers = 8;
  bool amp = false, align = false;
  tern::examples::Options app("Replaces the background of photos and videos");
  app.add_option("--model-checkpoint", checkpoint)->required();
  network.add_to(app);
  auto* images = app.add_option("--images-src", src, "a photo or a folder");
  app.add_option("--video-src", video, "a video")->excludes(images);
  app.add_option("--images-bgr", bgr, "the background alone");
  app.add_option("--video-bgr", bgr, "a photo of the video's background");
  app.add_option("--target-bgr", target, "the new background; empty: green");
  app.add_option(
      "--video-target-bgr",
      target_of_video,
      "a video as the new background");
  app.add_option("--video-resize", resize, "width and height")
      ->expected(2)
      ->check(CLI::PositiveNumber);
  app.add_option("--images-pha", pha, "true alphas, to compare with");
  app.add_flag(
      "--preprocess-alignment",
      align,
      "align the background with each frame");
  app.add_option("--output-dir", out);
  app.add_option("--output-types", types)
      ->check(CLI::IsMember({"com", "pha", "fgr", "err", "ref"}));
  app.add_choice(
      "--output-format",
      format,
      {"video", "image_sequences"},
      "empty: the format of the input");
  app.add_choice("--device", device_name, {"cpu", "cuda"});
  app.add_number("--num-workers", workers, 0, 64, "threads that read photos");
  app.add_flag("--amp", amp, "compute in 16 bits");
  app.read(argc, argv);
  TORCH_CHECK_VALUE(
      (!src.empty() || !video.empty()) && !bgr.empty(),
      "There is no input; expected --images-src and --images-bgr, or "
      "--video-src and --video-bgr.");

  // %% [markdown]
  // ## Loading the network and the photos

  // %%
  const torch::Device device = device_name.empty()
                                   ? tern::DataBunch::default_device()
                                   : torch::Device(device_name);
  tern::Model model = network.load(checkpoint);
  model.to(device);
  const bool is_video = !video.empty();
  const auto backgrounds = photos(bgr);
  std::vector<std::string> frames, truths;
  std::vector<fs::path> names;
  std::optional<tern::examples::VideoReader> frames_of_video, target_video;
  std::optional<tern::DataLoader::Epoch> loaded;
  double rate = 25;
  if (is_video) {
    std::optional<tern::ImageSize> size;
    if (!resize.empty())
      size = tern::ImageSize{std::stoll(resize[1]), std::stoll(resize[0])};
    rate = frames_of_video.emplace(video, size).rate();
    check_count(backgrounds, 1, "--video-bgr");
  } else {
    frames = photos(src);
    names = names_of(frames, src);
    check_count(backgrounds, frames.size(), "--images-bgr");
    if (!pha.empty()) truths = photos(pha);
    if (!truths.empty()) check_count(truths, frames.size(), "--images-pha");
    loaded.emplace(tern::DataLoader(
                       std::make_shared<Photos>(frames, backgrounds, align),
                       {.batch_size = 1, .workers = workers})
                       .epoch(0));
  }
  torch::Tensor behind =
      torch::tensor({51, 178, 89}, torch::kByte).view({1, 1, 3});
  if (!target.empty()) behind = tern::read_image(target.string());
  if (!target_of_video.empty()) target_video.emplace(target_of_video);
  const torch::Tensor background =
      is_video ? tern::read_image(backgrounds[0]) : torch::Tensor();
  // Returns the next frame and its background.
  const auto next = [&]() -> std::optional<tern::Batch> {
    if (!is_video) return loaded->next();
    const auto frame = frames_of_video->next();
    if (!frame) return {};
    const torch::Tensor seen = background_of(*frame, background, align);
    return tern::Batch{{frame->unsqueeze(0), seen.unsqueeze(0)}, {}};
  };

  // %% [markdown]
  // ## A matte for each photo

  // %%
  std::vector<tern::Metric> errors = tern::matting_metrics();
  const auto begin = std::chrono::steady_clock::now();
  Output output(out, types, format.empty() ? is_video : format == "video");
  size_t count = 0;
  for (; const auto pair = next(); ++count) {
    if (target_video) behind = target_video->next().value_or(behind);
    std::optional<tern::AutocastGuard> autocast;
    if (amp) autocast.emplace(device);
    const tern::Matte matte =
        tern::find_matte(model, pair->inputs[0][0], pair->inputs[1][0]);
    autocast.reset();
    const fs::path name =
        is_video ? fs::path(fmt::format("{:05}.png", count)) : names[count];
    output.write(matte, behind, name, rate);
    if (truths.empty()) continue;
    const torch::Tensor truth =
        read(truths, count, 1).permute({2, 0, 1}) / 255.f;
    for (tern::Metric& error : errors) {
      error.update(
          {matte.pha.cpu().view({1, 1, truth.size(1), truth.size(2)})},
          {truth.unsqueeze(0)});
    }
  }
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  fmt::print(
      "{} images in {:.1f} s, written to {}\n",
      count,
      took.count(),
      out.string());
  for (const tern::Metric& error : errors) {
    if (truths.empty()) break;
    fmt::print("{} {:.5f}\n", error.name(), error.compute().item<double>());
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
