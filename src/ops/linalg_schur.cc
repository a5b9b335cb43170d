// Schur forms by the QR algorithm with implicit shifts: two at a time for real matrices (Francis), single
// ones for complex matrices. Tests, shifts and order are those of LAPACK's lahqr, so that eigenvalues come in
// the order that the CPU gives them.
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

// The diagonals of a Hessenberg matrix, each as [n]: sub[i] = h[i, i - 1], super[i] = h[i - 1, i].
struct Diagonals {
  Value main, sub, super;
  explicit Diagonals(const Value& h)
      : main(diagonal(h)), sub(subdiagonal(h)), super(subdiagonal(transposed(h))) {}
};

// Where a subdiagonal entry counts as zero.
Value deflated(const Diagonals& h, int64_t n) {
  const double ulp = epsilon(h.main.dtype());
  const bool wide = real_type(h.main.dtype()) == DType::kF64;
  const double tiny = (wide ? 2.2250738585072014e-308 : 1.17549435e-38) / ulp;
  const Value size = one_norm(h.main);
  const Value sub = abs(h.sub);
  const Value super = one_norm(h.super);
  const Value least = like(sub, tiny * static_cast<double>(n));
  const Value pair = size + before(size);
  const Value nearby = select(compare(Compare::kEq, pair, 0.0), before(sub) + after(sub), pair);
  const Value gap = one_norm(before(h.main) - h.main);
  const Value most = maximum(size, gap);
  const Value sum = most + maximum(sub, super);
  const Value product = minimum(sub, super) * (maximum(sub, super) / sum);
  const Value bound = maximum(least, minimum(size, gap) * (most / sum) * ulp);
  return compare(Compare::kLe, sub, least) |
         (compare(Compare::kLe, sub, nearby * ulp) & compare(Compare::kLe, product, bound));
}

// Where a sweep starts, and the first column there, up to a factor, of the shifted matrix: [3, 1].
struct Start {
  Value row, column;
};

// The last row of l .. last after which two small entries hide what is above, and the column (v1, v2, v3)
// there.
Start start_at(const Diagonals& h, const Value& l, const Value& last, const Value& v1, const Value& v2,
               const Value& v3) {
  const Value places = h.main.builder->iota({DType::kS32, h.main.dims()}, 0);
  const Value sum = one_norm(v1) + one_norm(v2) + one_norm(v3);
  const Value size = one_norm(h.main);
  const Value neighbours = is_complex(v1.dtype()) ? size + after(size) : before(size) + size + after(size);
  const Value hidden = compare(Compare::kLe, abs(h.sub) * ((one_norm(v2) + one_norm(v3)) / sum),
                               one_norm(v1) / sum * neighbours * epsilon(v1.dtype()));
  const Value allowed = compare(Compare::kLe, places, last) & compare(Compare::kGe, places, l) &
                        (hidden | compare(Compare::kEq, places, l));
  const Value m = reduce(select(allowed, places, like(places, 0.0)), Reduction::kMax, Dims{0});
  const auto at_m = [&](const Value& v) {
    return reshape(entry(v, m) / as_dtype(entry(sum, m), v.dtype()), Dims{1, 1});
  };
  return {m, concatenate({at_m(v1), at_m(v2), at_m(v3)}, 0)};
}

// Whether `turn` is a multiple of `count`: then the shifts are others, to leave a cycle.
Value is_every(double count, const Value& turn) {
  return compare(Compare::kEq, remainder(turn, like(turn, count)), 0.0);
}

// For the active rows l .. i: shifts by the eigenvalues of the last 2x2 block; real ones by the closer of the
// two, twice.
Start real_start(const Diagonals& h, const Value& l, const Value& i, const Value& turn) {
  const Value odd = is_every(10, turn);
  const Value at_end = is_every(20, turn);
  const Value size = select(at_end, abs(entry(h.sub, i)) + abs(entry(h.sub, i - 1.0)),
                            abs(entry(h.sub, l + 1.0)) + abs(entry(h.sub, l + 2.0)));
  const Value odd_diagonal = size * 0.75 + select(at_end, entry(h.main, i), entry(h.main, l));
  const Value h11 = select(odd, odd_diagonal, entry(h.main, i - 1.0));
  const Value h12 = select(odd, size * -0.4375, entry(h.super, i));
  const Value h21 = select(odd, size, entry(h.sub, i));
  const Value h22 = select(odd, odd_diagonal, entry(h.main, i));
  const Value total = abs(h11) + abs(h12) + abs(h21) + abs(h22);
  const Value scale = select(compare(Compare::kEq, total, 0.0), like(total, 1.0), total);
  const Value last = h22 / scale;
  const Value mean = (h11 / scale + last) * 0.5;
  const Value determinant = (h11 / scale - mean) * (last - mean) - (h12 / scale) * (h21 / scale);
  const Value root = sqrt(abs(determinant));
  const Value is_pair = compare(Compare::kGe, determinant, 0.0);
  const Value is_plus = compare(Compare::kLe, abs(mean + root - last), abs(mean - root - last));
  const Value re = select(is_pair, mean, select(is_plus, mean + root, mean - root)) * scale;
  const Value im = masked(is_pair, root) * scale;
  // The first column of (H - re)^2 + im^2.
  const Value& d = h.main;
  const Value next = after(h.sub);
  const Value gap = d - re;
  const Value norm = abs(gap) + im + abs(next);
  const Value ratio = next / norm;
  const Value v1 = ratio * after(h.super) + gap * (gap / norm) + im * (im / norm);
  return start_at(h, l, i - 2.0, v1, ratio * (gap + after(d) - re), ratio * after(h.sub, 2));
}

// A shift by the eigenvalue of the last 2x2 block that is closer to its last entry.
Start complex_start(const Diagonals& h, const Value& l, const Value& i, const Value& turn) {
  const DType dtype = h.main.dtype();
  const Value last = entry(h.main, i);
  const Value u = sqrt(entry(h.super, i)) * sqrt(entry(h.sub, i));
  const Value half = scaled_by(entry(h.main, i - 1.0) - last, like(real(last), 0.5));
  const Value size = maximum(one_norm(half), one_norm(u));
  const Value scale = as_dtype(select(compare(Compare::kEq, size, 0.0), like(size, 1.0), size), dtype);
  const Value root = scale * sqrt((half / scale) * (half / scale) + (u / scale) * (u / scale));
  const Value opposite = compare(Compare::kLt, real(half) * real(root) + imag(half) * imag(root), 0.0);
  const Value sum = half + select(opposite, -root, root);
  const Value none = compare(Compare::kEq, one_norm(u), 0.0);
  const Value regular = last - masked(!none, u * (u / select(none, like(sum, 1.0), sum)));
  const Value at_end = is_every(20, turn);
  const Value odd = as_dtype(abs(select(at_end, entry(h.sub, i), entry(h.sub, l + 1.0))) * 0.75, dtype) +
                    select(at_end, last, entry(h.main, l));
  const Value shift = select(is_every(10, turn), odd, regular);
  const Value v1 = h.main - shift;
  const Value v2 = after(h.sub);
  return start_at(h, l, i - 1.0, v1, v2, like(v2, 0.0));
}

// larfg: (I - conj(tau) w w^H) v = beta e1 with w = (1, …).
struct Reflector {
  Value tau, w, beta;
};
Reflector reflector(const Value& v) {
  const DType dtype = v.dtype();
  const Value zero = number(*v.builder, 0);
  const Value alpha = element(v, zero, zero);
  const Value tail = slice_dim(v, 0, 1, 3);
  const Value rest = reduce(squared_modulus(tail), Reduction::kSum, Dims{0, 1});
  Value trivial = compare(Compare::kEq, rest, 0.0);
  if (is_complex(dtype)) trivial = trivial & compare(Compare::kEq, imag(alpha), 0.0);
  const Value length = sqrt(squared_modulus(alpha) + rest);
  const Value negated = as_dtype(select(compare(Compare::kGe, real(alpha), 0.0), -length, length), dtype);
  const Value one = like(alpha, 1.0);
  const Value tau = masked(!trivial, (negated - alpha) / select(trivial, one, negated));
  const Value scaled = masked(!trivial, tail / select(trivial, one, alpha - negated));
  return {tau, concatenate({reshape(one, Dims{1, 1}), scaled}, 0), select(trivial, alpha, negated)};
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
        const Value wh = adjoint(p.w);
        // Columns from k on; the one before holds what the reflector was made of.
        const Value turned = block - p.w * (dot(wh, block) * conjugate(p.tau));
        const Value is_head = compare(Compare::kEq, rows, 0.0);
        const Value head =
            select(is_first, block * (1.0 - conjugate(p.tau)), broadcast_to(p.beta, block.dims()));
        const Value tail = masked(is_first, block);
        const Value is_before = compare(Compare::kEq, columns, k - 1.0);
        const Value kept = select(is_before, select(is_head, head, tail), block);
        const Value updated = select(compare(Compare::kGe, columns, k), turned, kept);
        const auto from_right = [&](const Value& matrix) {
          const Value part = dynamic_slice(matrix, {zero, k}, Dims{n, 3});
          return dynamic_update_slice(matrix, part - dot(part, p.w) * p.tau * wh, {zero, k});
        };
        const Value next = from_right(dynamic_update_slice(x[2], updated, {k, zero}));
        return {k + 1.0, x[1], next, from_right(x[3]), x[4], x[5]};
      });
}

// Block triangular: real matrices keep blocks of two rows.
Decomposed reduced(const Decomposed& start) {
  Builder& builder = *start.q.builder;
  const int64_t n = start.q.dim(0);
  const bool is_real = !is_complex(start.q.dtype());
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
        const Value done = compare(Compare::kGe, l, is_real ? i - 1.0 : i);
        const Start bulge =
            is_real ? real_start(diagonals, l, i, turn) : complex_start(diagonals, l, i, turn);
        // Where the block is done the sweep has no steps.
        const Values swept = sweep(h, x[4], select(done, i, bulge.row), i, bulge.column);
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

// The unit eigenvector of `first`. That of a complex pair has the phase that LAPACK gives it: (p, i q) in the
// basis of the rotation (cs, sn) that makes the diagonal entries equal.
Values block_vector(const Value& a, const Value& b, const Value& c, const Value& d, const Values& values) {
  const Value gap = a - d;
  const Value sigma = b + c;
  const Value width = sqrt(sigma * sigma + gap * gap);
  const Value even = compare(Compare::kEq, width, 0.0);
  const Value safe = select(even, like(width, 1.0), width);
  const Value cs = select(even, like(width, 1.0), sqrt((abs(sigma) / safe + 1.0) * 0.5));
  const Value sn = -(gap * 0.5) / (safe * select(compare(Compare::kGe, sigma, 0.0), cs, -cs));
  const Value upper = b * cs * cs - c * sn * sn - gap * cs * sn;
  const Value lower = c * cs * cs - b * sn * sn - gap * cs * sn;
  const Value by_upper = compare(Compare::kGe, abs(upper), abs(lower));
  const Value one = like(a, 1.0);
  const Value is_real = compare(Compare::kEq, values[2], 0.0);
  const Value p = select(by_upper, one, -values[2] / lower);
  const Value q = select(by_upper, values[2] / upper, one);
  const Value re1 = select(is_real, values[0] - d, cs * p);
  const Value re2 = select(is_real, c, sn * p);
  const Value im1 = masked(!is_real, -(sn * q));
  const Value im2 = masked(!is_real, cs * q);
  const Value length = sqrt(re1 * re1 + re2 * re2 + im1 * im1 + im2 * im2);
  return {complex(re1 / length, im1 / length), complex(re2 / length, im2 / length)};
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
               const Value a = real(element(x[0], k, k));
               const Value b = real(element(x[0], k, next));
               const Value c = real(element(x[0], next, k));
               const Value d = real(element(x[0], next, next));
               const Values values = block_eigenvalues(a, b, c, d);
               const Values vector = block_vector(a, b, c, d, values);
               const Value is_block = compare(Compare::kNe, c, 0.0);
               const Value first = complex(values[0], values[2]);
               const Value second = complex(values[1], -values[2]);
               const Value x1 = select(is_block, vector[0], like(first, 1.0));
               const Value x2 = masked(is_block, vector[1]);
               const auto line = [](const Value& left, const Value& right) {
                 return concatenate({reshape(left, Dims{1, 1}), reshape(right, Dims{1, 1})}, 1);
               };
               const Value rotation = concatenate({line(x1, -conjugate(x2)), line(x2, conjugate(x1))}, 0);
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
  return is_complex(a.dtype()) ? reduced(start) : triangular(reduced(start));
}

}  // namespace torch_tpu::ops::linalg
