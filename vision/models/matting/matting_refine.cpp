#include "tern/vision/models/matting/matting_refine.h"

#include "tern/data/formats/json.h"
#include "tern/data/support/enum_names.h"
#include "tern/kernels/check.h"
#include "tern/vision/models/backbone.h"

namespace tern {

namespace {

// [N, C, H, W] -> [N, H, W, C], contiguous. Does not copy channels-last input.
torch::Tensor channels_behind(const torch::Tensor& images) {
  return images.permute({0, 2, 3, 1}).contiguous();
}

torch::Tensor channels_second(const torch::Tensor& images) {
  return images.permute({0, 3, 1, 2});
}

using torch::Tensor;

constexpr EnumNames<RefineMode, 3> kModes = {
    {{"full", RefineMode::full},
     {"sampling", RefineMode::sampling},
     {"thresholding", RefineMode::thresholding}}};

constexpr int64_t kSquare = 4;  // side of a square in pixels

Tensor resized(const Tensor& x, int64_t h, int64_t w) {
  return torch::upsample_bilinear2d(x, {h, w}, /*align_corners=*/false);
}

// Concatenates channels. The result is stored channels-last, like all later
// tensors.
Tensor joined(const Tensors& parts) {
  return torch::cat(parts, 1).contiguous(torch::MemoryFormat::ChannelsLast);
}

Tensor padded(const Tensor& x, int64_t border) {
  if (border == 0) return x;
  return torch::constant_pad_nd(x, {border, border, border, border});
}

void check(const MattingRefineOptions& options) {
  TERN_CHECK_VALUE(
      options.backbone_scale > 0 && options.backbone_scale <= 0.5,
      "[MattingRefine] backbone_scale is {}; expected more than 0 and at most "
      "0.5, since the refiner's first half works at half the size.",
      options.backbone_scale);
  TERN_CHECK_VALUE(
      options.sample_pixels >= 16,
      "[MattingRefine] sample_pixels is {}; expected 16 or more, since it "
      "refines in squares of 16 pixels.",
      options.sample_pixels);
  TERN_CHECK_VALUE(
      options.threshold >= 0 && options.threshold <= 1,
      "[MattingRefine] threshold is {}; expected a number in [0, 1], the range "
      "of err.",
      options.threshold);
  TERN_CHECK_VALUE(
      options.kernel_size == 1 || options.kernel_size == 3,
      "[MattingRefine] kernel_size is {}; expected 1 or 3.",
      options.kernel_size);
}

void check_size(const MattingRefineOptions& options, const torch::Tensor& src) {
  const int64_t h = src.size(2), w = src.size(3);
  TERN_CHECK_VALUE(
      h % 4 == 0 && w % 4 == 0,
      "[MattingRefine] src is {} pixels high and {} wide; expected both "
      "divisible by 4. Crop or pad the images.",
      h,
      w);
  TERN_CHECK_VALUE(
      options.mode != RefineMode::sampling || options.sample_pixels <= h * w,
      "[MattingRefine] sample_pixels is {}, more than the {} of an image of {} "
      "by {}; expected at most that number. Lower it, or use the refine mode "
      "full.",
      options.sample_pixels,
      h * w,
      h,
      w);
}

// Returns the size of the downscaled image for the backbone.
std::vector<int64_t> small_size(double scale, const torch::Tensor& src) {
  const auto small = [&](int64_t size) {
    return static_cast<int64_t>(static_cast<double>(size) * scale);
  };
  const int64_t h = small(src.size(2)), w = small(src.size(3));
  TERN_CHECK_VALUE(
      h > 0 && w > 0,
      "[MattingRefine] an image of {} by {} has no pixel left at the "
      "backbone_scale {}; expected larger images or a larger scale.",
      src.size(2),
      src.size(3),
      scale);
  return {h, w};
}

// Returns a map [N, 1, h, w] like `err` with 1 at the squares to refine.
Tensor choose(const Tensor& err, const MattingRefineOptions& options) {
  if (options.mode == RefineMode::thresholding) {
    return err.gt(options.threshold).to(err.scalar_type());
  }
  const Tensor flat = err.flatten(1);
  const Tensor largest = std::get<1>(flat.topk(
      options.sample_pixels / (kSquare * kSquare),
      1,
      /*largest=*/true,
      /*sorted=*/false));
  Tensor chosen = torch::zeros_like(flat).scatter_(1, largest, 1);
  if (options.prevent_oversampling) chosen.mul_(flat.gt(0));
  return chosen.view_as(err);
}

// Options that `build_matting_refine` reads.
JsonFields fields_of(
    MattingRefineOptions& options,
    std::string& backbone,
    std::string& mode) {
  return {
      {"backbone", &backbone},
      {"backbone_scale", &options.backbone_scale},
      {"mode", &mode},
      {"sample_pixels", &options.sample_pixels},
      {"threshold", &options.threshold},
      {"prevent_oversampling", &options.prevent_oversampling},
      {"kernel_size", &options.kernel_size}};
}

}  // namespace

PatchPlaces patch_places(const torch::Tensor& chosen) {
  const torch::Tensor at = chosen.nonzero();
  return {at.select(1, 0), at.select(1, 1), at.select(1, 2)};
}

torch::Tensor crop_patches(
    const torch::Tensor& images,
    const PatchPlaces& places,
    int64_t side,
    int64_t border) {
  const int64_t channels = images.size(1), full = side + 2 * border;
  // [N, H + 2 * border, w, full * C]: the part of each row of pixels that
  // belongs to the patches of each column. This is a view in which patches
  // overlap.
  const torch::Tensor rows = channels_behind(padded(images, border))
                                 .flatten(2)
                                 .unfold(2, full * channels, side * channels);
  const torch::Tensor row_numbers = places.row.unsqueeze(1) * side +
                                    torch::arange(full, places.row.options());
  const torch::Tensor patches = rows.index(
      {places.image.unsqueeze(1), row_numbers, places.column.unsqueeze(1)});
  return channels_second(patches.view({-1, full, full, channels}));
}

torch::Tensor replace_patches(
    const torch::Tensor& images,
    const PatchPlaces& places,
    const torch::Tensor& patches) {
  const int64_t side = patches.size(2), channels = images.size(1);
  const int64_t h = images.size(2) / side, w = images.size(3) / side;
  const torch::Tensor result = channels_behind(images);
  torch::Tensor grid =
      result.view({images.size(0), h, side, w, side * channels})
          .transpose(2, 3);
  grid.index_put_(
      {places.image, places.row, places.column},
      channels_behind(patches.to(images.scalar_type()))
          .view({-1, side, side * channels}));
  // Returns the data through `grid`, because a trace does not detect that
  // `grid` is a view of `result`.
  return channels_second(grid.transpose(2, 3).reshape(result.sizes()));
}

std::string to_string(RefineMode mode) {
  return name_of(kModes, mode);
}

RefineMode refine_mode(const std::string& name) {
  return value_of(kModes, name, "[refine_mode] unknown mode");
}

// Four small convolutions over squares of an image, the first two at half
// resolution. MattingRefine checks the inputs.
class MattingRefinerImpl : public torch::nn::Cloneable<MattingRefinerImpl> {
 public:
  explicit MattingRefinerImpl(int64_t kernel_size) : kernel_size_(kernel_size) {
    reset();
  }

  void reset() override {
    const auto conv = [&](int64_t in, int64_t out, bool bias) {
      return torch::nn::Conv2d(
          torch::nn::Conv2dOptions(in, out, kernel_size_).bias(bias));
    };
    conv1_ = register_module("conv1", conv(32 + 1 + 3 + 6, 24, false));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(24));
    conv2_ = register_module("conv2", conv(24, 16, false));
    bn2_ = register_module("bn2", torch::nn::BatchNorm2d(16));
    conv3_ = register_module("conv3", conv(16 + 6, 12, false));
    bn3_ = register_module("bn3", torch::nn::BatchNorm2d(12));
    conv4_ = register_module("conv4", conv(12, 1 + 3, true));
  }

  // Sets only pha, fgr and ref_sm. As in `coarse`, fgr is a residual to add to
  // src.
  MattingRefineOutput forward(
      const Tensor& src,
      const Tensor& bgr,
      const MattingOutput& coarse,
      const MattingRefineOptions& options) {
    const int64_t h = src.size(2), w = src.size(3);
    const Tensor images = joined({src, bgr});
    const Tensor half = joined(
        {resized(joined({coarse.hid, coarse.pha, coarse.fgr}), h / 2, w / 2),
         resized(images, h / 2, w / 2)});
    // Pixels that two convolutions at each resolution remove at every edge.
    const int64_t half_border = kernel_size_ == 3 ? 3 : 0;
    const int64_t border = kernel_size_ == 3 ? 2 : 0;
    Tensor ref, seen;
    if (options.mode == RefineMode::full) {
      ref = src.new_ones({src.size(0), 1, h / kSquare, w / kSquare});
      seen = convolve(padded(half, half_border), padded(images, border));
    } else {
      const Tensor err = coarse.err.detach();
      ref = choose(resized(err, h / kSquare, w / kSquare), options);
      seen = resized(joined({coarse.pha, coarse.fgr}), h, w);
      const PatchPlaces places = patch_places(ref.squeeze(1));
      if (places.size() > 0) {
        const Tensor patches = convolve(
            crop_patches(half, places, kSquare / 2, half_border),
            crop_patches(images, places, kSquare, border));
        seen = replace_patches(seen, places, patches);
      }
    }
    return {seen.narrow(1, 0, 1), seen.narrow(1, 1, 3), {}, {}, {}, ref};
  }

 private:
  // [P, 42, h, w] at half resolution and [P, 6, H, W] -> [P, 4, ...], smaller
  // by the border that the convolutions remove.
  Tensor convolve(const Tensor& half, const Tensor& whole) {
    Tensor x = bn1_->forward(conv1_->forward(half)).relu_();
    x = bn2_->forward(conv2_->forward(x)).relu_();
    x = torch::upsample_nearest2d(x, whole.sizes().slice(2));
    x = conv3_->forward(torch::cat({x, whole}, 1));
    return conv4_->forward(bn3_->forward(x).relu_());
  }

  int64_t kernel_size_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr},
      conv4_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
};

MattingRefineImpl::MattingRefineImpl(const MattingRefineOptions& options)
    : options_(options) {
  check(options);
  reset();
}

void MattingRefineImpl::reset() {
  coarse_.emplace(options_.backbone, *this);
  refiner_ = register_module(
      "refiner",
      std::make_shared<MattingRefinerImpl>(options_.kernel_size));
  store_channels_last(*this);
}

MattingRefineOutput MattingRefineImpl::forward(
    const torch::Tensor& src,
    const torch::Tensor& bgr) {
  check_matting_inputs("MattingRefine", src, bgr);
  check_size(options_, src);
  const std::vector<int64_t> size = small_size(options_.backbone_scale, src);
  const torch::Tensor src_sm = torch::upsample_bilinear2d(src, size, false);
  const torch::Tensor bgr_sm = torch::upsample_bilinear2d(bgr, size, false);
  const MattingOutput coarse = coarse_->forward(src_sm, bgr_sm);
  const MattingRefineOutput refined =
      refiner_->forward(src, bgr, coarse, options_);
  return {
      refined.pha.clamp(0, 1),
      (refined.fgr + src).clamp(0, 1),
      coarse.pha,
      (coarse.fgr + src_sm).clamp(0, 1),
      coarse.err,
      refined.ref_sm};
}

Architecture MattingRefineImpl::architecture() const {
  MattingRefineOptions options = options_;
  std::string backbone = to_string(options.backbone);
  std::string mode = to_string(options.mode);
  return {"matting_refine", to_json(fields_of(options, backbone, mode))};
}

void MattingRefineImpl::set_options(const MattingRefineOptions& options) {
  check(options);
  TERN_CHECK_VALUE(
      options.backbone == options_.backbone &&
          options.kernel_size == options_.kernel_size,
      "[MattingRefine::set_options] backbone is {} and kernel_size {}; "
      "expected {} and {}, as in the weights. Create a new network.",
      to_string(options.backbone),
      options.kernel_size,
      to_string(options_.backbone),
      options_.kernel_size);
  options_ = options;
}

MattingRefine build_matting_refine(const Architecture& architecture) {
  MattingRefineOptions options;
  std::string backbone = to_string(options.backbone);
  std::string mode = to_string(options.mode);
  read_json(
      architecture.options,
      fields_of(options, backbone, mode),
      "the options of " + architecture.name);
  options.backbone = matting_backbone(backbone);
  options.mode = refine_mode(mode);
  return MattingRefine(options);
}

}  // namespace tern
