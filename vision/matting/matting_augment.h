#pragma once

#include <cstdint>

#include "tern/data/data_bunch.h"
#include "tern/vision/transforms/geometry.h"

namespace tern {

/// How training batches of a MattingDataset become scenes; the defaults are
/// BackgroundMattingV2's. Probabilities are for each picture.
struct MattingAugmentOptions {
  /// The least height and width of a batch, as a share of its pictures'; both
  /// are drawn for each batch, multiples of 4. 1: always whole pictures.
  float min_crop = 0.5f;

  /// The foreground throws a shadow: its alpha, of up to this opacity, put
  /// elsewhere and averaged over squares of so many pixels.
  float p_shadow = 0.3f;
  float shadow_opacity = 0.3f;
  AffineRanges shadow = {
      .degrees = {-5, 5},
      .translate = 0.2f,
      .scale = {0.5f, 1.5f},
      .shear = {-5, 5}};
  int64_t min_shadow_blur = 20, max_shadow_blur = 39;

  /// Normal noise of up to this standard deviation on scene and background.
  float p_noise = 0.4f;
  float noise = 0.03f;

  /// The background is photographed in other colours than the scene: its
  /// brightness, contrast and saturation differ by up to this share, its hue by
  /// up to this part of the circle.
  float p_jitter = 0.8f;
  float jitter = 0.18f, jitter_hue = 0.1f;

  /// And the camera has moved.
  float p_affine = 0.3f;
  AffineRanges affine = {.degrees = {-1, 1}, .translate = 0.01f};
};

/// Turns batches of a MattingDataset into what a matting network learns from:
///
///   inputs fgr, bgr [N, H, W, 3] kByte   ->  src, bgr [N, 3, h, w] kFloat
///   target pha [N, H, W] kByte           ->  pha [N, 1, h, w], fgr [N, 3, h,
///   w]
///                                            kFloat
///
/// all in 0..1, where `src = fgr * pha + bgr * (1 - pha)`. Batches for training
/// are cut to another size each and augmented: shadow before the foreground
/// stands there, then noise, and then the background alone. Others are
/// composited as they are.
///
/// All on the device of the batch, for all its pictures at once, without
/// waiting for it, and with random numbers that depend on nothing but the run's
/// seed, the epoch and the batch: a resumed training sees the same.
///
/// \throws c10::ValueError for an option out of its range, and, when it is
///         called, for a batch of another kind.
BatchTransform matting_augment(const MattingAugmentOptions& options = {});

}  // namespace tern
