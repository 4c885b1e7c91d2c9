#pragma once

/// Everything of tern::vision: images from files, and models for them.
///
/// OpenCV is kept to one thread from the first image on that it resizes, turns
/// or decodes (cv::setNumThreads(1), for the whole program): images are spread
/// over the workers of the loader instead.

#include "tern/vision/data_block.h"
#include "tern/vision/decode/bad_images.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/decode/image_pack.h"
#include "tern/vision/fine_tuning.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/image_folder.h"
#include "tern/vision/image_size.h"
#include "tern/vision/interpret/grad_cam.h"
#include "tern/vision/interpret/interpretation.h"
#include "tern/vision/interpret/picture_grid.h"
#include "tern/vision/interpret/show.h"
#include "tern/vision/matting/matting_base.h"
#include "tern/vision/matting/matting_data.h"
#include "tern/vision/matting/matting_dataset.h"
#include "tern/vision/matting/matting_loss.h"
#include "tern/vision/matting/matting_predict.h"
#include "tern/vision/matting/matting_refine.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/vision_arch.h"
#include "tern/vision/predict/image_predict.h"
#include "tern/vision/predict/predictor.h"
#include "tern/vision/predict/predictor_queue.h"
#include "tern/vision/shards/shard_images.h"
#include "tern/vision/transforms/augment_batch.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/get_transforms.h"
#include "tern/vision/transforms/pixels.h"
#include "tern/vision/transforms/presize.h"
#include "tern/vision/transforms/transform.h"
#include "tern/vision/vision_learner.h"
