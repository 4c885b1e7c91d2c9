#pragma once

/// Everything of tern::vision: images from files, and models for them.
///
/// OpenCV is kept to one thread from the first image on that it resizes, turns
/// or decodes (cv::setNumThreads(1), for the whole program): images are spread
/// over the workers of the loader instead.

#include "tern/vision/decode.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/image_file.h"
#include "tern/vision/image_folder.h"
#include "tern/vision/image_size.h"
#include "tern/vision/image_stats.h"
#include "tern/vision/models/resnet.h"
#include "tern/vision/models/simple_cnn.h"
#include "tern/vision/save_image.h"
