#include <cstring>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/samples/pnm.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/decoders.h"

namespace tern {

void decode_pnm(const EncodedImage& file, uint8_t* pixels) {
  const PnmFile pnm = parse_pnm(file.bytes(), file.path());
  const int64_t channels = file.options().channels;
  const uint8_t* from = pnm.pixels.data();
  const auto next_value = [&]() -> uint8_t {
    if (pnm.bytes_per_value == 1) return *from++;
    const uint16_t value = load_be16(from);
    from += 2;
    return static_cast<uint8_t>((value + 128) / 257);
  };
  for (int64_t i = 0; i < pnm.height * pnm.width; ++i, pixels += channels) {
    uint8_t rgb[3];
    rgb[0] = next_value();
    rgb[1] = pnm.channels == 3 ? next_value() : rgb[0];
    rgb[2] = pnm.channels == 3 ? next_value() : rgb[0];
    if (channels == 1) {
      pixels[0] = pnm.channels == 1 ? rgb[0] : gray_of(rgb);
    } else {
      std::memcpy(pixels, rgb, sizeof rgb);
    }
  }
}

}  // namespace tern
