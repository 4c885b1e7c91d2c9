// %% [markdown]
// # Handwritten digits
//
// Trains a small convolutional network in mixed precision to distinguish
// handwritten 3s from 7s. This is the program at the top of the README. Expect
// an accuracy of about 0.96. `mnist_options.cpp` is the same program with
// command-line options.

// %%
#include <tern/tern.h>

int main() {
  auto path = tern::untar_data(tern::urls::mnist_sample);
  auto data = tern::ImageDataBunch::from_folder(path);
  auto learn = tern::Learner(
      data,
      tern::simple_cnn({3, 16, 16, 2}),
      {.metrics = {tern::accuracy()}});
  learn.to_fp16().fit(1);
  learn.recorder().plot_losses("losses.svg");
}
