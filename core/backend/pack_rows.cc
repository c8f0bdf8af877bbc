#include "core/backend/pack_rows.h"

#include "core/base/text.h"

namespace epl {

std::vector<KernelText> pack_texts(const OpenedPack& opened, const void* kernel) {
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

KernelRow pack_row(const epl_pack_kernel& kernel, const std::shared_ptr<OpenedPack>& opened) {
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
  row.texts = [opened](const void* state) { return pack_texts(*opened, state); };
  return row;
}

}  // namespace epl
