// Schur forms by the QR algorithm. Complex: explicit single shifts (Golub and Van Loan, Matrix
// Computations, 7.5). Real: Francis' implicit double shifts with the tests, shifts and order of LAPACK's
// lahqr (Ahues and Tisseur's deflation criterion), so that eigenvalues come in the order that the CPU gives
// them.
#include "ops/linalg_eigen.h"

namespace torch_tpu::ops::linalg {

using namespace hlo;

namespace {

Value number(Builder& builder, int64_t n) { return builder.splat(n, {DType::kS32, {}}); }

Value scaled_by(const Value& x, const Value& real_factor) { return x * as_dtype(real_factor, x.dtype()); }

// y[i] = x[i - 1], and zero at the start; y[i] = x[i + count], and zeros at the end.
Value before(const Value& x) {
  return pad(slice_dim(x, 0, 0, x.dim(0) - 1), x.builder->splat(0.0, {x.dtype(), {}}), Dims{1}, Dims{0});
}
Value after(const Value& x, int64_t count = 1) {
  const int64_t moved = std::min(count, x.dim(0));
  return pad(slice_dim(x, 0, moved, x.dim(0)), x.builder->splat(0.0, {x.dtype(), {}}), Dims{0}, Dims{moved});
}

// y[i] = h[i, i - 1], and zero at the start.
Value subdiagonal(const Value& h) {
  const int64_t n = h.dim(0);
  const Value zero = h.builder->splat(0.0, {h.dtype(), {}});
  return diagonal(pad(slice_dim(h, 1, 0, n - 1), zero, Dims{0, 1}, Dims{0, 0}));
}

// The eigenvalue of the trailing 2x2 block at `hi` that is closer to its last entry.
Value wilkinson_shift(const Value& h, const Value& hi) {
  const Value before = hi - 1.0;
  const Value a = element(h, before, before);
  const Value d = element(h, hi, hi);
  const Value bc = element(h, before, hi) * element(h, hi, before);
  const Value half = scaled_by(a - d, like(real(a), 0.5));
  const Value root = sqrt(half * half + bc);
  const Value plus = half + root;
  const Value minus = half - root;
  const Value larger = select(compare(Compare::kGe, abs(plus), abs(minus)), plus, minus);
  const Value zero = compare(Compare::kEq, abs(larger), 0.0);
  return d - select(zero, like(d, 0.0), bc / select(zero, like(d, 1.0), larger));
}

// One explicitly shifted QR step on rows lo .. hi: rotations from the left, then from the right.
Values qr_step(const Value& h, const Value& q, const Value& lo, const Value& hi, const Value& shift) {
  Builder& builder = *h.builder;
  const int64_t n = h.dim(0);
  const Value shifts = identity(builder, h.dtype(), n, n) * shift;
  const Value zero = like(lo, 0.0);
  const Value no_rotations = builder.splat(0.0, {h.dtype(), {n, 2, 2}});
  const auto below_hi = [](const Values& x) -> Values { return {compare(Compare::kLt, x[0], x[1])}; };
  const Values reduced =
      while_loop({lo, hi, h - shifts, no_rotations}, below_hi, [&](const Values& x) -> Values {
        const Value& k = x[0];
        const Value a = element(x[2], k, k);
        const Value b = element(x[2], k + 1.0, k);
        const Value length = sqrt(squared_modulus(a) + squared_modulus(b));
        const Value none = compare(Compare::kEq, length, 0.0);
        const Value inverse = 1.0 / select(none, like(length, 1.0), length);
        const Value c = select(none, like(a, 1.0), scaled_by(a, inverse));
        const Value s = select(none, like(a, 0.0), scaled_by(b, inverse));
        const auto row = [](const Value& left, const Value& right) {
          return concatenate({reshape(left, Dims{1, 1}), reshape(right, Dims{1, 1})}, 1);
        };
        const Value rotation = concatenate({row(conjugate(c), conjugate(s)), row(-s, c)}, 0);
        const Value rows = dot(rotation, dynamic_slice(x[2], {k, zero}, Dims{2, n}));
        return {k + 1.0, x[1], dynamic_update_slice(x[2], rows, {k, zero}),
                dynamic_update_slice(x[3], reshape(rotation, Dims{1, 2, 2}), {k, zero, zero})};
      });
  const Values product =
      while_loop({lo, hi, reduced[2], q, reduced[3]}, below_hi, [&](const Values& x) -> Values {
        const Value& k = x[0];
        const Value rotation = reshape(dynamic_slice(x[4], {k, zero, zero}, Dims{1, 2, 2}), Dims{2, 2});
        const Value inverse = conjugate(transposed(rotation));
        const auto turned = [&](const Value& matrix) {
          const Value columns = dot(dynamic_slice(matrix, {zero, k}, Dims{n, 2}), inverse);
          return dynamic_update_slice(matrix, columns, {zero, k});
        };
        return {k + 1.0, x[1], turned(x[2]), turned(x[3]), x[4]};
      });
  return {product[2] + shifts, product[3]};
}

Decomposed complex_schur(const Decomposed& start) {
  Builder& builder = *start.q.builder;
  const int64_t n = start.q.dim(0);
  const double eps = epsilon(start.q.dtype());
  const Value places = builder.iota({DType::kS32, {n}}, 0);
  const Values state{number(builder, n - 1), number(builder, 0), start.form, start.q};
  const Values result = while_loop(
      state,
      [&](const Values& x) -> Values {
        return {compare(Compare::kGt, x[0], 0.0) & compare(Compare::kLt, x[1], static_cast<double>(40 * n))};
      },
      [&](const Values& x) -> Values {
        const Value &hi = x[0], &turn = x[1], &h = x[2], &q = x[3];
        const Value sizes = abs(diagonal(h));
        // |h[i, i - 1]| against its neighbours on the diagonal, for i >= 1.
        const Value under = abs(subdiagonal(h));
        const Value previous = before(sizes);
        const Value small =
            compare(Compare::kLe, under, (sizes + previous) * eps) & compare(Compare::kLe, places, hi);
        const Value lo = reduce(select(small, places, like(places, 0.0)), Reduction::kMax, Dims{0});
        const Value done = compare(Compare::kEq, lo, hi);
        const Value exceptional = compare(Compare::kEq, remainder(turn, like(turn, 11.0)), 10.0);
        const Value odd_shift = complex(entry(sizes, hi) + entry(under, hi), like(entry(sizes, hi), 0.0));
        const Value shift = select(exceptional, odd_shift, wilkinson_shift(h, hi));
        // Where the block is a single entry the step has no rotations and changes nothing.
        const Values stepped = qr_step(h, q, lo, hi, shift);
        return {select(done, hi - 1.0, hi), turn + 1.0, select(done, h, stepped[0]), stepped[1]};
      });
  return {result[2], result[3]};
}

// --- real matrices
// --------------------------------------------------------------------------------------------------

// The diagonals of a Hessenberg matrix, each as [n]: sub[i] = h[i, i - 1], super[i] = h[i - 1, i].
struct Diagonals {
  Value main, sub, super;
  explicit Diagonals(const Value& h)
      : main(diagonal(h)), sub(subdiagonal(h)), super(subdiagonal(transposed(h))) {}
};

// Where a subdiagonal entry counts as zero.
Value deflated(const Diagonals& h, int64_t n) {
  const double ulp = epsilon(h.main.dtype());
  const double tiny = (h.main.dtype() == DType::kF64 ? 2.2250738585072014e-308 : 1.17549435e-38) / ulp;
  const Value least = like(h.main, tiny * static_cast<double>(n));
  const Value size = abs(h.main);
  const Value sub = abs(h.sub);
  const Value super = abs(h.super);
  const Value pair = size + before(size);
  const Value nearby = select(compare(Compare::kEq, pair, 0.0), before(sub) + after(sub), pair);
  const Value gap = abs(before(h.main) - h.main);
  const Value wide = maximum(size, gap);
  const Value sum = wide + maximum(sub, super);
  const Value product = minimum(sub, super) * (maximum(sub, super) / sum);
  const Value bound = maximum(least, minimum(size, gap) * (wide / sum) * ulp);
  return compare(Compare::kLe, sub, least) |
         (compare(Compare::kLe, sub, nearby * ulp) & compare(Compare::kLe, product, bound));
}

// A pair of shifts: (re1, re2) with imaginary parts (im, -im).
struct Shifts {
  Value re1, re2, im;
};

// The eigenvalues of the trailing 2x2 block of rows l .. i, a real pair replaced by the closer one twice;
// other numbers each tenth time.
Shifts shifts_of(const Diagonals& h, const Value& l, const Value& i, const Value& turn) {
  const Value last = entry(h.main, i);
  const auto every = [&](double count) {
    return compare(Compare::kEq, remainder(turn, like(turn, count)), 0.0);
  };
  const Value at_end = abs(entry(h.sub, i)) + abs(entry(h.sub, i - 1.0));
  const Value at_start = abs(entry(h.sub, l + 1.0)) + abs(entry(h.sub, l + 2.0));
  const Value size = select(every(20), at_end, at_start);
  const Value odd = every(10);
  const Value odd_diagonal = size * 0.75 + select(every(20), last, entry(h.main, l));
  Value h11 = select(odd, odd_diagonal, entry(h.main, i - 1.0));
  Value h12 = select(odd, size * -0.4375, entry(h.super, i));
  Value h21 = select(odd, size, entry(h.sub, i));
  Value h22 = select(odd, odd_diagonal, last);
  const Value total = abs(h11) + abs(h12) + abs(h21) + abs(h22);
  const Value scale = select(compare(Compare::kEq, total, 0.0), like(total, 1.0), total);
  h11 = h11 / scale;
  h12 = h12 / scale;
  h21 = h21 / scale;
  h22 = h22 / scale;
  const Value mean = (h11 + h22) * 0.5;
  const Value determinant = (h11 - mean) * (h22 - mean) - h12 * h21;
  const Value root = sqrt(abs(determinant));
  const Value complex_pair = compare(Compare::kGe, determinant, 0.0);
  const Value plus = mean + root;
  const Value minus = mean - root;
  const Value closer = select(compare(Compare::kLe, abs(plus - h22), abs(minus - h22)), plus, minus);
  const Value re = select(complex_pair, mean, closer) * scale;
  return {re, re, masked(complex_pair, root) * scale};
}

// Where a sweep may start (the last row after which two small entries hide what is above), and there the
// first column, up to a factor, of (H - shift1) (H - shift2) as [3, 1].
std::pair<Value, Value> start_of(const Diagonals& h, const Shifts& shifts, const Value& l, const Value& i) {
  const int64_t n = h.main.dim(0);
  const Value places = h.main.builder->iota({DType::kS32, {n}}, 0);
  const Value& d = h.main;
  const Value next = after(h.sub);
  const auto wide = [&](const Value& x) { return broadcast_to(x, d.dims()); };
  const Value size = abs(d - wide(shifts.re2)) + wide(abs(shifts.im)) + abs(next);
  const Value ratio = next / size;
  const Value v1 = ratio * after(h.super) + (d - wide(shifts.re1)) * ((d - wide(shifts.re2)) / size) +
                   wide(shifts.im) * (wide(shifts.im) / size);
  const Value v2 = ratio * (d + after(d) - wide(shifts.re1) - wide(shifts.re2));
  const Value v3 = ratio * after(h.sub, 2);
  const Value sum = abs(v1) + abs(v2) + abs(v3);
  const Value neighbours = abs(before(d)) + abs(d) + abs(after(d));
  const Value hidden = compare(Compare::kLe, abs(h.sub) * ((abs(v2) + abs(v3)) / sum),
                               abs(v1) / sum * neighbours * epsilon(d.dtype()));
  const Value allowed = compare(Compare::kLe, places, i - 2.0) & compare(Compare::kGe, places, l) &
                        (hidden | compare(Compare::kEq, places, l));
  const Value m = reduce(select(allowed, places, like(places, 0.0)), Reduction::kMax, Dims{0});
  const auto at_m = [&](const Value& v) { return reshape(entry(v, m) / entry(sum, m), Dims{1, 1}); };
  return {m, concatenate({at_m(v1), at_m(v2), at_m(v3)}, 0)};
}

// larfg: {tau, w, beta} with (I - tau w w^T) v = beta e1, w = (1, …).
struct Reflector {
  Value tau, w, beta;
};
Reflector reflector(const Value& v) {
  const Value zero = number(*v.builder, 0);
  const Value alpha = element(v, zero, zero);
  const Value tail = slice_dim(v, 0, 1, 3);
  const Value rest = reduce(tail * tail, Reduction::kSum, Dims{0, 1});
  const Value trivial = compare(Compare::kEq, rest, 0.0);
  const Value length = sqrt(alpha * alpha + rest);
  const Value beta = select(trivial, alpha, select(compare(Compare::kGe, alpha, 0.0), -length, length));
  const Value one = like(alpha, 1.0);
  const Value tau = select(trivial, like(alpha, 0.0), (beta - alpha) / select(trivial, one, beta));
  const Value scaled = tail / broadcast_to(select(trivial, one, alpha - beta), tail.dims());
  return {tau,
          concatenate({reshape(one, Dims{1, 1}), masked(broadcast_to(!trivial, tail.dims()), scaled)}, 0),
          beta};
}

// Chases the bulge that `v` starts from row m to row i, in h and q with one row and column of zeros more.
Values sweep(const Value& h, const Value& q, const Value& m, const Value& i, const Value& v) {
  const int64_t n = h.dim(0);
  const Value columns = h.builder->iota({DType::kS32, {3, n}}, 1);
  const Value rows = h.builder->iota({DType::kS32, {3, n}}, 0);
  const Value zero = like(m, 0.0);
  return while_loop(
      {m, i, h, q, m, v}, [](const Values& x) -> Values { return {compare(Compare::kLt, x[0], x[1])}; },
      [&](const Values& x) -> Values {
        const Value& k = x[0];
        const Value is_first = compare(Compare::kEq, k, x[4]);
        const Value block = dynamic_slice(x[2], {k, zero}, Dims{3, n});
        const Value bulge = dynamic_slice(block, {zero, k - 1.0}, Dims{3, 1});
        const Reflector p = reflector(select(is_first, x[5], bulge));
        const Value wt = transposed(p.w);
        // Columns from k on; the one before holds what the reflector was made of.
        const Value turned = block - p.w * (dot(wt, block) * p.tau);
        const Value is_head = compare(Compare::kEq, rows, 0.0);
        const Value head = select(is_first, block * (1.0 - p.tau), broadcast_to(p.beta, block.dims()));
        const Value tail = select(is_first, block, like(block, 0.0));
        const Value is_before = compare(Compare::kEq, columns, k - 1.0);
        const Value kept = select(is_before, select(is_head, head, tail), block);
        const Value updated = select(compare(Compare::kGe, columns, k), turned, kept);
        const auto from_right = [&](const Value& matrix) {
          const Value part = dynamic_slice(matrix, {zero, k}, Dims{n, 3});
          return dynamic_update_slice(matrix, part - dot(part, p.w) * p.tau * wt, {zero, k});
        };
        return {k + 1.0,          x[1], from_right(dynamic_update_slice(x[2], updated, {k, zero})),
                from_right(x[3]), x[4], x[5]};
      });
}

// Block triangular, with blocks of one and two rows.
Decomposed real_schur(const Decomposed& start) {
  Builder& builder = *start.q.builder;
  const int64_t n = start.q.dim(0);
  const Value none = builder.splat(0.0, {start.q.dtype(), {}});
  const auto padded = [&](const Value& x) { return pad(x, none, Dims{0, 0}, Dims{1, 1}); };
  const auto inner = [&](const Value& x) { return slice(x, Dims{0, 0}, Dims{n, n}); };
  const Value places = builder.iota({DType::kS32, {n}}, 0);
  const Type square{DType::kS32, {n + 1, n + 1}};
  const Value row = builder.iota(square, 0);
  const Value is_sub = compare(Compare::kEq, row, builder.iota(square, 1) + 1.0);
  // The last row of the active block, turns in all and since the last eigenvalue, H, Q.
  const Values state{number(builder, n - 1), number(builder, 0), number(builder, 1), padded(start.form),
                     padded(start.q)};
  const double most = 30.0 * static_cast<double>(std::max<int64_t>(10, n)) * static_cast<double>(n);
  const Values result = while_loop(
      state,
      [&](const Values& x) -> Values {
        return {compare(Compare::kGt, x[0], 0.0) & compare(Compare::kLt, x[1], most)};
      },
      [&](const Values& x) -> Values {
        const Value &i = x[0], &turn = x[2];
        const Diagonals diagonals(inner(x[3]));
        const Value small = deflated(diagonals, n) & compare(Compare::kLe, places, i);
        const Value l = reduce(select(small, places, like(places, 0.0)), Reduction::kMax, Dims{0});
        const Value h = select(is_sub & compare(Compare::kEq, row, l), none, x[3]);
        const Value done = compare(Compare::kGe, l, i - 1.0);
        const auto [m, v] = start_of(diagonals, shifts_of(diagonals, l, i, turn), l, i);
        // Blocks of one or two rows are done: the sweep has no steps.
        const Values swept = sweep(h, x[4], select(done, i, m), i, v);
        return {select(done, l - 1.0, i), x[1] + 1.0, select(done, like(turn, 1.0), turn + 1.0), swept[2],
                swept[3]};
      });
  return {inner(result[3]), inner(result[4])};
}

// The eigenvalues of [[a, b], [c, d]] in the order of LAPACK's lanv2: {first, second, their imaginary part}.
Values block_eigenvalues(const Value& a, const Value& b, const Value& c, const Value& d) {
  const Value half = (a - d) * 0.5;
  const Value cross = b * c;
  const Value determinant = half * half + cross;
  const Value is_real = compare(Compare::kGe, determinant, 0.0);
  const Value root = sqrt(abs(determinant));
  const Value shift = half + select(compare(Compare::kGe, half, 0.0), root, -root);
  const Value none = compare(Compare::kEq, shift, 0.0);
  const Value mean = (a + d) * 0.5;
  const Value first = d + shift;
  const Value second = d - select(none, like(shift, 0.0), cross / select(none, like(shift, 1.0), shift));
  const Value lower = compare(Compare::kEq, b, 0.0);  // there lanv2 exchanges the rows
  return {select(is_real, select(lower, d, first), mean), select(is_real, select(lower, a, second), mean),
          select(is_real, like(root, 0.0), root)};
}

// A complex rotation for every block of two rows.
Decomposed triangular(const Decomposed& real_form) {
  const int64_t n = real_form.q.dim(0);
  const DType dtype = complex_type(real_form.q.dtype());
  const Values result =
      repeat(n - 1, {convert(real_form.form, dtype), convert(real_form.q, dtype)},
             [&](const Value& k, const Values& x) -> Values {
               const Value zero = like(k, 0.0);
               const Value next = k + 1.0;
               const Value c = real(element(x[0], next, k));
               const Value d = real(element(x[0], next, next));
               const Values values =
                   block_eigenvalues(real(element(x[0], k, k)), real(element(x[0], k, next)), c, d);
               const Value is_block = compare(Compare::kNe, c, 0.0);
               const Value first = complex(values[0], values[2]);
               const Value second = complex(values[1], -values[2]);
               // The eigenvector (first - d, c) becomes the first column.
               const Value u1 = first - complex(d, like(d, 0.0));
               const Value length = sqrt(squared_modulus(u1) + c * c);
               const Value safe = select(is_block, length, like(length, 1.0));
               const Value x1 = select(is_block, scaled_by(u1, 1.0 / safe), like(u1, 1.0));
               const Value x2 = masked(is_block, complex(c / safe, like(c, 0.0)));
               const auto line = [](const Value& left, const Value& right) {
                 return concatenate({reshape(left, Dims{1, 1}), reshape(right, Dims{1, 1})}, 1);
               };
               const Value rotation = concatenate({line(x1, -x2), line(x2, conjugate(x1))}, 0);
               const auto turned = [&](const Value& matrix) {
                 const Value columns = dot(dynamic_slice(matrix, {zero, k}, Dims{n, 2}), rotation);
                 return dynamic_update_slice(matrix, columns, {zero, k});
               };
               const Value t = turned(x[0]);
               const Value rows = dot(adjoint(rotation), dynamic_slice(t, {k, zero}, Dims{2, n}));
               const Value corner = dynamic_slice(rows, {zero, k}, Dims{2, 2});
               const Value exact = concatenate(
                   {line(first, element(corner, zero, like(k, 1.0))), line(like(first, 0.0), second)}, 0);
               const Value known = dynamic_update_slice(rows, select(is_block, exact, corner), {zero, k});
               return {dynamic_update_slice(t, known, {k, zero}), turned(x[1])};
             });
  return {result[0], result[1]};
}

}  // namespace

Decomposed schur(const Value& a) {
  const int64_t n = a.dim(0);
  const DType dtype = complex_type(a.dtype());
  if (n == 1) return {convert(a, dtype), identity(*a.builder, dtype, 1, 1)};
  const Decomposed start = hessenberg(a);
  return is_complex(a.dtype()) ? complex_schur(start) : triangular(real_schur(start));
}

}  // namespace torch_tpu::ops::linalg
