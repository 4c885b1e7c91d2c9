#pragma once

/// Everything of Tern: `#include "tern/tern.h"`. A program that includes the
/// headers it uses compiles faster.

#include "tern/callbacks/amp.h"
#include "tern/callbacks/gradient_accumulation.h"
#include "tern/callbacks/gradient_clip.h"
#include "tern/callbacks/gradient_penalty.h"
#include "tern/callbacks/lr_find.h"
#include "tern/callbacks/mixed_precision.h"
#include "tern/callbacks/one_cycle.h"
#include "tern/callbacks/param_scheduler.h"
#include "tern/callbacks/save_checkpoint.h"
#include "tern/callbacks/save_model.h"
#include "tern/data/data_bunch.h"
#include "tern/data/error_text.h"
#include "tern/data/from_torch.h"
#include "tern/kernels/fused_optimizer.h"
#include "tern/kernels/normalize_images.h"
#include "tern/kernels/unscale_and_check.h"
#include "tern/learner/autocast.h"
#include "tern/learner/checkpoint.h"
#include "tern/learner/clip_grad.h"
#include "tern/learner/data_parallel.h"
#include "tern/learner/grad_scaler.h"
#include "tern/learner/lambda_callback.h"
#include "tern/learner/learner.h"
#include "tern/learner/memory_meter.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/adamw.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/save.h"
#include "tern/learner/weights.h"
#ifdef TERN_WITH_ARCHIVES
#include "tern/data/mnist.h"
#include "tern/data/untar_data.h"
#include "tern/data/urls.h"
#endif
#ifdef TERN_WITH_VISION
#include "tern/vision/vision.h"
#endif
