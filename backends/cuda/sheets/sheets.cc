// Each number has its source beside it. What a data sheet names is what the chip can do at most: kernels take longer.
//
// Memory is what the driver gives to processes, which is less than the data sheet says. Rates count a multiplication
// and an addition as two, of dense matrices; float32 is without TF32. Links are of one direction. Launches and messages
// take what is usual: no data sheet has them.
#include "backends/cuda/sheets/sheets.h"

#include <vector>

namespace epl::cuda {
namespace {

constexpr double launch_seconds = 4e-6, nvlink_seconds = 3e-6, network_seconds = 10e-6, pcie_seconds = 10e-6;
// From pinned memory of the host, one direction. Of PCIe 5.0 x16, whose data sheets say 64 GB/s, an H200 had 54
// (bench/RESULTS.md); of PCIe 4.0 x16 with 32 GB/s the same share.
constexpr double pcie_5 = 54e9, pcie_4 = 27e9;
constexpr double gib = 1 << 30;

struct Rates {
  double f32, f64;  // without tensor cores, which no kernel uses for these types
  double half;      // of f16 and bf16, by tensor cores with sums in float32
};

std::vector<Machine::Rate> rates_of(const Rates& rates) {
  return {{DType::f32, WorkKind::product, rates.f32},     {DType::f64, WorkKind::product, rates.f64},
          {DType::f16, WorkKind::product, rates.half},    {DType::bf16, WorkKind::product, rates.half},
          {DType::f32, WorkKind::elementwise, rates.f32},  // which all types of 16 bits are computed in
          {DType::f64, WorkKind::elementwise, rates.f64}};
}

// NVLink joins the eight GPUs of a board, and a network the boards.
std::vector<Machine::Link> board_of_eight(double nvlink, double network) {
  return {{.ranks = 8, .bandwidth = nvlink, .seconds = nvlink_seconds},
          {.ranks = 0, .bandwidth = network, .seconds = network_seconds}};
}

struct Row {
  const char* name;
  const char* product;
  int capability, processors;
  double memory_bytes;
  Rates rates;
  double bandwidth, host_bandwidth;
  std::vector<Machine::Link> links;
};

DeviceSheet sheet_of(const Row& row) {
  return {.name = row.name,
          .product = row.product,
          .capability = row.capability,
          .processors = row.processors,
          .memory_bytes = static_cast<int64_t>(row.memory_bytes),
          .machine = {.name = row.product,
                      .rates = rates_of(row.rates),
                      .memories = {{MemoryKind::device, row.bandwidth}, {MemoryKind::host, row.host_bandwidth}},
                      .links = row.links,
                      .launch_seconds = launch_seconds,
                      .basis = Machine::Basis::sheet}};
}

std::vector<Row> rows() {
  return {
      // "NVIDIA A100 Tensor Core GPU", data sheet of June 2021, the 80GB SXM: rates, 2,039 GB/s, NVLink of 600 GB/s in
      // both directions. Processors: "NVIDIA A100 Tensor Core GPU Architecture", 2020. Memory: 79.25 GiB in PyTorch's
      // messages (github.com/HiDream-ai/VAREdit/issues/6). Network: "NVIDIA DGX A100", data sheet, 200 Gb/s a GPU.
      {"a100",
       "NVIDIA A100-SXM4-80GB",
       80,
       108,
       79.25 * gib,
       {19.5e12, 9.7e12, 312e12},
       2.039e12,
       pcie_4,
       board_of_eight(300e9, 25e9)},
      // "NVIDIA H100 Tensor Core GPU", data sheet of 2023, the SXM: rates (half of what it says with sparsity), 3.35
      // TB/s, NVLink of 900 GB/s. Processors: "NVIDIA H100 Tensor Core GPU Architecture", 2022. Memory: 79.11 GiB in
      // PyTorch's messages (github.com/vllm-project/vllm/issues/27508). Network: "NVIDIA DGX H100", 400 Gb/s a GPU.
      {"h100",
       "NVIDIA H100 80GB HBM3",
       90,
       132,
       79.11 * gib,
       {67e12, 34e12, 989e12},
       3.35e12,
       pcie_5,
       board_of_eight(450e9, 50e9)},
      // "NVIDIA H200 Tensor Core GPU", data sheet of 2024, the SXM: rates, 4.8 TB/s, NVLink of 900 GB/s. Processors as
      // of the H100, whose chip it is. Memory: cuDeviceTotalMem with driver 580.159. Network: "NVIDIA DGX H200".
      {"h200",
       "NVIDIA H200",
       90,
       132,
       150'109'880'320,
       {67e12, 34e12, 989e12},
       4.8e12,
       pcie_5,
       board_of_eight(450e9, 50e9)},
      // "NVIDIA DGX B200", data sheet of 2024, an eighth: 1,440 GB and 64 TB/s of memory, NVLink of 14.4 TB/s; 400 Gb/s
      // of network. Rates: "NVIDIA Blackwell" data sheet, HGX B200, an eighth of 36 PFLOPS of bf16 with sparsity, 600
      // TFLOPS of float32, 296 of float64. Processors: hmc-tech.com/gpus/nvidia-b200-vs-nvidia-l4.
      {"b200", "NVIDIA B200", 100, 148, 180e9, {75e12, 37e12, 2250e12}, 8e12, pcie_5, board_of_eight(900e9, 50e9)},
      // "NVIDIA L4 Tensor Core GPU", data sheet of 2023: 30.3 TFLOPS, 121 of bf16 (half of what it says with sparsity),
      // 300 GB/s, PCIe 4.0 x16. Processors (7,424 cores, 128 in each) and float64 at a 64th of float32: "NVIDIA Ada GPU
      // Architecture", 2022. Memory: 22.03 GiB in PyTorch's messages (github.com/ArcInstitute/evo2/issues/190).
      {"l4",
       "NVIDIA L4",
       89,
       58,
       22.03 * gib,
       {30.3e12, 0.47e12, 121e12},
       300e9,
       pcie_4,
       {{.ranks = 0, .bandwidth = pcie_4, .seconds = pcie_seconds}}},
      // "NVIDIA Ada GPU Architecture", 2022, appendix A: 82.6 TFLOPS, 165.2 of bf16 with sums in float32, 1,008 GB/s,
      // 128 processors, float64 at a 64th of float32, PCIe 4.0 x16 without NVLink. Memory: 23.52 GiB, the least in
      // PyTorch's messages (github.com/Soul-AILab/SoulX-FlashTalk/issues/5).
      {"rtx4090",
       "NVIDIA GeForce RTX 4090",
       89,
       128,
       23.52 * gib,
       {82.6e12, 1.29e12, 165.2e12},
       1.008e12,
       pcie_4,
       {{.ranks = 0, .bandwidth = pcie_4, .seconds = pcie_seconds}}},
  };
}

}  // namespace

std::span<const DeviceSheet> device_sheets() {
  static const std::vector<DeviceSheet> sheets = [] {
    std::vector<DeviceSheet> made;
    for (const Row& row : rows()) made.push_back(sheet_of(row));
    return made;
  }();
  return sheets;
}

}  // namespace epl::cuda
