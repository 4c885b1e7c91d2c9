#include "tern/vision/transforms/get_transforms.h"

#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/pixels.h"

namespace tern {

TransformLists get_transforms(const GetTransformsOptions& options) {
  const float p = options.p_affine;
  TransformLists lists;
  Transforms& train = lists.train;
  train.push_back(rand_crop());
  if (options.do_flip) {
    train.push_back(options.flip_vert ? dihedral() : flip_lr());
  }
  if (options.max_warp != 0) {
    train.push_back(symmetric_warp({-options.max_warp, options.max_warp}, p));
  }
  if (options.max_rotate != 0) {
    train.push_back(rotate({-options.max_rotate, options.max_rotate}, p));
  }
  if (options.max_zoom > 1) {
    train.push_back(rand_zoom({1, options.max_zoom}, p));
  }
  if (options.max_lighting != 0) {
    const float light = options.max_lighting;
    train.push_back(brightness(
        {0.5f * (1 - light), 0.5f * (1 + light)},
        options.p_lighting));
    train.push_back(contrast({1 - light, 1 / (1 - light)}, options.p_lighting));
  }
  train.insert(train.end(), options.extra.begin(), options.extra.end());
  lists.valid.push_back(rand_crop(/*is_random=*/false));
  return lists;
}

}  // namespace tern
