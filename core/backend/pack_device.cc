#include "core/backend/pack_device.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

#include "core/backend/pack_foreign.h"
#include "core/backend/pack_group.h"
#include "core/backend/pack_memory.h"
#include "core/backend/pack_stream.h"
#include "core/backend/staged_communicator.h"
#include "core/base/pack.h"

namespace epl {
namespace {

constexpr int64_t alignment = 256;  // as devices allocate

// `kernel`: one that was prepared, or null.
std::vector<KernelText> texts_of(const OpenedPack& opened, const void* kernel) {
  std::vector<KernelText> texts;
  const PackReason reason;
  for (int32_t i = 0;; ++i) {
    epl_pack_text one = {};
    one.struct_size = sizeof one;
    if (opened.verbs->text(opened.handle, kernel, i, &one, &reason.to) != 0) return texts;
    texts.push_back({.entry = one.entry,
                     .source = one.source,
                     .options = one.options,
                     .threads = one.threads,
                     .shared_bytes = one.shared_bytes});
  }
}

KernelRow row_of(const epl_pack_kernel& kernel, const std::shared_ptr<OpenedPack>& opened) {
  KernelRow row = named_row(kernel);
  row.prepare = [&kernel, opened](const KernelQuery& q) { return prepare_in_pack(kernel, q, opened->handle, opened); };
  row.launch = [&kernel](const KernelCall& call) {
    auto& stream = static_cast<PackStream&>(call.stream);
    const PackReason reason;
    epl_pack_call pack_call = pack_call_of(call, reason);
    pack_call.stream = stream.handle();
    const int32_t result = kernel.launch(call.state, &pack_call);
    if (result == 0) return;
    stream.fail(pack_status(*stream.opened(), result, reason, cat("kernel ", kernel.name)).at(call.query.node));
  };
  row.texts = [opened](const void* state) { return texts_of(*opened, state); };
  return row;
}

class PackDevice final : public Device {
 public:
  PackDevice(const Host& host, CircleMeans means, std::shared_ptr<const KernelTable> kernels, std::string description,
             std::vector<std::string> notes, const Machine& machine)
      : host_(host),
        means_(std::move(means)),
        opened_(means_.opened),
        kernels_(std::move(kernels)),
        description_(std::move(description)),
        notes_(std::move(notes)),
        machine_(machine) {}
  const std::shared_ptr<OpenedPack>& opened() const { return opened_; }
  const std::shared_ptr<const KernelTable>& shared_kernels() const { return kernels_; }
  std::string description() const override { return description_; }
  const KernelTable& kernels() const override { return *kernels_; }
  bool shares_host_memory() const override { return false; }
  bool records() const override { return opened_->records(); }
  const std::vector<std::string>& notes() const override { return notes_; }
  const Machine& machine() const override { return machine_; }

  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override {
    if (bytes < 0) return invalid("a buffer of ", bytes, " bytes");
    const int64_t held = bytes == 0                      ? alignment
                         : bytes > INT64_MAX - alignment ? bytes
                                                         : (bytes + alignment - 1) / alignment * alignment;
    const PackReason reason;
    void* data = nullptr;
    const int32_t result = opened_->verbs->allocate(opened_->handle, static_cast<uint64_t>(held), &data, &reason.to);
    if (result == EPL_PACK_NO_MEMORY) {
      return error(Code::out_of_memory, "device ", opened_->device, " gave no ", grouped(bytes),
                   " bytes; this process holds ", grouped(opened_->in_use.load(std::memory_order_relaxed)),
                   " bytes of it; ", reason.text);
    }
    if (result != 0) return pack_status(*opened_, result, reason, "memory");
    opened_->in_use.fetch_add(held, std::memory_order_relaxed);
    return std::unique_ptr<Buffer>(new PackBuffer(opened_, data, bytes, held));
  }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override {
    if (threads < 1) return invalid("a stream on ", threads, " threads; it needs at least one");
    const PackReason reason;
    void* handle = nullptr;
    const int32_t result = opened_->verbs->create_stream(opened_->handle, &handle, &reason.to);
    if (result != 0) return pack_status(*opened_, result, reason, "a stream");
    return std::unique_ptr<Stream>(new PackStream(opened_, handle));
  }
  std::unique_ptr<Event> create_event() override {
    auto made = PackEvent::make(opened_);
    if (made.ok()) return std::move(*made);
    return std::make_unique<PackEvent>(opened_, nullptr, made.status());
  }
  std::shared_ptr<ForeignDevice> foreign(std::string_view name) override { return pack_foreign(opened_, name); }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override {
    return create_pack_group({opened_}, {}, name, ranks);
  }
  Result<std::unique_ptr<Communicator>> join(const Joining& joining, Rendezvous& rendezvous) override {
    return join_through_host(host_, joining, rendezvous, means_);
  }

 private:
  const Host host_;
  const CircleMeans means_;
  const std::shared_ptr<OpenedPack> opened_;
  const std::shared_ptr<const KernelTable> kernels_;
  const std::string description_;
  const std::vector<std::string> notes_;
  const Machine machine_;
};

// Several of a machine. Those of one kind have one table of kernels, so that their ranks may run one program. What is
// asked of no rank is the first one's.
class SeveralDevices final : public Device {
 public:
  using One = std::shared_ptr<PackDevice>;

  // `by_place`: of the ranks, counted around; one may stand there several times.
  SeveralDevices(std::vector<One> devices, std::vector<One> by_place, std::vector<std::string> notes,
                 const PeerOptions& between)
      : devices_(std::move(devices)), by_place_(std::move(by_place)), notes_(std::move(notes)), between_(between) {}
  Device& of_rank(int rank) override { return *by_place_[static_cast<size_t>(rank) % by_place_.size()]; }
  std::string description() const override {
    std::string all = cat(devices_.size(), " devices");
    for (const One& one : devices_)
      all += cat(all.ends_with("devices") ? ": " : "; ", one->opened()->device, ": ", one->description());
    return all;
  }
  const KernelTable& kernels() const override { return first().kernels(); }
  bool shares_host_memory() const override { return false; }
  bool records() const override { return first().records(); }
  const std::vector<std::string>& notes() const override { return notes_; }
  const Machine& machine() const override { return first().machine(); }
  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override { return first().allocate(bytes); }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override { return first().create_stream(threads); }
  std::unique_ptr<Event> create_event() override { return first().create_event(); }
  std::shared_ptr<ForeignDevice> foreign(std::string_view name) override {
    for (const One& one : devices_)
      if (auto found = one->foreign(name)) return found;
    return nullptr;
  }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override {
    std::vector<std::shared_ptr<OpenedPack>> opened;
    for (const One& one : devices_) opened.push_back(one->opened());
    return create_pack_group(std::move(opened), between_, name, ranks);
  }
  Result<std::unique_ptr<Communicator>> join(const Joining& joining, Rendezvous& rendezvous) override {
    return of_rank(joining.rank).join(joining, rendezvous);
  }

 private:
  PackDevice& first() const { return *by_place_.front(); }

  const std::vector<One> devices_, by_place_;
  const std::vector<std::string> notes_;
  const PeerOptions between_;
};

// Programs are made for it, as for the one that its sheet is of.
class PlannedDevice final : public Device {
 public:
  PlannedDevice(std::shared_ptr<OpenedPack> opened, const epl_pack& pack, DeviceSheet sheet, std::string note)
      : opened_(std::move(opened)), sheet_(std::move(sheet)), notes_{std::move(note)} {
    for (uint64_t i = 0; i < pack.kernel_count; ++i) kernels_.add(row_of(*pack.kernels[i], opened_));
  }
  std::string description() const override {
    return cat("the sheet of ", sheet_.product, ", ", grouped(sheet_.memory_bytes), " bytes, capability ",
               sheet_.capability / 10, ".", sheet_.capability % 10);
  }
  const KernelTable& kernels() const override { return kernels_; }
  bool shares_host_memory() const override { return false; }
  bool records() const override { return opened_->records(); }
  const std::vector<std::string>& notes() const override { return notes_; }
  const Machine& machine() const override { return sheet_.machine; }
  int64_t memory_bytes() const override { return sheet_.memory_bytes; }
  std::vector<KernelText> texts() const override { return texts_of(*opened_, nullptr); }
  Result<std::unique_ptr<Buffer>> allocate(int64_t) override { return refusal(); }
  Result<std::unique_ptr<Stream>> create_stream(int) override { return refusal(); }
  std::unique_ptr<Event> create_event() override { return std::make_unique<Event>(); }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string&, int) override {
    return refusal();
  }
  Result<std::unique_ptr<Communicator>> join(const Joining&, Rendezvous&) override { return refusal(); }

 private:
  Status refusal() const {
    return unsupported("device ", opened_->device,
                       " is a sheet: plans are made for it, and nothing runs on it; to run ",
                       "name a device of this machine, which epl devices lists");
  }

  const std::shared_ptr<OpenedPack> opened_;
  const DeviceSheet sheet_;
  KernelTable kernels_;
  const std::vector<std::string> notes_;
};

std::string described(const epl_pack_device_facts& facts) {
  return cat(facts.name, ", ", grouped(static_cast<int64_t>(facts.memory_bytes)), " bytes, capability ",
             facts.capability / 10, ".", facts.capability % 10);
}

epl_pack_home home_of(const Host& host) {
  return {.struct_size = sizeof(epl_pack_home), .libraries = host.packs.c_str(), .kernels = host.kernel_cache.c_str()};
}

// What the pack says of what it keeps. What costs time is a warning besides, once.
std::vector<std::string> notes_of(const OpenedPack& opened, std::string from, const Host& host) {
  std::vector<std::string> notes{std::move(from)};
  const PackReason text;
  if (opened.verbs->note(opened.handle, &text.to) != 0)
    log(host, LogLevel::warning, "device ", opened.device, ": ", text.text);
  if (text.text[0] != '\0') notes.emplace_back(text.text);
  return notes;
}

struct Opened {
  const epl_pack* pack;
  std::string from;  // a sentence
};
Result<Opened> open_pack_of(const std::string& name, const Host& host) {
  auto pack = open_pack(host.packs, name);
  if (!pack.ok()) {
    return Status(pack.status().code(), cat("device ", name, " needs the pack ", name, ": ", pack.status().message()));
  }
  if ((*pack)->verbs == nullptr) return invalid(shown_path(pack_path(host.packs, name)), " gives no device");
  return Opened{*pack, cat("pack ", name, ": ", pack_version(**pack), ", from ", pack_path(host.packs, name))};
}

Status cannot_open(const std::string& name, int32_t result, const PackReason& reason) {
  return error(result == EPL_PACK_NO_MEMORY ? Code::out_of_memory : Code::unsupported, "device ", name,
               " cannot be opened: ", reason.text);
}

// How each pair is joined, where that is known.
void add_joined(const epl_pack_device& verbs, const epl_pack_home& home, PackDevices& found) {
  const int count = static_cast<int>(found.devices.size());
  for (int one = 0; one < count; ++one) {
    for (int other = one + 1; other < count; ++other) {
      const PackReason joined, reason;
      if (verbs.between(&home, one, other, &joined.to, &reason.to) == 0)
        found.joined.push_back({one, other, joined.text});
    }
  }
}

// Opens devices one after another.
class Opening {
 public:
  Opening(const std::string& name, const Host& host, const Opened& opened, std::span<const DeviceSheet> sheets,
          const DeviceOptions& options)
      : name_(name),
        host_(host),
        home_(home_of(host)),
        opened_(opened),
        verbs_(*opened.pack->verbs),
        sheets_(sheets),
        options_(options) {}

  // Which are meant, by their places.
  Result<std::vector<int>> ordinals() const {
    std::vector<int> all = options_.numbers;
    if (all.empty()) {
      const PackReason reason;
      const int32_t count = verbs_.count(&home_, &reason.to);
      if (count < 0) return cannot_open(name_, count, reason);
      // The first one says why there is none.
      for (int ordinal = 0; ordinal < std::max(count, 1); ++ordinal) all.push_back(ordinal);
    }
    if (std::ssize(all) > options_.ranks) all.resize(static_cast<size_t>(std::max(options_.ranks, 1)));
    return all;
  }

  Result<std::shared_ptr<PackDevice>> open(int ordinal) {
    const std::string full = cat(name_, ":", ordinal);
    const PackReason reason;
    Facts facts = {};
    facts.struct_size = sizeof facts;
    void* handle = nullptr;
    int32_t result = verbs_.describe(&home_, ordinal, &facts, &reason.to);
    if (result == 0) result = verbs_.open(&home_, ordinal, &handle, &reason.to);
    if (result != 0) return cannot_open(full, result, reason);
    auto opened = std::make_shared<OpenedPack>(full, &verbs_, handle);
    std::vector<std::string> notes = notes_of(*opened, opened_.from, host_);
    EPL_ASSIGN(std::shared_ptr<const KernelTable> kernels, kernels_of(facts, opened));
    const auto sheet = std::ranges::find(sheets_, std::string_view(facts.name), &DeviceSheet::product);
    const Machine& known = sheet == sheets_.end() ? processor_core() : sheet->machine;
    CircleMeans means{.opened = std::move(opened), .any_order = options_.any_order, .room_bytes = options_.room_bytes};
    auto device = std::make_shared<PackDevice>(host_, std::move(means), std::move(kernels), described(facts),
                                               std::move(notes), options_.machine ? *options_.machine : known);
    made_.push_back({facts, device});
    return device;
  }

  // Whether the pack's library does what it can, a sentence.
  std::string collecting(bool& collects) const {
    const PackReason library, reason;
    collects = verbs_.collects(&home_, &library.to, &reason.to) == 0;
    if (collects) return cat("what ranks gather, and sums in any order, go by ", library.text);
    return cat("no library of collectives is used, copies between the devices serve instead: ", reason.text);
  }

  // How copies go between the devices that are open; a sentence for each pair that has no way of its own.
  std::vector<std::string> reach_each_other() const {
    std::vector<std::string> notes;
    for (size_t one = 0; one < made_.size(); ++one) {
      for (size_t other = one + 1; other < made_.size(); ++other) {
        const OpenedPack &a = *made_[one].device->opened(), &b = *made_[other].device->opened();
        const PackReason reason;
        if (verbs_.reach(a.handle, b.handle, &reason.to) == 0) continue;
        notes.push_back(
            cat("copies between ", a.device, " and ", b.device, " go through the memory of the host: ", reason.text));
      }
    }
    return notes;
  }

 private:
  using Facts = epl_pack_device_facts;
  struct Made {
    Facts facts;
    std::shared_ptr<PackDevice> device;
  };
  // Those of a device of this kind that is open, which then prepares them for this one too.
  Result<std::shared_ptr<const KernelTable>> kernels_of(const Facts& facts,
                                                        const std::shared_ptr<OpenedPack>& own) const {
    const auto alike = std::ranges::find_if(made_, [&](const Made& one) {
      return std::string_view(one.facts.name) == facts.name && one.facts.capability == facts.capability &&
             one.facts.processors == facts.processors;
    });
    if (alike != made_.end()) {
      const PackReason reason;
      const int32_t result = verbs_.add_alike(alike->device->opened()->handle, own->handle, &reason.to);
      if (result != 0) return cannot_open(own->device, result, reason);
      return alike->device->shared_kernels();
    }
    auto kernels = std::make_shared<KernelTable>();
    for (uint64_t i = 0; i < opened_.pack->kernel_count; ++i) kernels->add(row_of(*opened_.pack->kernels[i], own));
    return std::shared_ptr<const KernelTable>(std::move(kernels));
  }

  const std::string& name_;
  const Host& host_;
  const epl_pack_home home_;
  const Opened& opened_;
  const epl_pack_device& verbs_;
  const std::span<const DeviceSheet> sheets_;
  const DeviceOptions& options_;
  std::vector<Made> made_;
};

}  // namespace

Result<std::shared_ptr<Device>> open_pack_devices(const std::string& name, const Host& host,
                                                  const DeviceOptions& options, std::span<const DeviceSheet> sheets) {
  EPL_ASSIGN(const Opened opened, open_pack_of(name, host));
  Opening opening(name, host, opened, sheets, options);
  EPL_ASSIGN(const std::vector<int> ordinals, opening.ordinals());
  std::map<int, std::shared_ptr<PackDevice>> by_ordinal;
  std::vector<std::shared_ptr<PackDevice>> devices, by_place;
  for (const int ordinal : ordinals) {
    std::shared_ptr<PackDevice>& device = by_ordinal[ordinal];
    if (device == nullptr) {
      EPL_ASSIGN(device, opening.open(ordinal));
      devices.push_back(device);
    }
    by_place.push_back(device);
  }
  if (devices.size() == 1) return std::shared_ptr<Device>(devices.front());
  PeerOptions between{.room_bytes = options.room_bytes, .any_order = options.any_order};
  std::vector<std::string> notes = devices.front()->notes();
  notes.push_back(opening.collecting(between.collects));
  for (std::string& note : opening.reach_each_other()) notes.push_back(std::move(note));
  return std::shared_ptr<Device>(
      std::make_shared<SeveralDevices>(std::move(devices), std::move(by_place), std::move(notes), between));
}

Result<std::shared_ptr<Device>> plan_for_pack_device(const std::string& name, const Host& host,
                                                     const DeviceSheet& sheet) {
  EPL_ASSIGN(const Opened opened, open_pack_of(name, host));
  const std::string full = cat(name, ":", sheet.name);
  epl_pack_device_facts facts = {};
  facts.struct_size = sizeof facts;
  std::snprintf(facts.name, sizeof facts.name, "%s", sheet.product.c_str());
  facts.memory_bytes = static_cast<uint64_t>(sheet.memory_bytes);
  facts.capability = sheet.capability;
  facts.processors = sheet.processors;
  const PackReason reason;
  void* handle = nullptr;
  if (const int32_t result = opened.pack->verbs->plan(&facts, &handle, &reason.to); result != 0)
    return cannot_open(full, result, reason);
  return std::shared_ptr<Device>(
      std::make_shared<PlannedDevice>(std::make_shared<OpenedPack>(full, opened.pack->verbs, handle), *opened.pack,
                                      sheet, cat(opened.from, "; each rank has a device of its own here")));
}

PackDevices look_for_pack_devices(const std::string& name, const Host& host) {
  PackDevices found;
  const auto opened = open_pack_of(name, host);
  if (!opened.ok()) {
    found.missing = opened.status().message();
    return found;
  }
  const epl_pack_device& verbs = *opened->pack->verbs;
  const epl_pack_home home = home_of(host);
  const PackReason reason;
  for (int32_t i = 0;; ++i) {
    epl_pack_library library = {};
    library.struct_size = sizeof library;
    if (verbs.library(&home, i, &library, &reason.to) != 0) break;
    found.libraries.push_back(library);
  }
  const int32_t count = verbs.count(&home, &reason.to);
  if (count < 0) found.missing = reason.text;
  for (int32_t ordinal = 0; ordinal < count; ++ordinal) {
    epl_pack_device_facts facts = {};
    facts.struct_size = sizeof facts;
    if (verbs.describe(&home, ordinal, &facts, &reason.to) != 0) {
      found.missing = cat("device ", ordinal, " says nothing of itself: ", reason.text);
      break;
    }
    found.devices.push_back(facts);
  }
  add_joined(verbs, home, found);
  return found;
}

}  // namespace epl
