// A folder of images, with a folder for each class in it.
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/shown.h"
#include "core/data/image.h"
#include "core/data/reader.h"
#include "core/formats/codecs.h"

namespace epl {
namespace {

constexpr int64_t max_pixels = int64_t{1} << 28;

std::string small_letters(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

struct Listing {
  std::vector<std::string> folders, files;
};

// What a folder holds, in the order of the names; what begins with a dot is left out.
Result<Listing> list(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (!folder) return system_error("cannot open the folder", path, errno);
  Listing out;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    const std::string name = entry->d_name;
    struct stat info{};
    if (::stat((path + "/" + name).c_str(), &info) != 0)
      return system_error("cannot look at", path + "/" + name, errno);
    if (S_ISDIR(info.st_mode)) out.folders.push_back(name);
    if (S_ISREG(info.st_mode)) out.files.push_back(name);
  }
  std::ranges::sort(out.folders);
  std::ranges::sort(out.files);
  return out;
}

struct WantedImage {
  int64_t height = 0, width = 0, channels = 0;
  bool crop = false, channels_first = true;
  std::vector<float> mean, deviation;  // of each channel
};

class ImageReader : public Reader {
 public:
  ImageReader(const ReaderRequest& request)
      : root_(request.path), target_name_(request.target_name), codecs_(request.packs) {}

  Status open(const Attributes& options, const Stop& stop) {
    EPL_TRY(read_options(options));
    EPL_TRY(collect(options.text("classes"), stop));
    if (paths_.empty()) return Status(Code::invalid_argument, "the folder holds no .jpg, .jpeg or .png", root_);
    EPL_TRY(look_at_first());
    const Shape shape = wanted_.channels_first ? Shape{wanted_.channels, wanted_.height, wanted_.width}
                                               : Shape{wanted_.height, wanted_.width, wanted_.channels};
    fields_ = {{options.text("input"), {DType::f32, shape}}};
    if (!names_.empty()) fields_.push_back({target_name_, {DType::i64, {}}});
    return {};
  }

  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return static_cast<int64_t>(paths_.size()); }
  std::vector<ClassNames> classes() const override {
    if (names_.empty()) return {};
    return {{target_name_, "", names_}};
  }
  std::string options_alike() const override {
    Json out = {{"height", wanted_.height}, {"width", wanted_.width}, {"channels", wanted_.channels}};
    if (!names_.empty()) out["classes"] = names_;
    return print_json(out);
  }
  Status read(int64_t index, int field, void* target) const override {
    const auto& [path, label] = paths_[static_cast<size_t>(index)];
    if (field == 1) {
      std::memcpy(target, &label, sizeof label);
      return {};
    }
    Status status = read_image(root_ + "/" + path, static_cast<float*>(target));
    return status.ok() ? status : status.at(root_ + "/" + path);
  }

 private:
  Status read_options(const Attributes& options) {
    wanted_.height = options.integer("height");
    wanted_.width = options.integer("width");
    wanted_.channels = options.integer("channels");
    if (wanted_.channels != 1 && wanted_.channels != 3)
      return invalid("option channels of reader images is ", wanted_.channels,
                     "; it is 1 for grey or 3 for red, green and blue");
    if (wanted_.height < 0 || wanted_.width < 0 || (wanted_.height == 0) != (wanted_.width == 0) ||
        wanted_.height > 65535 || wanted_.width > 65535) {
      return invalid("options height and width of reader images are ", wanted_.height, " and ", wanted_.width,
                     "; give both, or none where all images are of one size");
    }
    const std::string &fit = options.text("fit"), &layout = options.text("layout");
    if (fit != "stretch" && fit != "crop")
      return invalid("option fit of reader images is ", shown(fit), "; there are stretch and crop");
    if (layout != "nchw" && layout != "nhwc")
      return invalid("option layout of reader images is ", shown(layout), "; there are nchw and nhwc");
    wanted_.crop = fit == "crop";
    wanted_.channels_first = layout == "nchw";
    EPL_TRY(read_list("mean", std::get<Doubles>(*options.find("mean")), 0, wanted_.mean));
    return read_list("std", std::get<Doubles>(*options.find("std")), 1, wanted_.deviation);
  }

  Status read_list(const char* name, const Doubles& given, double otherwise, std::vector<float>& out) const {
    const auto channels = static_cast<size_t>(wanted_.channels);
    if (!given.empty() && given.size() != 1 && given.size() != channels)
      return invalid("option ", name, " of reader images has ", given.size(), " numbers; one, or one for each of ",
                     channels, " channels is expected");
    for (size_t c = 0; c < channels; ++c) {
      const double value = given.empty() ? otherwise : given[given.size() == 1 ? 0 : c];
      if (!std::isfinite(value) || (otherwise == 1 && value <= 0))
        return invalid("option ", name, " of reader images has ", value);
      out.push_back(static_cast<float>(value));
    }
    return {};
  }

  Status add_files(const std::string& folder, const std::vector<std::string>& files, int64_t label) {
    for (const std::string& file : files) {
      const std::string small = small_letters(file);
      const std::string path = folder.empty() ? file : folder + "/" + file;
      for (const char* other : {".gif", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".avif", ".jp2"}) {
        if (small.ends_with(other))
          return Status(
              Code::unsupported,
              cat(root_, "/", path, ": JPEG and PNG are read; convert the image to one of them, or take it away"),
              root_);
      }
      if (small.ends_with(".jpg") || small.ends_with(".jpeg") || small.ends_with(".png"))
        paths_.emplace_back(path, label);
    }
    return {};
  }

  // The images of a class, also in folders below its own.
  Status add_class(const std::string& folder, int64_t label, int depth, const Stop& stop) {
    EPL_TRY(stop.check());
    if (depth > 16) return Status(Code::invalid_argument, cat(root_, "/", folder, " lies too deep"), root_);
    EPL_ASSIGN(const Listing inside, list(root_ + "/" + folder));
    EPL_TRY(add_files(folder, inside.files, label));
    for (const std::string& below : inside.folders) EPL_TRY(add_class(folder + "/" + below, label, depth + 1, stop));
    return {};
  }

  Status collect(const std::string& classes, const Stop& stop) {
    EPL_ASSIGN(const Listing top, list(root_));
    EPL_TRY(add_files("", top.files, -1));
    if (!paths_.empty() && !top.folders.empty()) {
      return Status(Code::invalid_argument,
                    cat("the folder holds images (", paths_[0].first, ") beside folders (", top.folders[0],
                        "); images lie in a folder for each class, or there are no folders"),
                    root_);
    }
    names_ = top.folders;
    if (!classes.empty()) {
      names_.clear();
      const auto json = parse_json(classes);
      if (!json.ok() || !json->is_array())
        return invalid("option classes of reader images is ", shown_plain(classes, 80),
                       "; a list of the classes' folders is expected");
      for (const Json& name : *json) {
        if (!name.is_string())
          return invalid("option classes of reader images holds ", excerpt(print_json(name), 40),
                         ", which is not text");
        names_.push_back(name.text());
      }
    }
    for (const std::string& folder : top.folders) {
      const auto found = std::ranges::find(names_, folder);
      if (found == names_.end())
        return Status(Code::not_found, cat("folder ", shown(folder), " is none of the classes that were given"), root_);
      EPL_TRY(add_class(folder, found - names_.begin(), 0, stop));
    }
    return {};
  }

  Status look_at_first() {
    std::vector<std::byte> bytes;
    int64_t dims[3] = {};
    const std::string path = root_ + "/" + paths_[0].first;
    Status status = measure(path, bytes, dims).second;
    if (!status.ok()) return status.at(path);
    if (wanted_.height == 0) {
      wanted_.height = dims[0];
      wanted_.width = dims[1];
    } else {
      sized_ = true;
    }
    return {};
  }

  // The codec that the file asks for, with its bytes and its size.
  std::pair<std::string_view, Status> measure(const std::string& path, std::vector<std::byte>& bytes,
                                              int64_t (&dims)[3]) const {
    const auto read = [&]() -> Result<std::vector<std::byte>> {
      EPL_ASSIGN(const std::shared_ptr<const FileReader> file, FileReader::open(path));
      return file->read_all();
    };
    auto read_bytes = read();
    if (!read_bytes.ok()) return {"", read_bytes.status()};
    bytes = std::move(*read_bytes);
    const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 8));
    const std::string_view codec = head.starts_with("\xff\xd8\xff") ? "jpeg" : head == "\x89PNG\r\n\x1a\n" ? "png" : "";
    if (codec.empty())
      return {"", Status(Code::invalid_argument, cat(shown_path(path), " is neither a JPEG nor a PNG"))};
    Status status = codecs_.measure(codec, bytes, dims);
    if (!status.ok()) return {codec, status.code() == Code::invalid_argument ? status.with_context(path) : status};
    if (dims[0] < 1 || dims[1] < 1 || dims[0] > max_pixels / dims[1] || (dims[2] != 1 && dims[2] != 3))
      return {codec, Status(Code::unsupported,
                            cat(shown_path(path), " has ", dims[1], " x ", dims[0], " pixels, which is too much"))};
    return {codec, {}};
  }

  Status read_image(const std::string& path, float* target) const {
    std::vector<std::byte> bytes;
    int64_t dims[3] = {};
    const auto [codec, status] = measure(path, bytes, dims);
    EPL_TRY(status);
    Image image{dims[0], dims[1], dims[2], std::vector<uint8_t>(static_cast<size_t>(dims[0] * dims[1] * dims[2]))};
    Status unpacked = codecs_.unpack(codec, bytes, std::as_writable_bytes(std::span(image.pixels)));
    if (!unpacked.ok()) return unpacked.with_context(path);
    if (!sized_ && (image.height != wanted_.height || image.width != wanted_.width)) {
      return Status(Code::invalid_argument,
                    cat(shown_path(path), " has ", image.width, " x ", image.height, " pixels, ", paths_[0].first,
                        " has ", wanted_.width, " x ", wanted_.height,
                        "; say a size for all: {\"width\": ", wanted_.width, ", \"height\": ", wanted_.height, "}"));
    }
    write_numbers(fitted(with_channels(std::move(image), wanted_.channels)), target);
    return {};
  }

  // In the size that is wanted; `crop` keeps the shape of things and cuts off what is too much on both sides.
  Image fitted(Image image) const {
    if (image.height == wanted_.height && image.width == wanted_.width) return image;
    if (wanted_.crop) {
      const double scale = std::max(static_cast<double>(wanted_.height) / static_cast<double>(image.height),
                                    static_cast<double>(wanted_.width) / static_cast<double>(image.width));
      const int64_t height =
          std::clamp<int64_t>(std::llround(static_cast<double>(wanted_.height) / scale), 1, image.height);
      const int64_t width =
          std::clamp<int64_t>(std::llround(static_cast<double>(wanted_.width) / scale), 1, image.width);
      image = crop(image, (image.height - height) / 2, (image.width - width) / 2, height, width);
    }
    return resize(image, wanted_.height, wanted_.width);
  }

  void write_numbers(const Image& image, float* target) const {
    const int64_t pixels = image.height * image.width, channels = image.channels;
    for (int64_t i = 0; i < pixels; ++i) {
      for (int64_t c = 0; c < channels; ++c) {
        const float value = static_cast<float>(image.pixels[static_cast<size_t>(i * channels + c)]) / 255.0f;
        const auto channel = static_cast<size_t>(c);
        target[wanted_.channels_first ? c * pixels + i : i * channels + c] =
            (value - wanted_.mean[channel]) / wanted_.deviation[channel];
      }
    }
  }

  const std::string root_, target_name_;
  mutable Codecs codecs_;
  WantedImage wanted_;
  bool sized_ = false;  // by the options, and not by the first image
  std::vector<std::string> names_;
  std::vector<std::pair<std::string, int64_t>> paths_;  // with the class
  std::vector<std::pair<std::string, TensorType>> fields_;
};

Result<std::unique_ptr<Reader>> open_images(const ReaderRequest& request) {
  auto reader = std::make_unique<ImageReader>(request);
  EPL_TRY(reader->open(request.options, request.stop));
  return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace

EPL_READER(images) {
  return {
      .doc =
          "JPEG and PNG images in a folder for each class: the field named by `input`, f32 from 0 to 1, and `target`, "
          "the number of the folder in the order of the "
          "names. Where there are no folders there is no target. It needs the pack `images` (docs/packs.md).",
      .options =
          {{.name = "height", .value = int64_t{0}, .doc = "of a sample; 0: all images are of one size"},
           {.name = "width", .value = int64_t{0}, .doc = "likewise"},
           {.name = "fit",
            .value = std::string("stretch"),
            .doc = "how an image gets that size: `stretch`, or `crop` to keep its shape and cut off both sides alike"},
           {.name = "channels", .value = int64_t{3}, .doc = "3: red, green, blue; 1: grey"},
           {.name = "mean", .value = Doubles{}, .doc = "subtracted from the numbers, one or one for each channel"},
           {.name = "std", .value = Doubles{}, .doc = "then they are divided by it"},
           {.name = "layout",
            .value = std::string("nchw"),
            .doc = "`nchw`: channels, rows, columns; `nhwc`: rows, columns, channels"},
           {.name = "input", .value = std::string("x"), .doc = "the field's name"},
           {.name = "classes",
            .value = std::string(),
            .doc = "the names of the folders in the order of their numbers",
            .json = true}},
      .folder = true,
      .open = open_images};
}

}  // namespace epl
