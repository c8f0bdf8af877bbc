// Values that lie in another memory than that in which kernels compute: what the far memory of a device holds, or a
// file.
#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

Result<OutputTypes> infer_same(const OpQuery& q) { return OutputTypes{q.in(0)}; }

}  // namespace

EPL_OP(fetch) {
  return {.doc = "x, which lies in another memory of the device, where its kernels compute.",
          .signature = "x -> y",
          .infer = infer_same,
          .no_gradient = "it is inserted after the gradients are known",
          .boundary = true};
}

EPL_OP(evict) {
  return {.doc = "x in another memory of the device, `memory`: \"host\" or \"file\". Only `fetch` reads it there.",
          .signature = "x -> y",
          .attributes = {{"memory", std::string("host"), true}},
          .infer = infer_same,
          .no_gradient = "it is inserted after the gradients are known",
          .boundary = true};
}

EPL_TRANSFER(fetch) {
  return {.doc = "a value from another memory of the device to where its kernels compute",
          .op = "fetch",
          .fetches = true,
          .run = [](const TransferCall& call) -> Status {
            call.stream.fetch(call.target, call.source, call.in.bytes);
            return {};
          }};
}

EPL_TRANSFER(evict) {
  return {.doc = "a value from where kernels compute to another memory of the device",
          .op = "evict",
          .evicts = true,
          .run = [](const TransferCall& call) -> Status {
            call.stream.evict(call.target, call.source, call.in.bytes);
            return {};
          }};
}

}  // namespace epl
