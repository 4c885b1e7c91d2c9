#include "tern/vision/matting/matting_data.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/Context.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/matting/tensor_filters.h"
#include "tern/vision/transforms/geometry.h"

namespace tern {

namespace {

// Strengths of BackgroundMattingV2's augmentation.
constexpr float kShadowOpacity = 0.3f;
constexpr AffineRanges kShadow = {
    .degrees = {-5, 5},
    .translate = 0.2f,
    .scale = {0.5f, 1.5f},
    .shear = {-5, 5}};
constexpr float kNoise = 0.03f;  // standard deviation
constexpr float kJitter = 0.18f;
constexpr float kHueJitter = 0.1f;
constexpr AffineRanges kCameraMotion = {.degrees = {-1, 1}, .translate = 0.01f};

/// Changes to some images of a batch: their indices, and a change for each.
template <class Change>
struct Chosen {
  std::vector<int64_t> places;
  std::vector<Change> changes;

  void add(int64_t place, Change change) {
    places.push_back(place);
    changes.push_back(std::move(change));
  }

  /// Replaces the chosen images of [N, ...] by `changed(images, places)`.
  template <class F>
  void apply(torch::Tensor& pictures, const F& changed) const {
    if (places.empty()) return;
    const torch::Tensor on_device = torch::tensor(places).to(pictures.device());
    pictures = pictures.index_copy(
        0,
        on_device,
        changed(pictures.index_select(0, on_device), on_device));
  }
};

struct Shadow {
  Matrix3 matrix;
  float opacity = 0;
};

/// All random decisions about a training batch, except for the noise values.
struct ScenePlan {
  ImageSize size;
  int64_t shadow_blur = 1;
  uint64_t noise_seed = 0;
  Chosen<Shadow> shadows;
  Chosen<std::pair<float, float>> noises;  // standard deviations of src and bgr
  Chosen<ColorChange> jitters;
  Chosen<Matrix3> affines;
};

ColorChange draw_change(SampleRng& rng) {
  const auto factor = [&] { return rng.uniform(1 - kJitter, 1 + kJitter); };
  const float brightness = factor(), contrast = factor(), saturation = factor();
  return {
      .brightness = brightness,
      .contrast = contrast,
      .saturation = saturation,
      .hue = rng.uniform(-kHueJitter, kHueJitter)};
}

ScenePlan draw_plan(
    const MattingAugmentOptions& options,
    const BatchTransformContext& context,
    int64_t count,
    ImageSize size) {
  ScenePlan plan;
  // Random numbers of the batch; no image has this index.
  SampleRng batch_rng = context.rng(count);
  const auto side = [&](int64_t whole) {
    constexpr int64_t kMultiple = 4;
    if (options.min_crop >= 1) return whole;
    const float share = batch_rng.uniform(options.min_crop, 1);
    const auto pixels = static_cast<int64_t>(share * static_cast<float>(whole));
    return std::max(kMultiple, pixels / kMultiple * kMultiple);
  };
  plan.size.height = side(size.height);
  plan.size.width = side(size.width);
  const int64_t blurs = options.max_shadow_blur - options.min_shadow_blur + 1;
  plan.shadow_blur =
      options.min_shadow_blur + static_cast<int64_t>(batch_rng.below(blurs));
  plan.noise_seed = uint64_t{batch_rng()} << 32 | batch_rng();
  for (int64_t i = 0; i < count; ++i) {
    SampleRng rng = context.rng(i);
    if (rng.uniform() < options.p_shadow) {
      const float opacity = rng.uniform(0, kShadowOpacity);
      const Matrix3 matrix = draw_affine(kShadow, plan.size, rng);
      plan.shadows.add(i, {matrix, opacity});
    }
    if (rng.uniform() < options.p_noise) {
      const float src = rng.uniform(0, kNoise);
      plan.noises.add(i, {src, rng.uniform(0, kNoise)});
    }
    if (rng.uniform() < options.p_jitter) {
      plan.jitters.add(i, draw_change(rng));
    }
    if (rng.uniform() < options.p_affine) {
      plan.affines.add(i, draw_affine(kCameraMotion, plan.size, rng));
    }
  }
  return plan;
}

/// Returns one number per change, in a shape that can be multiplied with
/// images.
template <class Changes, class Number>
torch::Tensor factors(
    const Changes& changes,
    const torch::Tensor& like,
    const Number& number) {
  std::vector<float> values;
  for (const auto& change : changes) values.push_back(number(change));
  return torch::tensor(values).view({-1, 1, 1, 1}).to(like.options());
}

void add_shadows(
    const ScenePlan& plan,
    const torch::Tensor& pha,
    torch::Tensor& src) {
  const std::vector<Shadow>& shadows = plan.shadows.changes;
  plan.shadows.apply(src, [&](const torch::Tensor& some, const auto& places) {
    std::vector<Matrix3> matrices;
    for (const Shadow& shadow : shadows) matrices.push_back(shadow.matrix);
    const torch::Tensor alpha = pha.index_select(0, places);
    const torch::Tensor opacity =
        factors(shadows, alpha, [](const Shadow& s) { return s.opacity; });
    const torch::Tensor cast = box_blur_batch(
        warp_batch(alpha * opacity, matrices, Padding::zeros),
        plan.shadow_blur);
    return (some - cast).clamp(0, 1);
  });
}

/// \param generator  Generates the noise on the device of the images.
void add_noise(
    const Chosen<std::pair<float, float>>& noises,
    float std::pair<float, float>::*strength,
    const at::Generator& generator,
    torch::Tensor& pictures) {
  noises.apply(pictures, [&](const torch::Tensor& some, const auto&) {
    const torch::Tensor deviation =
        factors(noises.changes, some, [&](const auto& noise) {
          return noise.*strength;
        });
    const torch::Tensor noise =
        torch::randn(some.sizes(), generator, some.options());
    return (some + noise * deviation).clamp(0, 1);
  });
}

/// Returns a generator for the device, separate from the default one, which
/// dropout uses.
at::Generator generator_on(torch::Device device, uint64_t seed) {
  at::Generator generator =
      at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  return generator;
}

void check_batch(const Batch& batch) {
  const auto is_rgb = [](const torch::Tensor& x) {
    return x.dim() == 4 && x.size(3) == 3 && x.scalar_type() == torch::kByte;
  };
  const Tensors &inputs = batch.inputs, &targets = batch.targets;
  TERN_CHECK_VALUE(
      inputs.size() == 2 && targets.size() == 1 && is_rgb(inputs[0]) &&
          is_rgb(inputs[1]) && inputs[0].sizes() == inputs[1].sizes() &&
          targets[0].scalar_type() == torch::kByte &&
          targets[0].sizes() == inputs[0].sizes().slice(0, 3),
      "[matting_augment] the batch has {} inputs and {} targets, with the "
      "inputs {}; expected foreground and background, [N, H, W, 3] kByte, and "
      "alpha, [N, H, W] kByte, as a MattingDataset returns them.",
      inputs.size(),
      targets.size(),
      shapes_of(inputs));
}

void check_options(const MattingAugmentOptions& o) {
  for (const auto& [name, share] :
       std::initializer_list<std::pair<const char*, float>>{
           {"min_crop", o.min_crop},
           {"p_shadow", o.p_shadow},
           {"p_noise", o.p_noise},
           {"p_jitter", o.p_jitter},
           {"p_affine", o.p_affine}}) {
    TERN_CHECK_VALUE(
        share >= 0 && share <= 1,
        "[matting_augment] {} is {}; expected a number from 0 to 1.",
        name,
        share);
  }
  TERN_CHECK_VALUE(
      o.min_shadow_blur >= 1 && o.min_shadow_blur <= o.max_shadow_blur,
      "[matting_augment] the shadow is averaged over {} to {} pixels; expected "
      "at least 1, with the smaller number first.",
      o.min_shadow_blur,
      o.max_shadow_blur);
}

namespace fs = std::filesystem;

bool is_split(const fs::path& folder) {
  return fs::is_directory(folder / "train") &&
         fs::is_directory(folder / "valid");
}

/// Returns training and validation files.
std::pair<MattingFiles, MattingFiles> find_both(
    const fs::path& pairs,
    const fs::path& backgrounds,
    const MattingDataOptions& options) {
  const bool has_both = is_split(pairs);
  if (has_both != is_split(backgrounds)) {
    throw_data_error(
        (has_both ? backgrounds : pairs).string(),
        "has no folders train and valid, but {} has; expected them in both or "
        "in neither.",
        (has_both ? pairs : backgrounds).string());
  }
  if (!has_both) {
    return split_matting_files(
        find_matting_files(pairs, backgrounds),
        options.valid_pct,
        options.seed);
  }
  const auto side = [&](const char* name) {
    return find_matting_files(pairs / name, backgrounds / name);
  };
  return {side("train"), side("valid")};
}

/// Returns at most `count` samples, taken at even intervals.
std::shared_ptr<const Dataset> some_of(
    std::shared_ptr<const Dataset> dataset,
    int64_t count) {
  const int64_t size = dataset->size();
  if (count == 0 || count >= size) return dataset;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * size / count);
  return std::make_shared<Subset>(std::move(dataset), std::move(indices));
}

}  // namespace

BatchTransform matting_augment(const MattingAugmentOptions& options) {
  check_options(options);
  return [options](Batch& batch, const BatchTransformContext& context) {
    check_batch(batch);
    torch::Tensor fgr = from_bytes(batch.inputs[0]);
    torch::Tensor bgr = from_bytes(batch.inputs[1]);
    torch::Tensor pha = from_bytes(batch.targets[0].unsqueeze(3));
    ScenePlan plan;
    if (context.training) {
      plan =
          draw_plan(options, context, fgr.size(0), {fgr.size(2), fgr.size(3)});
      for (torch::Tensor* x : {&fgr, &bgr, &pha})
        *x = cover_batch(*x, plan.size);
    }
    torch::Tensor src = bgr;
    add_shadows(plan, pha, src);
    src = torch::lerp(src, fgr, pha);
    if (!plan.noises.places.empty()) {
      const at::Generator generator =
          generator_on(src.device(), plan.noise_seed);
      using Noise = std::pair<float, float>;
      add_noise(plan.noises, &Noise::first, generator, src);
      add_noise(plan.noises, &Noise::second, generator, bgr);
    }
    plan.jitters.apply(bgr, [&](const torch::Tensor& some, const auto&) {
      return change_colors(some, plan.jitters.changes);
    });
    plan.affines.apply(bgr, [&](const torch::Tensor& some, const auto&) {
      return warp_batch(some, plan.affines.changes, Padding::border);
    });
    batch = {{src, bgr}, {pha, fgr}};
  };
}

DataBunch matting_data(
    const fs::path& pairs,
    const fs::path& backgrounds,
    const MattingDataOptions& options) {
  TERN_CHECK_VALUE(
      options.valid_samples >= 0,
      "[matting_data] valid_samples is {}; expected 0 (all samples) or more.",
      options.valid_samples);
  auto [train, valid] = find_both(pairs, backgrounds, options);
  DataBunch data = DataBunch::create(
      std::make_shared<MattingDataset>(std::move(train), options.dataset),
      some_of(
          std::make_shared<MattingDataset>(std::move(valid), options.dataset),
          options.valid_samples),
      {.batch_size = options.batch_size,
       .seed = options.seed,
       .workers = options.workers});
  data.device = options.device.value_or(data.device);
  data.batch_transforms = {matting_augment(options.augment)};
  return data;
}

}  // namespace tern
