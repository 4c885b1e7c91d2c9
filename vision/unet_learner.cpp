#include "tern/vision/unet_learner.h"

namespace tern {

VisionLearner unet_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const UnetLearnerOptions& options) {
  if (options.learner.seed != 0) torch::manual_seed(options.learner.seed);
  const DynamicUnet model(
      arch,
      DynamicUnetOptions{
          .outputs = outputs_for(data, options.outputs),
          .in_channels = options.in_channels,
          .blur = options.blur,
          .last_cross = options.last_cross});
  const bool is_pretrained = !options.pretrained.empty();
  if (is_pretrained) {
    arch.load_pretrained(model->body(), options.pretrained);
  }
  return {data, model, arch, "bn", is_pretrained, options.learner};
}

}  // namespace tern
