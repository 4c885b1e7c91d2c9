#include "tern/vision/imagenet_normalization.h"

#include "tern/vision/transforms/augment_batch.h"

namespace tern {

DataBunch imagenet_normalized(DataBunch data) {
  if (!data.batch_transforms.empty()) return data;
  const ImageStats stats = stats::imagenet();
  data.batch_transforms.push_back(normalize(stats.mean, stats.stddev));
  if (data.preprocessing) {
    data.preprocessing->mean = stats.mean;
    data.preprocessing->stddev = stats.stddev;
  }
  return data;
}

}  // namespace tern
