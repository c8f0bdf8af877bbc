#include "core/base/pack.h"

namespace epl {

EPL_PACK(images) {
  const std::string instead = "decode the images in Python and numpy.savez(\"data.npz\", x=..., target=...)";
  return {.doc = "images in JPEG and PNG",
          .packages = "libjpeg62-turbo-dev and libpng-dev",
          .codecs = {{.name = "jpeg", .unpacks = "an image in JPEG", .instead = instead},
                     {.name = "png", .unpacks = "an image in PNG", .instead = instead}}};
}

}  // namespace epl
