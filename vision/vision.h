#pragma once

/// Everything of tern::vision: images from files, and models for them.
///
/// OpenCV is kept to one thread from the first image on that it resizes, turns
/// or decodes (cv::setNumThreads(1), for the whole program): images are spread
/// over the workers of the loader instead.

#include "tern/vision/bad_images.h"
#include "tern/vision/data_block.h"
#include "tern/vision/decode.h"
#include "tern/vision/duplicate_images.h"
#include "tern/vision/grad_cam.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/image_file.h"
#include "tern/vision/image_folder.h"
#include "tern/vision/image_manifest.h"
#include "tern/vision/image_pack.h"
#include "tern/vision/image_predict.h"
#include "tern/vision/image_size.h"
#include "tern/vision/image_stats.h"
#include "tern/vision/image_targets.h"
#include "tern/vision/interpretation.h"
#include "tern/vision/models/resnet.h"
#include "tern/vision/models/simple_cnn.h"
#include "tern/vision/picture_grid.h"
#include "tern/vision/presize.h"
#include "tern/vision/save_image.h"
#include "tern/vision/show.h"
#include "tern/vision/transforms/augment_batch.h"
#include "tern/vision/transforms/erasing.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/get_transforms.h"
#include "tern/vision/transforms/lighting.h"
#include "tern/vision/transforms/resize.h"
#include "tern/vision/transforms/transform.h"
#include "tern/vision/verify_images.h"
