#include "tern/vision/models/matting_refine.h"

#include <fmt/format.h>

#include "tern/data/formats/json_fields.h"
#include "tern/vision/models/conv_layer.h"

namespace tern {

namespace {

void check(const MattingRefineOptions& options) {
  TORCH_CHECK_VALUE(
      options.backbone_scale > 0 && options.backbone_scale <= 0.5,
      fmt::format(
          "[MattingRefine] backbone_scale is {}; expected more than 0 and at "
          "most 0.5, as the refiner's first half works at half the size.",
          options.backbone_scale));
  TORCH_CHECK_VALUE(
      options.sample_pixels >= 16,
      fmt::format(
          "[MattingRefine] sample_pixels is {}; expected 16 or more, since it "
          "refines in squares of 16 pixels.",
          options.sample_pixels));
  TORCH_CHECK_VALUE(
      options.threshold >= 0 && options.threshold <= 1,
      fmt::format(
          "[MattingRefine] threshold is {}; expected one in [0, 1], as err is.",
          options.threshold));
  TORCH_CHECK_VALUE(
      options.kernel_size == 1 || options.kernel_size == 3,
      fmt::format(
          "[MattingRefine] kernel_size is {}; expected 1 or 3.",
          options.kernel_size));
}

void check_size(const MattingRefineOptions& options, const torch::Tensor& src) {
  const int64_t h = src.size(2), w = src.size(3);
  TORCH_CHECK_VALUE(
      h % 4 == 0 && w % 4 == 0,
      fmt::format(
          "[MattingRefine] src is {} pixels high and {} wide; expected both "
          "divisible by 4. Crop or pad the pictures.",
          h,
          w));
  TORCH_CHECK_VALUE(
      options.mode != RefineMode::sampling || options.sample_pixels <= h * w,
      fmt::format(
          "[MattingRefine] sample_pixels is {}, more than the {} of a picture "
          "of {} by {}; expected at most as many. Lower it, or refine in the "
          "mode full.",
          options.sample_pixels,
          h * w,
          h,
          w));
}

// The size at which the backbone sees a picture.
std::vector<int64_t> small_size(double scale, const torch::Tensor& src) {
  const auto h = static_cast<int64_t>(static_cast<double>(src.size(2)) * scale);
  const auto w = static_cast<int64_t>(static_cast<double>(src.size(3)) * scale);
  TORCH_CHECK_VALUE(
      h > 0 && w > 0,
      fmt::format(
          "[MattingRefine] a picture of {} by {} has no pixel left at the "
          "backbone_scale {}; expected larger pictures or a larger scale.",
          src.size(2),
          src.size(3),
          scale));
  return {h, w};
}

// What builds a MattingRefine again.
struct Description {
  explicit Description(const MattingRefineOptions& given)
      : options(given),
        backbone(to_string(given.backbone)),
        mode(to_string(given.mode)) {}

  JsonFields fields() {
    return {
        {"backbone", &backbone},
        {"backbone_scale", &options.backbone_scale},
        {"mode", &mode},
        {"sample_pixels", &options.sample_pixels},
        {"threshold", &options.threshold},
        {"prevent_oversampling", &options.prevent_oversampling},
        {"kernel_size", &options.kernel_size}};
  }

  MattingRefineOptions options;
  std::string backbone, mode;
};

}  // namespace

MattingRefineImpl::MattingRefineImpl(const MattingRefineOptions& options)
    : options_(options) {
  check(options);
  reset();
}

void MattingRefineImpl::reset() {
  coarse_.emplace(options_.backbone, *this);
  refiner_ = register_module("refiner", MattingRefiner(options_));
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
  const RefinedMatting refined = refiner_->forward(src, bgr, coarse);
  return {
      refined.pha.clamp(0, 1),
      (refined.fgr + src).clamp(0, 1),
      coarse.pha,
      (coarse.fgr + src_sm).clamp(0, 1),
      coarse.err,
      refined.ref};
}

Architecture MattingRefineImpl::architecture() const {
  return {"matting_refine", to_json(Description(options_).fields())};
}

void MattingRefineImpl::set_options(const MattingRefineOptions& options) {
  check(options);
  TORCH_CHECK_VALUE(
      options.backbone == options_.backbone &&
          options.kernel_size == options_.kernel_size,
      fmt::format(
          "[MattingRefine::set_options] backbone is {} and kernel_size {}; "
          "expected {} and {}, those of the weights. Build another network.",
          to_string(options.backbone),
          options.kernel_size,
          to_string(options_.backbone),
          options_.kernel_size));
  options_ = options;
  refiner_->set_options(options);
}

MattingRefine build_matting_refine(const Architecture& architecture) {
  Description described{MattingRefineOptions()};
  read_json(
      architecture.options,
      described.fields(),
      "the options of " + architecture.name);
  described.options.backbone = matting_backbone(described.backbone);
  described.options.mode = refine_mode(described.mode);
  return MattingRefine(described.options);
}

}  // namespace tern
