// All of the texts, for tests that compile many kernels at once.
#pragma once

#include "backends/cuda/text/attention_tiles.cuh"
#include "backends/cuda/text/convolution.cuh"
#include "backends/cuda/text/operand.cuh"
#include "backends/cuda/text/pool.cuh"
#include "backends/cuda/text/product.cuh"
#include "backends/cuda/text/random.cuh"
#include "backends/cuda/text/region.cuh"
#include "backends/cuda/text/rows.cuh"
#include "backends/cuda/text/update.cuh"
#include "backends/cuda/text/winograd.cuh"
