// One tile of queries against all keys. See attention.h.
#include "backends/cpu/kernels/attention_tile.simd.h"
#include "backends/cpu/kernels/reduce_rows.simd.h"

namespace epl::cpu::EPL_SIMD {

void attention_grad_task(const AttentionProblem&, const AttentionTensors&, const AttentionGradTask&, float* scratch);
void attention_corrections(const AttentionProblem&, const AttentionTensors&, int64_t batch, int64_t head, int64_t row,
                           float* to, float* scratch);

namespace {

constexpr float lowest = -3.402823466e+38f;

// The running state of a tile of queries.
struct Rows {
  float* largest;    // [rows]
  float* rescale;    // [rows]
  float* lane_sums;  // [rows, 16]
  float* result;     // [rows, padded values]
};

// Products become scores in place; rows' maxima are raised, and what that multiplies earlier sums by is noted.
void raise_largest(const TilePosition& position, ScoreMap& map, float* scores, const Rows& rows) {
  alignas(64) float before[attention_rows];
  for (int64_t r = 0; r < position.rows; ++r) {
    before[r] = rows.largest[r];
    const int64_t seen = position.seen(r), columns = position.columns(r);
    if (columns == 0) continue;  // nor do its neighbours see any key
    map.at(position.row + r, position.key);
    float* row = scores + r * attention_keys;
    V largest = set(rows.largest[r]);
    for (int64_t column = 0; column < columns; column += lanes) {
      V x = map.biased(map.capped(hn::Load(f32, row + column)), column, seen);
      if (column + lanes > seen) x = hn::IfThenElse(seen_mask(column, seen), x, set(-infinity));
      hn::Store(x, f32, row + column);
      largest = hn::Max(largest, x);
    }
    rows.largest[r] = hn::GetLane(hn::MaxOfLanes(f32, largest));
  }
  for (int64_t r = 0; r < attention_rows; r += lanes) {
    if (r >= position.rows) break;
    hn::Store(exp(hn::Sub(hn::Load(f32, before + r), hn::Load(f32, rows.largest + r))), f32, rows.rescale + r);
  }
}

// Scores become probabilities, short of the division by their sum.
void exponentiate(const TilePosition& position, float* scores, const Rows& rows) {
  for (int64_t r = 0; r < position.rows; ++r) {
    const int64_t columns = position.columns(r);
    if (columns == 0) continue;
    float* row = scores + r * attention_keys;
    float* sums = rows.lane_sums + r * reduce_lanes;
    const V largest = set(rows.largest[r]), rescale = set(rows.rescale[r]);
    Lanes l;
    for (int p = 0; p < parts; ++p) l.part[p] = hn::Mul(hn::Load(f32, sums + p * lanes), rescale);
    for (int64_t column = 0; column < columns; column += reduce_lanes) {
      for (int p = 0; p < parts; ++p) {
        const V e = exp(hn::Sub(hn::Load(f32, row + column + p * lanes), largest));
        hn::Store(e, f32, row + column + p * lanes);
        l.part[p] = hn::Add(l.part[p], e);
      }
    }
    for (int p = 0; p < parts; ++p) hn::Store(l.part[p], f32, sums + p * lanes);
  }
}

void rescale_result(const TilePosition& position, int64_t width, const Rows& rows) {
  for (int64_t r = 0; r < position.rows; ++r) {
    if (rows.rescale[r] == 1.0f) continue;
    const V rescale = set(rows.rescale[r]);
    float* row = rows.result + r * width;
    for (int64_t i = 0; i < width; i += lanes) hn::Store(hn::Mul(hn::Load(f32, row + i), rescale), f32, row + i);
  }
}

void finish_rows(int64_t count, int64_t values, int64_t width, const Rows& rows, float* y, float* lse) {
  for (int64_t r = 0; r < count; ++r) {
    Lanes l;
    for (int p = 0; p < parts; ++p) l.part[p] = hn::Load(f32, rows.lane_sums + r * reduce_lanes + p * lanes);
    const float sum = join_lanes<Sum>(l);
    const float inverse = 1.0f / sum;
    float* row = rows.result + r * width;
    for (int64_t i = 0; i < width; i += lanes) hn::Store(hn::Mul(hn::Load(f32, row + i), set(inverse)), f32, row + i);
    std::memcpy(y + r * values, row, static_cast<size_t>(values) * sizeof(float));
    if (lse) lse[r] = rows.largest[r] + hn::GetLane(log(set(sum)));
  }
}

void forward(const AttentionProblem& p, const AttentionTensors& t, int64_t batch, int64_t head, int64_t row,
             float* scratch) {
  const int64_t width = attention_padded(p.values), count = least(attention_rows, p.queries - row);
  const int64_t of_query = (batch * p.heads + head) * p.queries + row;
  const int64_t of_key = (batch * p.key_heads + head / p.repeat()) * p.keys;
  Rows rows;
  rows.largest = scratch;
  rows.rescale = rows.largest + attention_rows;
  rows.lane_sums = rows.rescale + attention_rows;
  rows.result = rows.lane_sums + attention_rows * reduce_lanes;
  float* scores = rows.result + attention_rows * width;
  float* padded_values = scores + attention_rows * attention_keys;
  float* packed_keys = padded_values + attention_keys * width;
  for (int64_t r = 0; r < attention_rows; ++r) rows.largest[r] = lowest;
  std::memset(rows.lane_sums, 0, static_cast<size_t>(attention_rows) * (reduce_lanes + width) * sizeof(float));

  ScoreMap map(p, t, batch, head);
  for (int64_t key = 0; key < p.keys; key += attention_keys) {
    const TilePosition position{row, count, key, least(attention_keys, p.keys - key), p.causal};
    if (position.empty()) break;
    pack_columns(t.k + (of_key + key) * p.depth, position.keys, p.depth, packed_keys);
    tile_scores(position, t.q + of_query * p.depth, p.depth, packed_keys, scores);
    raise_largest(position, map, scores, rows);
    exponentiate(position, scores, rows);
    rescale_result(position, width, rows);
    const TileView values = view_rows(t.v + (of_key + key) * p.values, position.keys, p.values, padded_values);
    tile_product<TileA::rows>(count, {0, scores, attention_keys, values.at, values.step, rows.result, width, true},
                              [&](int64_t r) HWY_ATTR { return TileRange{0, position.seen_by_granule(r), width}; });
  }
  finish_rows(count, p.values, width, rows, t.y + of_query * p.values, t.lse ? t.lse + of_query : nullptr);
}

struct Products {
  const float *a, *b;
  HWY_INLINE V operator()(int64_t i) const { return hn::Mul(hn::LoadU(f32, a + i), hn::LoadU(f32, b + i)); }
  HWY_INLINE V operator()(int64_t i, hn::Mask<F> mask) const {
    return hn::Mul(hn::MaskedLoad(mask, f32, a + i), hn::MaskedLoad(mask, f32, b + i));
  }
};
float dot(const float* a, const float* b, int64_t n) { return reduce_row<Sum>(n, Products{a, b}); }

}  // namespace

const AttentionLoops& attention_loops() {
  static constexpr AttentionLoops loops = {forward, attention_corrections, attention_grad_task, dot};
  return loops;
}

}  // namespace epl::cpu::EPL_SIMD
