#pragma once

/// Everything of tern::vision: images from files, and models for them.
///
/// OpenCV is kept to one thread from the first image on that it resizes, turns
/// or decodes (cv::setNumThreads(1), for the whole program): images are spread
/// over the workers of the loader instead.

#include "tern/vision/bad_images.h"
#include "tern/vision/data_block.h"
#include "tern/vision/decode.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/image_file.h"
#include "tern/vision/image_folder.h"
#include "tern/vision/image_pack.h"
#include "tern/vision/image_size.h"
#include "tern/vision/image_stats.h"
#include "tern/vision/image_targets.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/head.h"
#include "tern/vision/models/mobilenet_v2.h"
#include "tern/vision/models/resnet.h"
#include "tern/vision/models/simple_cnn.h"
#include "tern/vision/models/vision_arch.h"
#include "tern/vision/models/xresnet.h"
#include "tern/vision/predictor.h"
#include "tern/vision/predictor_queue.h"
#include "tern/vision/presize.h"
#include "tern/vision/save_image.h"
#include "tern/vision/segmentation_report.h"
#include "tern/vision/show_masks.h"
#include "tern/vision/transforms/augment_batch.h"
#include "tern/vision/transforms/erasing.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/get_transforms.h"
#include "tern/vision/transforms/lighting.h"
#include "tern/vision/transforms/resize.h"
#include "tern/vision/transforms/transform.h"
#include "tern/vision/unet_learner.h"
#include "tern/vision/verify_images.h"
#include "tern/vision/vision_learner.h"
