epl_find_pack(images PACKAGES "Debian's libjpeg62-turbo-dev and libpng-dev" HEADERS jpeglib.h png.h LIBRARIES jpeg png)
